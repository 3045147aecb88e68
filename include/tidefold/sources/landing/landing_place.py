"""A place where files land, and what a listing says of a file. Each kind of place implements it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from tidefold.storage.safe_files import UnsafeFileError

_TEMPORARY = (".tmp", ".part")
# What the folder of a table has, by the kind of the table.
TABLE_MARKS = {"Delta": "_delta_log/*", "Hudi": ".hoodie/*", "Iceberg": "metadata/*.metadata.json"}


@dataclass(frozen=True, slots=True)
class Stamp:
    """What distinguishes a file from one that replaced it.

    inode: the inode of a file on a disk; 0 for an object.
    size: length in bytes.
    changed: modification time in seconds.
    etag: the ETag of an object; empty for a file on a disk.
    """

    inode: int
    size: int
    changed: float
    etag: str = ""

    def holds(self, now: Stamp) -> bool:
        """Whether the file is still the same one: a file on a disk unchanged or grown, an object unchanged."""
        if self.etag:
            return self.etag == now.etag
        return self.inode == now.inode and (self == now or now.size > self.size)


class ReplacedFileError(OSError):
    """Another object has the name of a listed one."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of a listing. `unsafe`: why it must not be opened; its stamp has no meaning then."""

    name: str
    stamp: Stamp
    unsafe: UnsafeFileError | None = None


class LandingPlace(Protocol):
    """A place where files land. Names are relative to it, with `/`.

    pins: an opened file returns the bytes of its stamp or raises ReplacedFileError, even if the name gets another file.
    """

    pins: bool

    @property
    def address(self) -> str:
        """Its absolute path or address, without a slash at the end."""
        ...

    def list_files(self, known: Collection[str] = ()) -> Iterator[ListedFile]:
        """Lists all files that are neither hidden nor temporary, sorted by name.

        known: names of files that were ingested. A store cuts a long listing there, and lists the parts at once.

        Raises NotFoundError if there is no such folder, StorageError if a part of it cannot be read, because that part
        may have files to ingest first.
        """
        ...

    def open(self, name: str, stamp: Stamp | None = None) -> BinaryIO:
        """Opens a file; with a stamp, the listed version of it. Raises OSError."""
        ...

    def find_tables(self) -> dict[str, str]:
        """The kinds of the tables below it, by their folders."""
        ...

    @property
    def options(self) -> dict[str, str] | None:
        """The storage options of deltalake for such a table."""
        ...


def is_visible(name: str) -> bool:
    """Whether a file is neither hidden nor temporary, and in no hidden folder."""
    return not name.endswith(_TEMPORARY) and not any(is_hidden(part) for part in name.split("/"))


def is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))
