"""Writes to Google Cloud Storage only if the name is free, and finds out the outcome if an answer is lost."""

from __future__ import annotations

import json
import uuid
from contextlib import suppress

from tidefold.storage.gcs.client import FAILURES, PUT_MARK, GcsAnswer, GcsBucket, GcsError, Session
from tidefold.storage.store import make_taken_error

_KIND = "application/octet-stream"
# Google's answer to a part that is not the last.
_MORE = 308


def _describe(mark: str, **more: str) -> dict[str, object]:
    return {**more, "contentType": _KIND, "metadata": {PUT_MARK: mark}}


def put(bucket: GcsBucket, key: str, path: str, data: bytes) -> None:
    """Sends one conditional request. Raises AlreadyExistsError, UnknownOutcomeError, StorageError."""
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
        bucket.call(lambda s: s.send("post", s.uploads, body, kind, uploadType="multipart", ifGenerationMatch=0))
    except FAILURES as error:
        bucket.settle(key, path, mark, error)


def copy(bucket: GcsBucket, source: str, key: str, path: str) -> None:
    """Copies an object inside Google Cloud Storage, on condition that the name is free. Raises as `put`, NotFoundError.

    A large copy takes several requests. The object appears with the last one.
    """
    mark = uuid.uuid4().hex
    body, kind = json.dumps(_describe(mark)).encode(), {"Content-Type": "application/json"}
    token: str | None = None

    async def send(session: Session) -> GcsAnswer:
        place = f"{session.find_object(source)}/rewriteTo{session.find_object(key).removeprefix('/storage/v1')}"
        return await session.send("post", place, body, kind, ifGenerationMatch=0, rewriteToken=token)

    try:
        while True:
            done = bucket.call(send).read_json()
            if done["done"]:
                return
            token = done["rewriteToken"]
    except FAILURES as error:
        bucket.settle(key, path, mark, error)


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
        """Makes the object visible if its name is free. Raises as `put`."""
        end = self._sent + len(self._waiting)
        head = {"Content-Range": f"bytes {self._sent}-{end - 1}/{end}"}
        try:
            answer = self._bucket.call(lambda session: session.send("put", self._place, self._waiting, head))
            if answer.status == _MORE:
                raise GcsError(answer.status, "incomplete", "the last part of an upload was not stored")
        except FAILURES as error:
            self._bucket.settle(self._key, self._path, self._mark, error)

    def abort(self) -> None:
        """Deletes the parts. If that fails, they are invisible, and Google deletes them."""
        with suppress(*FAILURES):
            self._bucket.call(lambda session: session.send("delete", self._place))
