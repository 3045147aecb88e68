"""A store in a bucket of Google Cloud Storage. Conditional writes (`ifGenerationMatch=0`) decide the races."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any

from tidefold.errors import RefusedError
from tidefold.storage.gcs.address import GcsAddress, GcsEndpoint
from tidefold.storage.gcs.client import FAILURES, PUT_MARK, GcsAnswer, GcsBucket, GcsError, Session
from tidefold.storage.object_client import gather
from tidefold.storage.object_store import ObjectStore
from tidefold.storage.store import StoredObject, make_taken_error

_KIND = "application/octet-stream"
# Google's answer to a part that is not the last.
_MORE = 308
_PAGE = 1000  # Names in one page of a listing.


class ResumableUpload:
    """An upload in parts. The object appears, whole, with its last part. Until then it is invisible.

    Google Cloud Storage deletes an upload that was not completed after a week.
    """

    def __init__(self, bucket: GcsBucket, key: str, path: str) -> None:
        self._bucket, self._key, self._path, self._mark = bucket, key, path, uuid.uuid4().hex
        body = json.dumps(_describe(self._mark, name=key)).encode()
        kind = {"Content-Type": "application/json; charset=UTF-8", "X-Upload-Content-Type": _KIND}
        condition = {"uploadType": "resumable", "ifGenerationMatch": 0}
        with bucket.translate_errors(path):
            try:
                begun = bucket.call(lambda session: session.send("post", session.uploads, body, kind, **condition))
            except GcsError as error:
                if error.status == 412:
                    raise make_taken_error(path) from error
                raise
        self._place = begun.headers["Location"]
        self._sent = 0
        # The last part says that it is the last, so one part waits for the next.
        self._waiting = b""

    def add(self, data: bytes) -> None:
        """Sends the part before this one. All but the last have a multiple of 256 KiB, as PART is."""
        if self._waiting:
            self._send_part()
        self._waiting = data

    def _send_part(self) -> None:
        end = self._sent + len(self._waiting)
        head = {"Content-Range": f"bytes {self._sent}-{end - 1}/*"}
        with self._bucket.translate_errors(self._path):
            answer = self._bucket.call(lambda session: session.send("put", self._place, self._waiting, head))
            if answer.status != _MORE or answer.headers.get("Range") != f"bytes=0-{end - 1}":
                raise GcsError(answer.status, "incomplete", "a part of an upload was not stored")
        self._sent = end

    def complete(self) -> None:
        """Makes the object visible if its name is free. Raises as `_put`."""
        end = self._sent + len(self._waiting)
        head = {"Content-Range": f"bytes {self._sent}-{end - 1}/{end}"}
        try:
            answer = self._bucket.call(lambda session: session.send("put", self._place, self._waiting, head))
            if answer.status == _MORE:
                raise GcsError(answer.status, "incomplete", "the last part of an upload was not stored")
        except FAILURES as error:
            self._bucket.resolve_put(self._key, self._path, self._mark, error)

    def abort(self) -> None:
        """Deletes the parts. If that fails, they are invisible, and Google deletes them."""
        with suppress(*FAILURES):
            self._bucket.call(lambda session: session.send("delete", self._place))


def _describe(mark: str, **more: str) -> dict[str, object]:
    return {**more, "contentType": _KIND, "metadata": {PUT_MARK: mark}}


class GcsStore(ObjectStore):
    """Objects below a prefix of a bucket."""

    def __init__(self, address: str) -> None:
        self._place = GcsAddress.parse(address)
        self._bucket = GcsBucket(self._place)
        super().__init__(self._place.prefix, self._bucket)

    def _load(self, key: str, start: int, length: int | None) -> bytes:
        end = "" if length is None else start + length - 1
        # Without a range for the whole: every range of an empty object is refused.
        head = {} if length is None and not start else {"Range": f"bytes={start}-{end}"}
        return self._bucket.call(lambda s: s.send("get", s.find_object(key), head=head, alt="media")).body

    def _put(self, key: str, path: str, data: bytes) -> None:
        mark = uuid.uuid4().hex
        # Random, so no data contains it.
        border = uuid.uuid4().hex.encode()
        head = b"--%b\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n" % border
        described = json.dumps(_describe(mark, name=key)).encode()
        body = b"%b%b\r\n--%b\r\nContent-Type: %b\r\n\r\n%b\r\n--%b--\r\n" % (
            head, described, border, _KIND.encode(), data, border,
        )  # fmt: skip
        kind = {"Content-Type": f"multipart/related; boundary={border.decode()}"}
        try:
            self._bucket.call(
                lambda s: s.send("post", s.uploads, body, kind, uploadType="multipart", ifGenerationMatch=0)
            )
        except FAILURES as error:
            self._bucket.resolve_put(key, path, mark, error)

    def _begin_upload(self, key: str, path: str) -> ResumableUpload:
        return ResumableUpload(self._bucket, key, path)

    def _copy(self, source: str, target: str, size: int) -> None:
        """Copies inside Google Cloud Storage. A large copy takes several requests; the object appears with the last."""
        key, mark = self._key(target), uuid.uuid4().hex
        body, kind = json.dumps(_describe(mark)).encode(), {"Content-Type": "application/json"}
        token: str | None = None

        async def send(session: Session) -> GcsAnswer:
            place = session.find_object(key).removeprefix("/storage/v1")
            place = f"{session.find_object(self._key(source))}/rewriteTo{place}"
            return await session.send("post", place, body, kind, ifGenerationMatch=0, rewriteToken=token)

        try:
            while True:
                done = self._bucket.call(send).read_json()
                if done["done"]:
                    return
                token = done["rewriteToken"]
        except FAILURES as error:
            self._bucket.resolve_put(key, target, mark, error)

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
            objects = [
                self._describe(item)
                for page in self._bucket.list_pages(prefix, size=_PAGE)
                for item in page
                if not item["name"].endswith("/")  # A "folder" that a browser of buckets made.
            ]
        return sorted(objects, key=lambda entry: entry.path)

    def _read_page(self, folder: str) -> tuple[dict[str, int], bool]:
        page, more = self._bucket.list_page(f"{self._key(folder)}/".lstrip("/"), size=_PAGE)
        return {entry.path: entry.bytes for entry in map(self._describe, page)}, bool(more)

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

    def _read_size(self, key: str) -> int:
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
