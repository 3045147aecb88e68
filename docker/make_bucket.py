"""`python docker/make_bucket.py NAME`: makes a bucket in the S3 that the environment names, unless it is there."""

from __future__ import annotations

import os
import sys

from s3fs import S3FileSystem


def main() -> None:
    """Fails while the store does not respond; Compose then starts it again."""
    store = S3FileSystem(endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    [bucket] = sys.argv[1:]
    if bucket not in store.ls(""):
        store.mkdir(bucket)


if __name__ == "__main__":
    main()
