"""Writes to S3 only if the name is free, and finds out the outcome of a write even if its answer is lost."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

from tidefold.errors import UnknownOutcomeError
from tidefold.storage.s3.client import FAILURES, Bucket, code_of, conflicts, refuses, was_sent
from tidefold.storage.store import make_taken_error

COPIED_PART = 512 << 20
_CONFLICTS = 5
# Stored with the object: the put that made it. If an answer is lost, botocore and aiohttp send the put again (aiohttp
# whatever botocore's settings are, and silently). Then that very put finds its own name taken.
_PUT = "tidefold-put"


def put(bucket: Bucket, key: str, path: str, data: bytes) -> None:
    """Sends one conditional PUT. Raises AlreadyExistsError, UnknownOutcomeError, StorageError."""
    mark = uuid.uuid4().hex
    for left in reversed(range(_CONFLICTS)):
        try:
            bucket.call("put_object", Key=key, Body=data, IfNoneMatch="*", Metadata={_PUT: mark})
        except FAILURES as error:
            if conflicts(error) and left:
                continue
            _settle(bucket, key, path, mark, error)
        return


def copy_at_once(bucket: Bucket, source: str, key: str, path: str) -> None:
    """Copies an object of at most COPIED_PART bytes with one request. Raises as `put`, NotFoundError without a source.

    Many S3-compatible servers ignore the condition and overwrite. So the name must belong to these bytes alone.
    """
    mark = uuid.uuid4().hex
    try:
        bucket.call(
            "copy_object",
            Key=key,
            CopySource={"Bucket": bucket.name, "Key": source},
            IfNoneMatch="*",
            MetadataDirective="REPLACE",
            Metadata={_PUT: mark},
        )
    except FileNotFoundError as error:
        raise bucket.as_ours(path, error) from error
    except FAILURES as error:
        _settle(bucket, key, path, mark, error)


def _settle(bucket: Bucket, key: str, path: str, mark: str, error: Exception) -> None:
    """Returns if this very put made the object. Otherwise raises the known outcome."""
    if not was_sent(error):
        raise bucket.as_ours(path, error) from error
    try:
        found = find_put_mark(bucket, key)
    except FAILURES:
        raise _unknown(bucket, path, error) from error
    if found == mark:
        return
    if refuses(error):
        raise bucket.as_ours(path, error) from error
    if found is None:  # Absence proves nothing: the lost request may still arrive.
        raise _unknown(bucket, path, error) from error
    raise make_taken_error(path) from error


def find_put_mark(bucket: Bucket, key: str) -> str | None:
    """Returns the mark of the put that made an object, "" for a foreign object; None if it does not exist."""
    try:
        return str(bucket.call("head_object", Key=key).get("Metadata", {}).get(_PUT, ""))
    except FileNotFoundError:
        return None


def _unknown(bucket: Bucket, path: str, error: Exception) -> UnknownOutcomeError:
    why = bucket.as_ours(path, error)
    # In a conflict the other writer may be an earlier try of this put.
    code = "S3_CONFLICT" if conflicts(error) else why.code if refuses(error) else "UNKNOWN_OUTCOME"
    said = code_of(error) or type(error).__name__
    return UnknownOutcomeError(code, f"Whether `{path}` was written is not known ({said}).", hint=why.hint)


class Multipart:
    """An upload in parts. The object appears, whole, when the upload is completed. Until then it is invisible."""

    def __init__(self, bucket: Bucket, key: str, path: str) -> None:
        self._bucket, self._path, self._mark = bucket, path, uuid.uuid4().hex
        self._parts: list[dict[str, Any]] = []
        with bucket.translate_errors(path):
            begun = bucket.call("create_multipart_upload", Key=key, Metadata={_PUT: self._mark})
        self._key = key
        self._upload = {"Key": key, "UploadId": begun["UploadId"]}

    def add(self, data: bytes) -> None:
        """Sends the next part. All but the last have at least 5 MiB."""
        number = len(self._parts) + 1
        with self._bucket.translate_errors(self._path):
            sent = self._bucket.call("upload_part", **self._upload, PartNumber=number, Body=data)
        self._parts.append({"PartNumber": number, "ETag": sent["ETag"]})

    def copy(self, source: str, size: int) -> None:
        """Copies the parts from another object of the bucket, without passing the bytes through this process."""
        for number, start in enumerate(range(0, size, COPIED_PART), 1):
            end = min(start + COPIED_PART, size) - 1
            sent = self._bucket.call(
                "upload_part_copy",
                **self._upload,
                PartNumber=number,
                CopySource={"Bucket": self._bucket.name, "Key": source},
                CopySourceRange=f"bytes={start}-{end}",
            )
            self._parts.append({"PartNumber": number, "ETag": sent["CopyPartResult"]["ETag"]})

    def complete(self) -> None:
        """Makes the object visible if its name is free. Raises as `put`; leaves nothing unless in doubt."""
        try:
            self._bucket.call(
                "complete_multipart_upload",
                **self._upload,
                MultipartUpload={"Parts": self._parts},
                IfNoneMatch="*",
            )
        except FAILURES as error:
            self._settle(error)

    def _settle(self, error: Exception) -> None:
        try:
            _settle(self._bucket, self._key, self._path, self._mark, error)
        except UnknownOutcomeError:
            raise  # It may still complete.
        except Exception:
            self.abort()
            raise

    def abort(self) -> None:
        """Deletes the parts. If that fails they stay, invisible, and `Store.list(unfinished=True)` lists them."""
        with suppress(*FAILURES):
            self._bucket.call("abort_multipart_upload", **self._upload)
