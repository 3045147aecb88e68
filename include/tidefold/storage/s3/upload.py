"""Writes to S3 only if the name is free, and finds out the outcome of a write even if its answer is lost."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

from tidefold.errors import UnknownOutcomeError
from tidefold.storage.s3.client import FAILURES, PUT_MARK, Bucket, conflicts

COPIED_PART = 512 << 20
_CONFLICTS = 5


def put(bucket: Bucket, key: str, path: str, data: bytes) -> None:
    """Sends one conditional PUT. Raises AlreadyExistsError, UnknownOutcomeError, StorageError."""
    mark = uuid.uuid4().hex
    for left in reversed(range(_CONFLICTS)):
        try:
            bucket.call("put_object", Key=key, Body=data, IfNoneMatch="*", Metadata={PUT_MARK: mark})
        except FAILURES as error:
            if conflicts(error) and left:
                continue
            bucket.settle(key, path, mark, error)
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
            Metadata={PUT_MARK: mark},
        )
    except FileNotFoundError as error:
        raise bucket.as_ours(path, error) from error
    except FAILURES as error:
        bucket.settle(key, path, mark, error)


class Multipart:
    """An upload in parts. The object appears, whole, when the upload is completed. Until then it is invisible."""

    def __init__(self, bucket: Bucket, key: str, path: str) -> None:
        self._bucket, self._path, self._mark = bucket, path, uuid.uuid4().hex
        self._parts: list[dict[str, Any]] = []
        with bucket.translate_errors(path):
            begun = bucket.call("create_multipart_upload", Key=key, Metadata={PUT_MARK: self._mark})
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
            self._bucket.settle(self._key, self._path, self._mark, error)
        except UnknownOutcomeError:
            raise  # It may still complete.
        except Exception:
            self.abort()
            raise

    def abort(self) -> None:
        """Deletes the parts. If that fails they stay, invisible, and `Store.list(unfinished=True)` lists them."""
        with suppress(*FAILURES):
            self._bucket.call("abort_multipart_upload", **self._upload)
