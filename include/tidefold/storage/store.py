"""The port of all stores."""

from __future__ import annotations

import errno
import hashlib
import io
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import BinaryIO, Protocol, cast, runtime_checkable

from tidefold.errors import AlreadyExistsError, InvalidInputError, NotFoundError

# How many files a disk, or a store that says nothing else, handles at once.
_FILES_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One stored file: its path relative to the root, and its length in bytes."""

    path: str
    bytes: int


def is_lost_by_disk(error: BaseException | None) -> bool:
    """Whether the disk lost the bytes of this file (EIO): one copy is damaged; the store is available."""
    while error is not None:
        if isinstance(error, OSError) and error.errno == errno.EIO:
            return True
        error = error.__cause__
    return False


def compute_sha256(stream: BinaryIO) -> str:
    """The sha256 of the bytes of an open file."""
    return hashlib.file_digest(cast(io.BufferedReader, stream), "sha256").hexdigest()


def make_taken_error(path: str, what: str = "already exists") -> AlreadyExistsError:
    """The error of a write to a name that has other content."""
    hint = "Repeat the command. If this repeats, run `tidefold check verify`."
    return AlreadyExistsError("NAME_TAKEN", f"`{path}` {what}. tidefold overwrites no file.", hint=hint)


def make_outside_error(path: str) -> InvalidInputError:
    """The error of a path that leads out of the store."""
    hint = "If a stored document names this path, restore that document from a backup."
    return InvalidInputError("PATH_OUTSIDE_ROOT", f"`{path}` is outside the store.", hint=hint)


@runtime_checkable
class RemoteStore(Protocol):
    """What a store across a network may offer besides the methods of a Store."""

    def link_unique(self, source: str, target: str, size: int) -> str:
        """Does what `link` does, with fewer requests. `target` is a name that only these bytes ever get.

        size: the recorded length of the source.
        """
        ...

    @property
    def at_once(self) -> int:
        """Returns how many requests of one log may run at the same time."""
        ...


@runtime_checkable
class SizedStore(Protocol):
    """What a store whose listings are expensive may offer besides the methods of a Store."""

    def find_sizes(self, folder: str, paths: Sequence[str]) -> dict[str, int]:
        """Returns the sizes of these files, all below the folder. An absent file is left out.

        The number of requests does not grow with the number of other files in the folder. Those may be in the result.
        """
        ...


@runtime_checkable
class LinkingStore(Protocol):
    """What a store adds whose files can have several names (a disk)."""

    def count_names(self, path: str) -> int:
        """Returns how many names the file has, inside and outside of the store."""
        ...


@runtime_checkable
class MarkedStore(Protocol):
    """What an object store may offer besides the methods of a Store, so that it can be proved."""

    def keeps_marks(self, path: str) -> bool:
        """Whether the store keeps with an object which put made it. That settles a put whose answer was lost."""
        ...

    def read_instant(self, path: str) -> float:
        """Returns when the store wrote an object, by its clock: seconds since 1970."""
        ...


def find_sizes(store: Store, folder: str, paths: Sequence[str]) -> dict[str, int]:
    """Returns the sizes of these files, all below the folder, and perhaps of others. An absent file is left out."""
    if isinstance(store, SizedStore):
        return store.find_sizes(folder, paths)
    return {entry.path: entry.bytes for entry in store.list(folder)} if paths else {}


def count_freed(store: Store, files: Iterable[StoredObject]) -> int:
    """Returns the bytes that their deletion frees: hard links of one file count once, and only if none stays."""
    files = tuple(files)
    if not isinstance(store, LinkingStore):
        return sum(file.bytes for file in files)
    names: dict[str, list[StoredObject]] = {}
    for file in files:
        with suppress(NotFoundError):  # Deleted since it was listed.
            names.setdefault(store.identity(file.path), []).append(file)
    return sum(one.bytes for one, *more in names.values() if store.count_names(one.path) == 1 + len(more))


def files_at_once(store: Store, configured: int | None) -> int:
    """Returns how many files of one log are linked, copied or checked at the same time."""
    return configured or (store.at_once if isinstance(store, RemoteStore) else _FILES_AT_ONCE)


def logs_at_once(store: Store) -> int:
    """Returns how many logs are looked at at the same time. On a disk the answers do not make anybody wait."""
    return store.at_once if isinstance(store, RemoteStore) else 1


def delete_files(store: Store, paths: Sequence[str], threads: int = 1) -> None:
    """Deletes files, in no order. Several threads share the paths."""
    if threads == 1 or len(paths) <= 1:
        store.delete(paths)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(store.delete, [paths[number::threads] for number in range(threads)]):
            pass


def link_data_file(store: Store, source: str, target: str, size: int, copy: bool = False) -> str:
    """Does what `Store.link` does for a data file. The random part of its name makes the name unique."""
    if isinstance(store, RemoteStore):
        return store.link_unique(source, target, size)
    return store.link(source, target, copy=copy)


class Store(Protocol):
    """Named, immutable byte strings below one root. Paths are relative, with `/`. Only `replace` overwrites anything.

    Raises NotFoundError for an absent path, AlreadyExistsError for an existing one, UnknownOutcomeError if the answer
    to a write was lost, StorageError for everything else (I23: unreadable never means absent).
    """

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Returns the bytes of a file, or of a part of it."""
        ...

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Opens a seekable stream over a file."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Stores all bytes or none, durably, only if the path is free. This operation decides all races."""
        ...

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Opens a stream to a new file. A clean exit makes it complete and durable; an error deletes it.

        No other writer ever uses the path, unless for the same bytes: it has a random part. So a store may look whether
        the path is free instead of being held to it. What races is written by `put_if_absent`.
        """
        ...

    @property
    def links(self) -> bool:
        """Whether `link` makes another name for the same bytes, if possible."""
        ...

    def link(self, source: str, target: str, copy: bool = False) -> str:
        """Gives `target` the content of `source`, if possible without passing the bytes through this process.

        Returns `link` (the same bytes on disk) or `copy`. If the target already has the same bytes, it stays: `kept`.

        copy: the target gets its own bytes.
        """
        ...

    def replace(self, paths: Sequence[str]) -> AbstractContextManager[BinaryIO]:
        """Opens a stream to the new content of all these names, whatever they had before. Only repairs use it.

        Leaving it without an error makes the new bytes complete and durable. Then the names get them one after the
        other, each in one step. Other names of the old bytes keep them. An error leaves the remaining names as they
        were. S3 raises RefusedError for an existing name.
        """
        ...

    def identity(self, path: str) -> str:
        """Returns the same value for all names of one copy of the bytes: on local disks device and inode."""
        ...

    def list(self, folder: str, unfinished: bool = False) -> list[StoredObject]:
        """Returns all files below a folder, at any depth, sorted by path; empty if there is none.

        unfinished: also list what killed writers left, under its own names.
        """
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Deletes files, in no guaranteed order (S3 deletes 1,000 at once). An absent file is no error."""
        ...

    def sync(self, path: str) -> None:
        """Makes a file durable that another library wrote below the root, or the names in a folder."""
        ...

    @property
    def address(self) -> str:
        """Returns the address by which `open_store` opens this store again, also in other processes and machines."""
        ...

    def uri(self, path: str) -> str:
        """Returns the address under which Spark, deltalake and Polars find the path."""
        ...

    def options(self) -> dict[str, str]:
        """Returns the `storage_options` for deltalake and Polars, without secrets; empty for a local disk."""
        ...
