"""What the stores in all object stores share: streams, copies to free names, paths and keys."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, BinaryIO, Protocol, cast

from tidefold.errors import AlreadyExistsError, NotFoundError, RefusedError
from tidefold.storage.object_client import REQUESTS_AT_ONCE, ObjectClient
from tidefold.storage.store import make_outside_error

# Objects up to this size are one request. The parts of larger ones have this size.
PART = 16 << 20
# Bytes of one read of a comparison, or of a copy through this process.
READ = 8 << 20
_NO_SUCH_RANGE = 416


class RangeReader(io.RawIOBase):
    """Reads ranges of an object. A buffer above it asks for large ones.

    load: returns the bytes from a start, at most so many.
    """

    def __init__(self, load: Callable[[int, int], bytes], size: int) -> None:
        super().__init__()
        self._load, self._size, self._at = load, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), self._size - self._at)
        if length <= 0:
            return 0
        data = self._load(self._at, length)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


class PartUpload(Protocol):
    """An upload in parts. The object is invisible until the upload is completed."""

    def add(self, data: bytes) -> None:
        """Sends the next part."""
        ...

    def complete(self) -> None:
        """Makes the object visible if its name is free."""
        ...

    def abort(self) -> None:
        """Deletes the parts, if the store can."""
        ...


class UploadStream(io.BufferedIOBase):
    """A file that is written front to back: one request if it is small, else parts during the write.

    put: stores all bytes with one conditional request.
    begin: begins an upload in parts.
    """

    def __init__(self, put: Callable[[bytes], None], begin: Callable[[], PartUpload]) -> None:
        super().__init__()
        self._put, self._begin = put, begin
        self._buffer = bytearray()
        self._sent = 0
        self._upload: PartUpload | None = None

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
        if self._upload is None:
            self._upload = self._begin()
        self._upload.add(part)
        del self._buffer[: len(part)]
        self._sent += len(part)

    def complete(self) -> None:
        """Makes the file visible if its name is free, after everything was written."""
        if self._upload is None:
            self._put(bytes(self._buffer))
            return
        if self._buffer:
            self._send(bytes(self._buffer))
        self._upload.complete()

    def abort(self) -> None:
        """Deletes everything that was written."""
        if self._upload is not None:
            self._upload.abort()


class ObjectStore(ABC):
    """Objects below a prefix. An object appears under its name only when it is complete."""

    def __init__(self, prefix: str, client: ObjectClient) -> None:
        self._prefix, self._client = prefix, client

    @abstractmethod
    def uri(self, path: str) -> str: ...

    @abstractmethod
    def _load(self, key: str, start: int, length: int | None) -> bytes:
        """Returns a part that is not empty, or the whole. May raise the error of a range that begins behind the end."""

    @abstractmethod
    def _put(self, key: str, path: str, data: bytes) -> None:
        """Sends one conditional request. Raises AlreadyExistsError, UnknownOutcomeError, StorageError."""

    @abstractmethod
    def _begin_upload(self, key: str, path: str) -> PartUpload: ...

    @abstractmethod
    def _copy(self, source: str, target: str, size: int) -> None:
        """Copies an object to a free name. Raises as `_put`, NotFoundError."""

    @abstractmethod
    def _copy_unique(self, source: str, target: str, size: int) -> None:
        """Does what `_copy` does, to a name that only these bytes ever get."""

    @abstractmethod
    def _read_page(self, folder: str) -> tuple[dict[str, int], bool]:
        """Returns the sizes of the first objects below a folder, and whether there are more."""

    @abstractmethod
    def _read_size(self, key: str) -> int:
        """Returns the size of an object. Raises the errors of the client."""

    @abstractmethod
    def _make_no_replace(self, path: str) -> RefusedError:
        """Returns the error of a replacement of an object."""

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        if length == 0:
            self._require_size(path)
            return b""
        with self._client.translate_errors(path):
            try:
                return self._load(self._key(path), start, length)
            except self._client.failures as error:
                if self._client.status_of(error) == _NO_SUCH_RANGE:
                    return b""  # It begins behind the end.
                raise

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        ranges = RangeReader(lambda start, length: self.read(path, start, length), self._require_size(path))
        with io.BufferedReader(ranges, READ) as stream:
            yield cast(BinaryIO, stream)

    def put_if_absent(self, path: str, data: bytes) -> None:
        if len(data) > PART:
            with self.create(path) as stream:
                stream.write(data)
        else:
            self._put(self._key(path), path, data)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        key = self._key(path)
        stream = UploadStream(lambda data: self._put(key, path, data), lambda: self._begin_upload(key, path))
        try:
            yield cast(BinaryIO, stream)
        except BaseException:
            stream.abort()
            raise
        stream.complete()

    @property
    def links(self) -> bool:
        return False

    def link(self, source: str, target: str, copy: bool = False) -> str:
        self._key(target)  # Refused before any request, if it is outside the root.
        return self._keep_same(source, target, self._require_size(source), self._copy)

    def link_unique(self, source: str, target: str, size: int) -> str:
        return self._keep_same(source, target, size, self._copy_unique)

    def _keep_same(self, source: str, target: str, size: int, copy: Callable[[str, str, int], None]) -> str:
        try:
            copy(source, target, size)
        except AlreadyExistsError:
            if not self._is_same(source, target, size):
                raise
            return "kept"
        return "copy"

    def _is_same(self, one: str, other: str, size: int) -> bool:
        if self._find_size(other) != size:
            return False
        return all(self.read(one, start, READ) == self.read(other, start, READ) for start in range(0, size, READ))

    def _stream(self, source: str, target: str) -> None:
        """Copies an object through this process."""
        with self.open(source) as old, self.create(target) as new:
            while part := old.read(READ):
                new.write(part)

    @property
    def at_once(self) -> int:
        return REQUESTS_AT_ONCE

    def find_sizes(self, folder: str, paths: Sequence[str]) -> dict[str, int]:
        """Returns the sizes of files. One request shows a small folder. In a larger one, each file costs a request."""
        if not paths:
            return {}
        with self._client.translate_errors(folder):
            listed, has_more = self._read_page(folder)
        left = [path for path in paths if path not in listed] if has_more else []
        with ThreadPoolExecutor(self.at_once) as pool:
            sizes = zip(left, pool.map(self._find_more, left), strict=True)
            return listed | {path: size for path, size in sizes if size is not None}

    def _find_more(self, path: str) -> int | None:
        """Returns the size of an object of a bucket that has just been listed, with one request; None: it is absent."""
        with self._client.translate_errors(path):
            try:
                return self._read_size(self._key(path))
            except self._client.failures as error:
                if self._client.status_of(error) != 404:
                    raise
                return None

    @contextmanager
    def replace(self, paths: Sequence[str]) -> Iterator[BinaryIO]:
        """Fills free names only: many object stores cannot replace exactly the object that was read."""
        taken = [path for path in paths if self._find_size(path) is not None]
        if taken:
            raise self._make_no_replace(taken[0])
        with self.create(paths[0]) as stream:
            yield stream
        for path in paths[1:]:
            self.link(paths[0], path)

    def identity(self, path: str) -> str:
        return self.uri(path)

    def sync(self, path: str) -> None:
        return  # What the service acknowledged is durable.

    @property
    def address(self) -> str:
        return self.uri("")

    def keeps_marks(self, path: str) -> bool:
        """Whether the service stores with an object which put made it. That settles a put whose answer was lost."""
        with self._client.translate_errors(path):
            return bool(self._client.find_put_mark(self._key(path)))

    def _require_size(self, path: str) -> int:
        """Returns the size of an object. Raises NotFoundError, StorageError."""
        key = self._key(path)
        with self._client.translate_errors(path):
            return self._read_size(key)

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
        below = [part for part in parts if part not in ("", ".")]
        return "/".join([*filter(None, [self._prefix]), *below])

    def _path(self, key: str) -> str:
        return key.removeprefix(f"{self._prefix}/" if self._prefix else "")
