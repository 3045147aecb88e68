"""A store in an S3 bucket. fsspec's s3fs sends the requests; conditional puts (If-None-Match) decide the races.

tidefold does not use s3fs's own writes. By its source, `open(..., "xb")` replaces an existing object if nothing was
written, it completes half a file if its writer fails, and its copies and bulk deletes hide errors.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, cast

from tidefold.errors import InvalidInputError, RefusedError, StorageError, UnknownOutcomeError
from tidefold.storage.object_store import ObjectStore
from tidefold.storage.s3.address import S3Address, S3Endpoint
from tidefold.storage.s3.client import FAILURES, PUT_MARK, Bucket, code_of, conflicts
from tidefold.storage.store import StoredObject

COPIED_PART = 512 << 20
_CONFLICTS = 5
_AT_ONCE = 1000  # Keys that one delete request may name.
_PAGE = 1000  # Names in one page of a listing.
# An upload that was not completed is not an object. It is listed under a name that `delete` recognizes.
_UNFINISHED = re.compile(r"(?P<path>.+)\.(?P<upload>(?:[0-9a-f]{2})+)\.part", re.DOTALL)


def copy_at_once(bucket: Bucket, source: str, key: str, path: str) -> None:
    """Copies an object of at most COPIED_PART bytes with one request. Raises as `_put`, NotFoundError without a source.

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
        bucket.resolve_put(key, path, mark, error)


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
        """Makes the object visible if its name is free. Raises as `_put`; leaves nothing unless in doubt."""
        try:
            self._bucket.call(
                "complete_multipart_upload", **self._upload, MultipartUpload={"Parts": self._parts}, IfNoneMatch="*"
            )
        except FAILURES as error:
            self._resolve(error)

    def _resolve(self, error: Exception) -> None:
        try:
            self._bucket.resolve_put(self._key, self._path, self._mark, error)
        except UnknownOutcomeError:
            raise  # It may still complete.
        except Exception:
            self.abort()
            raise

    def abort(self) -> None:
        """Deletes the parts. If that fails they stay, invisible, and `Store.list(unfinished=True)` lists them."""
        with suppress(*FAILURES):
            self._bucket.call("abort_multipart_upload", **self._upload)


