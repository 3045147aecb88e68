"""A stream that writes the same bytes to a primary store and, until that fails, to a local one (C6, L2).

Only the primary counts. An error of the local store is kept as `local_error`, and costs only the copy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import BinaryIO

from tidefold.errors import AlreadyExistsError, StorageError
from tidefold.storage.store import Store

_LOGGER = logging.getLogger(__name__)


class _LocalCopy:
    """The second file. Its first error ends it, and is never raised."""

    def __init__(self, store: Store | None, path: str) -> None:
        self.error: Exception | None = None
        self._store = store
        self._path = path
        self._opened: AbstractContextManager[BinaryIO] | None = None
        self._stream: BinaryIO | None = None
        if store is not None:
            self._guard(self._open, store)

    @property
    def path(self) -> str | None:
        return self._path if self._store is not None and self.error is None else None

    def write(self, data: bytes | memoryview) -> None:
        if self._stream is not None:
            self._guard(self._stream.write, data)

    def flush(self) -> None:
        if self._stream is not None:
            self._guard(self._stream.flush)

    def finish(self, position: int) -> None:
        """Completes the copy, if both files have the same length."""
        if self._stream is not None:
            self._guard(_check_position, self._path, self._stream, position)
        if self._opened is not None:
            opened, self._opened = self._opened, None
            self._guard(opened.__exit__, None, None, None)

    def abandon(self, error: BaseException) -> None:
        """Ends the copy because of `error`. The store removes the unfinished file."""
        opened, self._opened, self._stream = self._opened, None, None
        if opened is not None:
            # The store raises `error` again, which is already being raised.
            with suppress(BaseException):
                opened.__exit__(type(error), error, error.__traceback__)

    def _open(self, store: Store) -> None:
        opened = store.create(self._path)
        self._stream = opened.__enter__()
        self._opened = opened

    def _guard(self, act: Callable[..., object], *arguments: object) -> None:
        try:
            act(*arguments)
        except Exception as error:
            _LOGGER.warning("No local copy of `%s`, the primary goes on: %s", self._path, error)
            self.error = error
            self.abandon(error)
            self._remove(error)

    def _remove(self, error: Exception) -> None:
        # An existing name belongs to a file of another writer.
        if self._store is not None and not isinstance(error, AlreadyExistsError):
            with suppress(Exception):
                self._store.delete([self._path])


class DuplicatingStream:
    """Writes to the primary, then to the local copy. Raises only errors of the primary."""

    def __init__(self, primary: BinaryIO, copy: _LocalCopy, path: str) -> None:
        self._primary = primary
        self._copy = copy
        self._path = path
        self._position = 0

    def write(self, data: bytes | memoryview, /) -> int:
        self._primary.write(data)
        self._position += len(data)
        self._copy.write(data)
        return len(data)

    def flush(self) -> None:
        self._primary.flush()
        self._copy.flush()

    def tell(self) -> int:
        return self._position

    def check_position(self) -> None:
        """Raises StorageError if the primary has another number of bytes than were written."""
        _check_position(self._path, self._primary, self._position)

    @property
    def local_path(self) -> str | None:
        """Returns the path of the local copy; None if there is none. Final after the context ended."""
        return self._copy.path

    @property
    def local_error(self) -> Exception | None:
        """Returns why there is no local copy, if one was requested."""
        return self._copy.error


@contextmanager
def create_duplicating(
    primary: Store, local: Store | None, path: str, local_path: str = ""
) -> Iterator[DuplicatingStream]:
    """Opens a stream to a new file of that path in both stores. A clean exit completes both files.

    local_path: of the local file; empty: the same.

    Raises the errors of the primary, and then leaves a file in neither store. An unknown outcome deletes nothing of the
    primary (I11): the caller, who chose the name, decides.
    """
    copy: _LocalCopy | None = None
    try:
        with primary.create(path) as stream:
            copy = _LocalCopy(local, local_path or path)
            duplicating = DuplicatingStream(stream, copy, path)
            yield duplicating
            duplicating.check_position()
    except BaseException as error:
        if copy is not None:
            copy.abandon(error)
        raise
    copy.finish(duplicating.tell())


def _check_position(path: str, stream: BinaryIO, expected: int) -> None:
    position = stream.tell()
    if position != expected:
        raise StorageError("POSITIONS_DIFFER", f"`{path}` has {position} bytes after {expected} bytes were written.")
