"""Objects below a prefix in Google Cloud Storage as landed files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, BinaryIO

from tidefold.sources.landing.landing_place import Stamp
from tidefold.sources.landing.object_folder import ObjectFolder, StampPage
from tidefold.storage.gcs.address import GcsAddress
from tidefold.storage.gcs.client import GcsBucket

PAGE = 1000  # Names in one page of a listing.


class GcsFolder(ObjectFolder):
    """All objects below a prefix. One request lists 1,000 of them.

    The ETag of a stamp is the object's generation, which changes with its bytes and with nothing else.
    """

    def __init__(self, address: str) -> None:
        self._place = GcsAddress.parse(address)
        self._bucket = GcsBucket(self._place)
        super().__init__(self._place.prefix, self._bucket)

    @property
    def address(self) -> str:
        return self._place.uri(self._prefix)

    def _read_pages(self, after: str) -> Iterator[StampPage]:
        prefix = self._key("")
        with self._bucket.translate_errors(self.address):
            for page in self._bucket.list_pages(prefix, f"{prefix}{after}" if after else "", PAGE):
                names = [(item["name"].removeprefix(prefix), item) for item in page]
                # A listing begins with the given name itself.
                yield [(name, _stamp_from(item)) for name, item in names if not after or name != after]

    def _find_stamp(self, key: str) -> Stamp:
        return _stamp_from(self._bucket.describe(key))

    def _open_pinned(self, key: str, name: str, stamp: Stamp) -> BinaryIO:
        def load(start: int, length: int) -> bytes:
            part = {"Range": f"bytes={start}-{start + length - 1}"}
            pin: dict[str, Any] = {"alt": "media", "ifGenerationMatch": stamp.etag}
            return self._bucket.call(lambda s: s.send("get", s.find_object(key), head=part, **pin)).body

        return self._open_ranges(key, name, stamp.size, load)


def _stamp_from(item: dict[str, Any]) -> Stamp:
    changed = datetime.fromisoformat(item["updated"]).timestamp()
    return Stamp(0, int(item.get("size", 0)), changed, item["generation"])
