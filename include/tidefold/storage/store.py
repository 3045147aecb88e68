"""The port to bytes: everything that tidefold reads or writes goes through a Store."""

from __future__ import annotations

import errno
import hashlib
import io
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Protocol, cast


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One stored file: its path relative to the root, and its length in bytes."""

    path: str
    bytes: int


def is_lost_by_disk(error: BaseException | None) -> bool:
    """Whether the disk lost the bytes of this file (EIO): damage of one copy, and no store that does not answer."""
    while error is not None:
        if isinstance(error, OSError) and error.errno == errno.EIO:
            return True
        error = error.__cause__
    return False


def compute_sha256(stream: BinaryIO) -> str:
    """The sha256 of the bytes of an open file."""
    return hashlib.file_digest(cast(io.BufferedReader, stream), "sha256").hexdigest()


class Store(Protocol):
    """Named, immutable byte strings below one root. Paths are relative, with `/`; nothing is ever overwritten, but by
    `replace`.

    Raises NotFoundError for an absent path, AlreadyExistsError for a taken one, UnknownOutcomeError when the answer
    to a write was lost, StorageError for everything else (I23: unreadable is never "absent").
    """

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """The bytes of a file, or of a part of it."""
        ...

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A seekable stream over a file."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Stores all bytes or none, durably, only if the path is free: the one operation that decides races."""
        ...

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A stream to a new file; leaving it without an error makes it complete and durable, an error removes it."""
        ...

    @property
    def links(self) -> bool:
        """Whether `link` makes one more name for the same bytes, where it can."""
        ...

    def link(self, source: str, target: str, copy: bool = False) -> str:
        """Makes `target` hold what `source` holds, without passing the bytes through here where the store can; with
        `copy` as bytes of its own.

        Answers how: `link` (same bytes on disk) or `copy`. An existing target with the same bytes is left: `kept`.
        """
        ...

    def replace(self, paths: Sequence[str]) -> AbstractContextManager[BinaryIO]:
        """A stream to what all these names hold afterwards, whatever they held: the one door for repair.

        Leaving it without an error makes the new bytes complete and durable, and then gives them one name after the
        other, each in one step; what other names hold of the old bytes stays. An error leaves the names not yet given
        as they were. S3 raises RefusedError for a name that is taken.
        """
        ...

    def identity(self, path: str) -> str:
        """Names of one and the same copy of the bytes answer the same: on local disks device and inode."""
        ...

    def list(self, folder: str, unfinished: bool = False) -> list[StoredObject]:
        """All files below a folder, at any depth, sorted by path; empty when there is none.

        `unfinished` also names what killed writers left behind under names of its own.
        """
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Removes files, in no promised order (S3 takes 1,000 at once); one that is already gone is no error."""
        ...

    def sync(self, path: str) -> None:
        """Makes a file durable that another library wrote below the root, or a folder's names."""
        ...

    def uri(self, path: str) -> str:
        """The address under which Spark, deltalake and Polars find the path."""
        ...

    def options(self) -> dict[str, str]:
        """What deltalake and Polars need beside `uri` (`storage_options`); holds no secret, empty for a local disk."""
        ...
