"""`python docker/make_bucket.py NAME`: makes a bucket in the S3 that the environment names, unless it is there."""

from __future__ import annotations

import sys
import urllib.request
from datetime import timedelta

import obstore
from obstore.store import S3Store


def main() -> None:
    """Fails while the store does not respond; Compose then starts it again."""
    store = S3Store(sys.argv[1], client_options={"allow_http": True})
    try:
        obstore.list(store, "none").collect()
    except obstore.exceptions.BaseError as error:
        if "NoSuchBucket" not in str(error):
            raise
        address = obstore.sign(store, "PUT", "", timedelta(minutes=1))
        urllib.request.urlopen(urllib.request.Request(address, method="PUT")).close()


if __name__ == "__main__":
    main()
