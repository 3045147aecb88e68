"""Objects below a prefix in S3 as landed files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

from s3fs.core import S3File

from tidefold.sources.landing.landing_place import Stamp
from tidefold.sources.landing.object_folder import BLOCK, ObjectFolder, StampPage
from tidefold.storage.s3.address import S3Address
from tidefold.storage.s3.client import FAILURES, Bucket


class S3Folder(ObjectFolder):
    """All objects below a prefix. One request lists 1,000 of them."""

    def __init__(self, address: str) -> None:
        place = S3Address.parse(address)
        self._bucket = Bucket(place.bucket)
        super().__init__(place.prefix, self._bucket)

    @property
    def address(self) -> str:
        return f"s3://{self._bucket.name}/{self._prefix}".rstrip("/")

    def _read_pages(self, after: str) -> Iterator[StampPage]:
        prefix = self._key("")
        begin = {"StartAfter": f"{prefix}{after}"} if after else {}
        with self._bucket.translate_errors(self.address):
            for page in self._bucket.pages("list_objects_v2", Prefix=prefix, **begin):
                contents = page.get("Contents", [])
                yield [(item["Key"].removeprefix(prefix), _stamp_from(item, item["Size"])) for item in contents]

    def _find_stamp(self, key: str) -> Stamp:
        head = self._bucket.call("head_object", Key=key)
        return _stamp_from(head, head["ContentLength"])

    def _open_pinned(self, key: str, name: str, stamp: Stamp) -> BinaryIO:
        return cast(BinaryIO, _PinnedObject(self._bucket, key, stamp, lambda error: self._as_os_error(error, name)))

    def _is_absent(self, error: Exception) -> bool:
        return isinstance(error, FileNotFoundError)


def _stamp_from(head: dict[str, Any], size: int) -> Stamp:
    return Stamp(0, size, head["LastModified"].timestamp(), head["ETag"])


class _PinnedObject(S3File):  # type: ignore[misc]
    """An object that is read in parts. Each request requires the ETag, so S3 refuses it after a replacement."""

    def __init__(self, bucket: Bucket, key: str, stamp: Stamp, convert: Callable[[Exception], OSError]) -> None:
        path = f"{bucket.name}/{key}"
        self._convert = convert
        # With these details s3fs sends no request of its own.
        self._details = {"name": path, "size": stamp.size, "ETag": stamp.etag, "type": "file"}
        super().__init__(bucket.files, path, "rb", block_size=BLOCK, size=stamp.size)
        self.key = key
        self.read_kw = {"IfMatch": stamp.etag}

    def _fetch_range(self, start: int, end: int) -> bytes:
        try:
            return cast(bytes, super()._fetch_range(start, end))
        except FAILURES as error:
            raise self._convert(error) from error
