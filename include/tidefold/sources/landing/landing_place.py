"""A place where files land, what its listing says of a file, and the folder of a disk as such a place."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol

from tidefold.errors import NotFoundError, StorageError
from tidefold.storage.safe_files import UnsafeFileError, list_below, open_regular, stat_regular

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


class UnpinnedPlace(LandingPlace, Protocol):
    """A place that does not pin: a reader compares the stamps of a file before and after."""

    def find_stamp(self, name: str, stream: BinaryIO | None = None) -> Stamp:
        """The stamp of a file as it is now; with an opened file, of that one. Raises OSError."""
        ...


def is_visible(name: str) -> bool:
    """Whether a file is neither hidden nor temporary, and in no hidden folder."""
    return not name.endswith(_TEMPORARY) and not any(is_hidden(part) for part in name.split("/"))


def is_hidden(name: str) -> bool:
    """Whether the name of a file or folder is one of the tools' own, such as `_SUCCESS`."""
    return name.startswith((".", "_"))


class DiskFolder:
    """A folder of a disk. No link below it is followed."""

    pins = False

    def __init__(self, path: str) -> None:
        self._root = os.path.abspath(path)

    @property
    def address(self) -> str:
        return self._root

    def list_files(self, known: Collection[str] = ()) -> Iterator[ListedFile]:
        try:
            # List all names before reading sizes: a sink completes a file before it starts the next one. So the size of
            # a file is final once the next file is listed.
            for name in sorted(filter(is_visible, list_below(self._root, skip=is_hidden))):
                try:
                    yield ListedFile(name, self.find_stamp(name))
                except UnsafeFileError as error:
                    yield ListedFile(name, Stamp(0, 0, 0.0), error)
        except OSError as error:
            raise self._listing_error(error) from error

    def open(self, name: str, stamp: Stamp | None = None) -> BinaryIO:
        return open_regular(self._root, name)

    def find_stamp(self, name: str, stream: BinaryIO | None = None) -> Stamp:
        return _stamp_from(os.fstat(stream.fileno()) if stream else stat_regular(self._root, name))

    def find_tables(self) -> dict[str, str]:
        tables = {}
        for folder, names, _ in os.walk(self._root):
            if kind := find_kind(folder):
                tables[os.path.relpath(folder, self._root)] = kind
                names.clear()
        return dict(sorted(tables.items()))

    def _listing_error(self, error: OSError) -> NotFoundError | StorageError:
        if error.filename == self._root and isinstance(error, FileNotFoundError | NotADirectoryError):
            return NotFoundError(
                "LANDING_MISSING",
                f"The landing folder `{self._root}` does not exist.",
                hint="Check `source.path`. If nothing has landed yet, create the folder.",
            )
        return StorageError(
            "LANDING_UNREADABLE",
            f"`{error.filename or self._root}` cannot be read: {error.strerror or error}.",
            hint="Nothing was ingested, because it may contain earlier files. Check its permissions and disk, then run "
            "ingest again.",
        )


def find_kind(folder: str | os.PathLike[str]) -> str:
    """Returns which kind of table a folder of a disk is; empty: none."""
    return next((kind for kind, mark in TABLE_MARKS.items() if next(Path(folder).glob(mark), None)), "")


def find_tables_in(names: Iterable[str]) -> dict[str, str]:
    """Returns the kinds of the tables that these files belong to, by their folders."""
    paths = [PurePosixPath(name) for name in names]
    kinds = {str(p.parents[1]): kind for p in paths for kind, mark in TABLE_MARKS.items() if p.match(mark)}
    return {one: kinds[one] for one in sorted(kinds) if not any(one.startswith(f"{other}/") for other in kinds)}


def _stamp_from(stat: os.stat_result) -> Stamp:
    return Stamp(stat.st_ino, stat.st_size, stat.st_mtime)
