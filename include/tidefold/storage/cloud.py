"""A store in S3, Azure or Google Cloud Storage. What races is one conditional put; streamed names are unique.

Ledger, manifests, Delta commits and verdicts are written by `put_if_absent`, which is one request that the service
refuses if the name is taken. No condition ends an upload in parts, which `create` is if the file is large: its name has
a random part, or lies in a folder that a put has claimed. It looks whether the name is free, and cannot be held to it.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, cast

import obstore

from tidefold.errors import AlreadyExistsError, InvalidInputError, NotFoundError, RefusedError
from tidefold.storage.cloud_address import CloudAddress
from tidefold.storage.cloud_client import COPIED, FAILURES, PART, PUT_MARK, CloudBucket, status_of
from tidefold.storage.range_reader import READ, open_ranges
from tidefold.storage.store import StoredObject, make_outside_error, make_taken_error
from tidefold.storage.traffic import traffic

# Files of one log that are copied, checked, read or deleted at once.
REQUESTS_AT_ONCE = 64
_BEHIND_THE_END = "Wanted range starting at"  # obstore's own words, where an answer is the whole object.


class CloudUpload(io.BufferedIOBase):
    """A file that is written front to back: one request if it is small, else parts during the write.

    It keeps at most three parts in memory: the one that is written, the one that is sent, and the one that waits.
    """

    def __init__(self, bucket: CloudBucket, key: str, path: str) -> None:
        super().__init__()
        self._bucket, self._key, self._path, self._mark = bucket, key, path, uuid.uuid4().hex
        self._buffer = bytearray()
        self._sent = 0
        self._upload: Any = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._sent + len(self._buffer)

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        self._buffer += view
        while len(self._buffer) >= PART:
            self._send(bytes(self._buffer[:PART]))
        return view.nbytes

    def _send(self, part: bytes) -> None:
        with self._bucket.translate_errors(self._path):
            if self._upload is None:
                named: Any = {"attributes": {PUT_MARK: self._mark}, "buffer_size": PART, "max_concurrency": 1}
                self._upload = obstore.open_writer(self._bucket.connection.parts, self._key, **named)
                traffic.add(2)  # It is begun and completed.
            self._upload.write(part)
        traffic.add(1, len(part))
        del self._buffer[: len(part)]
        self._sent += len(part)

    def complete(self) -> None:
        """Makes the file visible, after everything was written. Raises as `CloudBucket.settle`."""
        if self._upload is None:
            self._bucket.put(self._key, self._path, bytes(self._buffer))
            return
        if self._buffer:
            self._send(bytes(self._buffer))
        with self._bucket.translate_errors(self._path), suppress(FileNotFoundError):
            self._bucket.describe(self._key)
            raise make_taken_error(self._path)
        upload, self._upload = self._upload, None
        try:
            upload.close()  # If that fails, it deletes the parts.
        except FAILURES as error:
            self._bucket.settle(self._path, error, lambda: self._bucket.find_mark(self._key) == self._mark)

    def abort(self) -> None:
        """Deletes everything that was written. If that fails, a rule of the bucket deletes the parts."""
        if self._upload is not None:
            with suppress(*FAILURES):
                self._upload.__exit__(RuntimeError, None, None)


class CloudStore:
    """Objects below a prefix of a bucket. An object appears under its name only when it is complete."""

    def __init__(self, address: str) -> None:
        self._place, self._prefix = CloudAddress.parse(address)
        self._bucket = CloudBucket(self._place)

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        if length == 0:
            self._require_size(path)
            return b""
        with self._bucket.translate_errors(path):
            try:
                return self._bucket.load(self._key(path), start, length)
            except FAILURES as error:
                if status_of(error) == 416 or _BEHIND_THE_END in str(error):
                    return b""  # It begins behind the end.
                raise

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        with open_ranges(lambda start, length: self.read(path, start, length), self._require_size(path)) as stream:
            yield stream

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._bucket.put(self._key(path), path, data)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        stream = CloudUpload(self._bucket, self._key(path), path)
        try:
            yield cast(BinaryIO, stream)
            stream.complete()
        except BaseException:
            stream.abort()
            raise

    @property
    def links(self) -> bool:
        return False

    def link(self, source: str, target: str, copy: bool = False) -> str:
        self._key(target)  # Refused before any request, if it is outside the root.
        size = self._require_size(source)
        try:
            if size == 0:
                self.put_if_absent(target, b"")  # Nothing cannot be copied in parts.
            else:
                self._copy(source, target, size)
        except AlreadyExistsError:
            if not self._is_same(source, target, size):
                raise
            return "kept"
        return "copy"

    def link_unique(self, source: str, target: str, size: int) -> str:
        self._copy(source, target, size, overwrite=True)
        return "copy"

    def _copy(self, source: str, target: str, size: int, overwrite: bool = False) -> None:
        if size > COPIED:
            with self.open(source) as old, self.create(target) as new:
                while part := old.read(READ):
                    new.write(part)
            return
        key, other = self._key(source), self._key(target)
        with self._bucket.translate_errors(source):
            self._bucket.copy(key, other, target, lambda: self._is_same(source, target, size), overwrite)

    def _is_same(self, one: str, other: str, size: int) -> bool:
        """Raises FileNotFoundError if there is no other."""
        if self._bucket.describe(self._key(other))["size"] != size:
            return False
        return all(self.read(one, start, READ) == self.read(other, start, READ) for start in range(0, size, READ))

    @property
    def at_once(self) -> int:
        return REQUESTS_AT_ONCE

    def find_sizes(self, folder: str, paths: Sequence[str]) -> dict[str, int]:
        """Returns the sizes of files. One request shows a small folder. What it does not show costs a request each."""
        if not paths:
            return {}
        with self._bucket.translate_errors(folder):
            first = next(self._bucket.read_pages(self._key(folder)), [])
        listed = {self._path(item["path"]): item["size"] for item in first}
        left = [path for path in paths if path not in listed]
        with ThreadPoolExecutor(self.at_once) as pool:
            sizes = zip(left, pool.map(self._find_more, left), strict=True)
            return listed | {path: size for path, size in sizes if size is not None}

    def _find_more(self, path: str) -> int | None:
        """Returns the size of an object of a bucket that has just been listed, with one request; None: it is absent."""
        with self._bucket.translate_errors(path), suppress(FileNotFoundError):
            return int(self._bucket.describe(self._key(path))["size"])
        return None

    @contextmanager
    def replace(self, paths: Sequence[str]) -> Iterator[BinaryIO]:
        """Fills free names only: many object stores cannot replace exactly the object that was read."""
        taken = [path for path in paths if self._find_size(path) is not None]
        if taken:
            service = self._place.service
            raise RefusedError(
                "STORE_NO_REPLACE",
                f"`{taken[0]}` exists, and tidefold never replaces an object in {service.name}.",
                hint=f"Remove the object (`{service.remove} {self.uri(taken[0])}`) and call again: repair writes it "
                "back.",
            )
        with self.create(paths[0]) as stream:
            yield stream
        for path in paths[1:]:
            self.link(paths[0], path)

    def identity(self, path: str) -> str:
        return self.uri(path)

    def list(self, folder: str, unfinished: bool = False) -> list[StoredObject]:
        """Returns the files below a folder. Uploads that were not completed are in no listing."""
        with self._bucket.translate_errors(folder):
            pages = self._bucket.read_pages(self._key(folder))
            objects = [StoredObject(self._path(item["path"]), item["size"]) for page in pages for item in page]
        real = [one for one in objects if one.bytes or self._find_more(one.path) is not None]
        return sorted(real, key=lambda entry: entry.path)

    def delete(self, paths: Iterable[str]) -> None:
        keys = {self._key(path): path for path in paths}
        if keys:
            self._bucket.delete([*keys], next(iter(keys.values())))

    def sync(self, path: str) -> None:
        return  # What the service acknowledged is durable.

    @property
    def address(self) -> str:
        return self.uri("")

    def uri(self, path: str) -> str:
        return f"{self._place.root}/{self._key(path)}".rstrip("/")

    def options(self) -> dict[str, str]:
        return self._place.access.delta_options()

    def keeps_marks(self, path: str) -> bool:
        """Whether the service stores with an object which put made it. That settles a put whose answer was lost."""
        with self._bucket.translate_errors(path):
            return bool(self._bucket.find_mark(self._key(path)))

    def read_instant(self, path: str) -> float:
        """Returns when the service wrote an object, by its clock: seconds since 1970."""
        with self._bucket.translate_errors(path):
            return float(self._bucket.describe(self._key(path))["last_modified"].timestamp())

    def _require_size(self, path: str) -> int:
        """Returns the size of an object. Raises NotFoundError, StorageError."""
        key = self._key(path)
        with self._bucket.translate_errors(path):
            return int(self._bucket.describe(key)["size"])

    def _find_size(self, path: str) -> int | None:
        try:
            return self._require_size(path)
        except NotFoundError:
            return None

    def _key(self, path: str) -> str:
        """Returns the object's key. Raises InvalidInputError if it is outside the root (I26)."""
        parts = path.split("/")
        if path.startswith("/") or ".." in parts:
            raise make_outside_error(path)
        if "?" in path:
            raise InvalidInputError("PATH_INVALID", f"`{path}` contains `?`, which readers of addresses cut off.")
        below = [part for part in parts if part not in ("", ".")]
        return "/".join([*filter(None, [self._prefix]), *below])

    def _path(self, key: str) -> str:
        return key.removeprefix(f"{self._prefix}/" if self._prefix else "")
