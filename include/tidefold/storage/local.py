"""A store on a local disk. fsspec reads and lists; what must be atomic and durable is asked of the kernel directly,
because fsspec's local transaction is a move without fsync.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from fsspec.implementations.local import LocalFileSystem

from tidefold.lifecycle.errors import AlreadyExistsError, InvalidInputError, NotFoundError, StorageError
from tidefold.storage.store import Entry

_UNFINISHED = ".part"


class LocalStore:
    """Files below `root`. A file appears under its name only when it is complete and on disk."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._fs = LocalFileSystem()

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        end = None if length is None else start + length
        with _typed(path):
            return cast(bytes, self._fs.cat_file(self._full(path), start=start, end=end))

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        with _typed(path):
            stream = cast(BinaryIO, self._fs.open(self._full(path), "rb"))
        with stream:
            yield stream

    def put_if_absent(self, path: str, data: bytes) -> None:
        with self.create(path) as stream:
            stream.write(data)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        final = self._full(path)
        part = f"{final}.{uuid.uuid4().hex}{_UNFINISHED}"
        with _typed(path):
            self._make_folder(os.path.dirname(final))
        try:
            with _typed(path), open(part, "xb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            with _typed(path):
                # A hard link fails where a rename would replace: the conditional put of local disks.
                os.link(part, final)
        finally:
            _unlink(part)
        with _typed(path):
            _sync_folder(os.path.dirname(final))

    def link(self, source: str, target: str) -> str:
        final = self._full(target)
        with _typed(source):
            self._make_folder(os.path.dirname(final))
            try:
                os.link(self._full(source), final)
            except FileExistsError:
                return self._kept(source, target)
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.EMLINK, errno.EPERM):
                    raise
                return self._copy(source, target)
            _sync_folder(os.path.dirname(final))
        return "link"

    def _kept(self, source: str, target: str) -> str:
        if os.path.getsize(self._full(source)) != os.path.getsize(self._full(target)):
            raise AlreadyExistsError("NAME_TAKEN", f"`{target}` exists and is not `{source}`.")
        return "kept"

    def _copy(self, source: str, target: str) -> str:
        with self.open(source) as old, self.create(target) as new:
            shutil.copyfileobj(old, new, 1 << 20)
        return "copy"

    def list(self, folder: str, unfinished: bool = False) -> list[Entry]:
        with _typed(folder):
            found = self._fs.find(self._full(folder), detail=True)
        entries = [
            Entry(os.path.relpath(name, self.root), info["size"])
            for name, info in found.items()
            if unfinished or not name.endswith(_UNFINISHED)
        ]
        return sorted(entries, key=lambda e: e.path)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            with _typed(path):
                _unlink(self._full(path))

    def sync(self, path: str) -> None:
        full = self._full(path)
        with _typed(path):
            with open(full, "rb") as stream:
                os.fsync(stream.fileno())
            _sync_folder(os.path.dirname(full))

    def uri(self, path: str) -> str:
        return self._full(path)

    def _full(self, path: str) -> str:
        """The absolute path, or InvalidInputError when it would lie outside the root (I26)."""
        full = os.path.normpath(self.root / path)
        if os.path.isabs(path) or not (full == str(self.root) or full.startswith(f"{self.root}{os.sep}")):
            raise InvalidInputError("PATH_OUTSIDE_ROOT", f"`{path}` lies outside the store.")
        return full

    def _make_folder(self, folder: str) -> None:
        """Makes a folder and syncs each new one into its parent, else a crash could lose it with what is in it."""
        missing = []
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for new in reversed(missing):
            os.makedirs(new, exist_ok=True)
            _sync_folder(os.path.dirname(new))


@contextmanager
def _typed(path: str) -> Iterator[None]:
    """Turns what the system says into the errors of the Store port."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError("NOT_FOUND", f"`{path}` does not exist.") from error
    except FileExistsError as error:
        raise AlreadyExistsError("NAME_TAKEN", f"`{path}` exists already.") from error
    except StorageError:
        raise
    except OSError as error:
        raise StorageError("STORAGE", f"`{path}`: {error.strerror or error}.") from error


def _unlink(full: str) -> None:
    try:
        os.unlink(full)
    except FileNotFoundError:
        return


def _sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