class S3Store(ObjectStore):
    """Objects below a prefix of a bucket."""

    def __init__(self, address: str) -> None:
        place = S3Address.parse(address)
        self._bucket = Bucket(place.bucket)
        super().__init__(place.prefix, self._bucket)

    def _load(self, key: str, start: int, length: int | None) -> bytes:
        # Without a range for the whole: S3 refuses every range of an empty object.
        part = {"start": start, "end": None if length is None else start + length} if start or length else {}
        return cast(bytes, self._bucket.files.cat_file(self._full(key), max_concurrency=1, **part))

    def _put(self, key: str, path: str, data: bytes) -> None:
        mark = uuid.uuid4().hex
        for left in reversed(range(_CONFLICTS)):
            try:
                self._bucket.call("put_object", Key=key, Body=data, IfNoneMatch="*", Metadata={PUT_MARK: mark})
            except FAILURES as error:
                if conflicts(error) and left:
                    continue
                self._bucket.resolve_put(key, path, mark, error)
            return

    def _begin_upload(self, key: str, path: str) -> Multipart:
        return Multipart(self._bucket, key, path)

    def _copy(self, source: str, target: str, size: int) -> None:
        """Copies in parts, even if one request would do: in many S3-compatible stores that request has no condition."""
        if size == 0:
            self._put(self._key(target), target, b"")  # Nothing cannot be copied in parts.
            return
        upload = Multipart(self._bucket, self._key(target), target)
        try:
            with self._bucket.translate_errors(source):
                upload.copy(self._key(source), size)
        except BaseException:
            upload.abort()
            raise
        upload.complete()

    def _copy_unique(self, source: str, target: str, size: int) -> None:
        if 0 < size <= COPIED_PART:
            copy_at_once(self._bucket, self._key(source), self._key(target), target)
        else:
            self._copy(source, target, self._require_size(source))

    def _make_no_replace(self, path: str) -> RefusedError:
        return RefusedError(
            "S3_NO_REPLACE",
            f"`{path}` exists, and tidefold never replaces an object in S3.",
            hint=f"Remove the object (`aws s3 rm {self.uri(path)}`) and call again: repair writes it back.",
        )

    def list(self, folder: str, unfinished: bool = False) -> list[StoredObject]:
        # Not s3fs's find: it returns a file for a folder of that name, and reports a missing bucket as a missing file.
        prefix = f"{self._key(folder)}/".lstrip("/")
        with self._bucket.translate_errors(folder):
            objects = [
                StoredObject(self._path(item["Key"]), item["Size"])
                for page in self._bucket.pages("list_objects_v2", Prefix=prefix)
                for item in page.get("Contents", [])
                if not item["Key"].endswith("/")  # A "folder" that a browser of buckets made.
            ]
            if unfinished:
                objects += [
                    StoredObject(f"{self._path(item['Key'])}.{item['UploadId'].encode().hex()}.part", 0)
                    for page in self._bucket.pages("list_multipart_uploads", Prefix=prefix)
                    for item in page.get("Uploads", [])
                ]
        return sorted(objects, key=lambda entry: entry.path)

    def _read_page(self, folder: str) -> tuple[dict[str, int], bool]:
        prefix = f"{self._key(folder)}/".lstrip("/")
        page = self._bucket.call("list_objects_v2", Prefix=prefix, MaxKeys=_PAGE)
        sizes = {self._path(item["Key"]): item["Size"] for item in page.get("Contents", [])}
        return sizes, bool(page.get("IsTruncated"))

    def delete(self, paths: Iterable[str]) -> None:
        keys = []
        for path in paths:
            half = _UNFINISHED.fullmatch(path)
            if half:
                self._forget(self._key(half["path"]), bytes.fromhex(half["upload"]).decode(), path)
            else:
                keys.append(self._key(path))
        for start in range(0, len(keys), _AT_ONCE):
            self._delete(keys[start : start + _AT_ONCE])

    def _forget(self, key: str, upload: str, path: str) -> None:
        try:
            self._bucket.call("abort_multipart_upload", Key=key, UploadId=upload)
        except FAILURES as error:
            if code_of(error) != "NoSuchUpload":
                raise self._bucket.as_ours(path, error) from error

    def _delete(self, keys: Sequence[str]) -> None:
        wanted = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        with self._bucket.translate_errors(self._path(keys[0])):
            refused = self._bucket.call("delete_objects", Delete=wanted).get("Errors", [])
        kept = [item for item in refused if item.get("Code") != "NoSuchKey"]
        if kept:
            raise StorageError(
                "S3_NOT_DELETED",
                f"S3 did not delete {len(kept)} of {len(keys)} objects, the first is `{self._path(kept[0]['Key'])}`: "
                f"{kept[0].get('Code')}.",
            )

    def uri(self, path: str) -> str:
        return f"s3://{self._full(self._key(path))}".rstrip("/")

    def options(self) -> dict[str, str]:
        return S3Endpoint.of().delta_options()

    def read_instant(self, path: str) -> float:
        """Returns when S3 wrote an object, by its clock: seconds since 1970."""
        with self._bucket.translate_errors(path):
            return float(self._bucket.call("head_object", Key=self._key(path))["LastModified"].timestamp())

    def _read_size(self, key: str) -> int:
        return int(self._bucket.call("head_object", Key=key)["ContentLength"])

    def _full(self, key: str) -> str:
        return f"{self._bucket.name}/{key}"

    def _key(self, path: str) -> str:
        if "?" in path:
            raise InvalidInputError(
                "PATH_INVALID", f"`{path}` contains `?`, which S3 clients read as the start of a version id."
            )
        return super()._key(path)
