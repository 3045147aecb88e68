"""A store in a dict: it can be copied at once, and stopped at any call. It passes the tests of `test_store.py`."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from tidefold.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from tidefold.storage import StoredObject


class DictStore:
    """`files` are complete. `unfinished` has what killed writers left."""

    def __init__(self, files: Mapping[str, bytes] | None = None, unfinished: Mapping[str, bytes] | None = None) -> None:
        self.files, self.unfinished = dict(files or {}), dict(unfinished or {})
        self._lock = threading.Lock()

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        try:
            data = self.files[_inside(path)]
        except KeyError as error:
            raise NotFoundError("NOT_FOUND", f"`{path}` does not exist.") from error
        return data[start : None if length is None else start + length]

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        yield io.BytesIO(self.read(path))

    def put_if_absent(self, path: str, data: bytes) -> None:
        with self._lock:
            if _inside(path) in self.files:
                raise AlreadyExistsError("NAME_TAKEN", f"`{path}` exists already.")
            self.files[path] = bytes(data)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        _inside(path)
        stream = io.BytesIO()
        yield stream
        self.put_if_absent(path, stream.getvalue())

    @property
    def links(self) -> bool:
        return True

    def link(self, source: str, target: str, copy: bool = False) -> str:
        data = self.read(source)
        if self.files.get(_inside(target), data) != data:
            raise AlreadyExistsError("NAME_TAKEN", f"`{target}` exists and is not `{source}`.")
        kept = target in self.files
        self.files[target] = data
        return "kept" if kept else "link"

    @contextmanager
    def replace(self, paths: Sequence[str]) -> Iterator[BinaryIO]:
        wanted = [_inside(path) for path in paths]
        stream = io.BytesIO()
        yield stream
        with self._lock:
            self.files.update(dict.fromkeys(wanted, stream.getvalue()))

    def identity(self, path: str) -> str:
        return _inside(path)

    def list(self, folder: str, unfinished: bool = False) -> list[StoredObject]:
        below = f"{_inside(folder)}/" if folder else ""
        found = {**self.files, **(self.unfinished if unfinished else {})}
        return [StoredObject(path, len(found[path])) for path in sorted(found) if path.startswith(below)]

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.files.pop(_inside(path), None)
            self.unfinished.pop(path, None)

    def sync(self, path: str) -> None:
        return

    @property
    def address(self) -> str:
        return self.uri("")

    def uri(self, path: str) -> str:
        return f"/dict/{_inside(path)}".rstrip("/")

    def options(self) -> dict[str, str]:
        return {}


def _inside(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise InvalidInputError("PATH_OUTSIDE_ROOT", f"`{path}` lies outside the store.")
    return path
