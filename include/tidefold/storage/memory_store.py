"""A store in this process's memory, on fsspec's memory file system: for tests and experiments."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, cast

from fsspec.implementations.memory import MemoryFileSystem

from tidefold.errors import AlreadyExistsError, NotFoundError
from tidefold.storage.store import StoredObject, make_outside_error, make_taken_error

# fsspec keeps ONE tree for the whole process, so one lock guards it.
_lock = threading.Lock()


class MemoryStore:
    """Files below `/root` of the process-wide memory file system."""

    def __init__(self, root: str) -> None:
        self._root = "/" + root.strip("/")
        self._fs = MemoryFileSystem()

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        end = None if length is None else start + length
        try:
            return cast(bytes, self._fs.cat_file(self._full(path), start=start, end=end))
        except FileNotFoundError as error:
            raise NotFoundError("NOT_FOUND", f"`{path}` does not exist.") from error

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        yield io.BytesIO(self.read(path))

    def put_if_absent(self, path: str, data: bytes) -> None:
        with _lock:
            if self._fs.exists(self._full(path)):
                raise make_taken_error(path)
            self._fs.pipe_file(self._full(path), data)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        stream = io.BytesIO()
        yield stream
        self.put_if_absent(path, stream.getvalue())

    @property
    def links(self) -> bool:
        return False

    def link(self, source: str, target: str, copy: bool = False) -> str:
        data = self.read(source)
        try:
            self.put_if_absent(target, data)
        except AlreadyExistsError:
            if self.read(target) != data:
                raise
            return "kept"
        return "copy"

    @contextmanager
    def replace(self, paths: Sequence[str]) -> Iterator[BinaryIO]:
        fulls = [self._full(path) for path in paths]
        stream = io.BytesIO()
        yield stream
        with _lock:
            for full in fulls:
                self._fs.pipe_file(full, stream.getvalue())

    def identity(self, path: str) -> str:
        return self.uri(path)

    def list(self, folder: str, unfinished: bool = False) -> list[StoredObject]:
        found = self._fs.find(self._full(folder), detail=True)
        return [StoredObject(name[len(self._root) + 1 :], info["size"]) for name, info in sorted(found.items())]

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            with _lock:
                if self._fs.exists(self._full(path)):
                    self._fs.rm_file(self._full(path))

    def sync(self, path: str) -> None:
        return

    @property
    def address(self) -> str:
        return self.uri("")

    def uri(self, path: str) -> str:
        return f"memory:/{self._full(path)}"

    def options(self) -> dict[str, str]:
        return {}

    def _full(self, path: str) -> str:
        if path.startswith("/") or ".." in path.split("/"):
            raise make_outside_error(path)
        return f"{self._root}/{path}".rstrip("/")
