"""A store in a bucket of Google Cloud Storage. Conditional writes (`ifGenerationMatch=0`) decide the races."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from tidefold.errors import RefusedError
from tidefold.storage.gcs.address import GcsAddress, GcsEndpoint
from tidefold.storage.gcs.client import GcsBucket, GcsError, Session
from tidefold.storage.gcs.upload import ResumableUpload, copy, put
from tidefold.storage.object_client import gather
from tidefold.storage.object_store import ObjectStore
from tidefold.storage.store import StoredObject

_PAGE = 1000  # Names in one page of a listing.


class GcsStore(ObjectStore):
    """Objects below a prefix of a bucket."""

    def __init__(self, address: str) -> None:
        self._place = GcsAddress.parse(address)
        self._bucket = GcsBucket(self._place)
        super().__init__(self._place.prefix, self._bucket)

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        key = self._key(path)
        if length == 0:
            self._require_size(path)
            return b""
        end = "" if length is None else start + length - 1
        # Without a range for the whole: every range of an empty object is refused.
        head = {} if length is None and not start else {"Range": f"bytes={start}-{end}"}
        with self._bucket.translate_errors(path):
            try:
                return self._bucket.call(lambda s: s.send("get", s.find_object(key), head=head, alt="media")).body
            except GcsError as error:
                if error.status == 416:
                    return b""  # It begins behind the end.
                raise

    def _put(self, key: str, path: str, data: bytes) -> None:
        put(self._bucket, key, path, data)

    def _begin_upload(self, key: str, path: str) -> ResumableUpload:
        return ResumableUpload(self._bucket, key, path)

    def _copy(self, source: str, target: str, size: int) -> None:
        copy(self._bucket, self._key(source), self._key(target), target)

    _copy_unique = _copy

    def _make_no_replace(self, path: str) -> RefusedError:
        return RefusedError(
            "GCS_NO_REPLACE",
            f"`{path}` exists, and tidefold never replaces an object in Google Cloud Storage.",
            hint=f"Delete the object (`gcloud storage rm {self.uri(path)}`) and call again: repair writes it back.",
        )

    def list(self, folder: str, unfinished: bool = False) -> list[StoredObject]:
        """Returns the files below a folder. Uploads that were not completed are in no listing: Google deletes them."""
        prefix = f"{self._key(folder)}/".lstrip("/")
        with self._bucket.translate_errors(folder):
            found = [
                self._describe(item)
                for page in self._bucket.list_pages(prefix, size=_PAGE)
                for item in page
                if not item["name"].endswith("/")  # A "folder" that a browser of buckets made.
            ]
        return sorted(found, key=lambda entry: entry.path)

    def find_sizes(self, folder: str, paths: Sequence[str]) -> dict[str, int]:
        """Returns the sizes of files. One request shows a small folder. In a larger one, each file costs a request."""
        if not paths:
            return {}
        prefix = f"{self._key(folder)}/".lstrip("/")
        with self._bucket.translate_errors(folder):
            page, more = self._bucket.list_page(prefix, size=_PAGE)
            found = {entry.path: entry.bytes for entry in map(self._describe, page)}
            left = [path for path in paths if path not in found] if more else []
            sizes = self._bucket.call(lambda s: gather(left, lambda path: _find_size(s, self._key(path))))
        return found | {path: size for path, size in zip(left, sizes, strict=True) if size is not None}

    def _describe(self, item: dict[str, Any]) -> StoredObject:
        return StoredObject(self._path(item["name"]), int(item.get("size", 0)))

    def delete(self, paths: Iterable[str]) -> None:
        keys = [self._key(path) for path in paths]
        if keys:
            with self._bucket.translate_errors(self._path(keys[0])):
                if any(self._bucket.call(lambda s: gather(keys, lambda key: _delete(s, key)))):
                    self._bucket.require_bucket()

    def uri(self, path: str) -> str:
        return self._place.uri(self._key(path))

    def options(self) -> dict[str, str]:
        return GcsEndpoint.of().delta_options()

    def read_instant(self, path: str) -> float:
        """Returns when Google wrote an object, by its clock: seconds since 1970."""
        with self._bucket.translate_errors(path):
            return datetime.fromisoformat(self._bucket.describe(self._key(path))["updated"]).timestamp()

    def _require_size(self, path: str) -> int:
        key = self._key(path)
        with self._bucket.translate_errors(path):
            return int(self._bucket.describe(key).get("size", 0))


async def _delete(session: Session, key: str) -> bool:
    """Deletes an object. Returns whether there was none."""
    try:
        await session.send("delete", session.find_object(key))
    except GcsError as error:
        if error.status != 404:
            raise
        return True
    return False


async def _find_size(session: Session, key: str) -> int | None:
    try:
        return int((await session.send("get", session.find_object(key), fields="size")).read_json().get("size", 0))
    except GcsError as error:
        if error.status != 404:
            raise
        return None
