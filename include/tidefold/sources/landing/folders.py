"""Access to landed files: a folder on this machine's disks, or objects below a prefix in an object store.

All code that lists or opens landed files uses this module.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol, TypeAlias

from tidefold.errors import NotFoundError, StorageError
from tidefold.storage import require_extra
from tidefold.storage.azure.address import SCHEMES as AZURE_SCHEMES
from tidefold.storage.gcs.address import SCHEME as GCS_SCHEME
from tidefold.storage.safe_files import UnsafeFileError, list_below, open_regular, stat_regular

# A path, or the address of a folder in an object store, such as `s3://bucket/prefix`.
Place: TypeAlias = str | os.PathLike[str]
_TEMPORARY = (".tmp", ".part")
_DELTA_LOG = "_delta_log"


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

    def find_tables(self) -> list[str]:
        """The folders of Delta tables below it."""
        ...

    @property
    def options(self) -> dict[str, str] | None:
        """The storage options of deltalake for such a table."""
        ...


def folder_at(address: Place) -> LandingPlace:
    """The landing folder at a path, or at an address such as `s3://bucket/prefix`. Raises InvalidInputError."""
    text = os.fspath(address)
    scheme = text.partition("://")[0] if "://" in text else ""
    # Imported here, so that only logs in an object store load its client.
    if scheme == "s3":
        from tidefold.sources.landing.s3_folder import S3Folder

        return S3Folder(text)
    if scheme in AZURE_SCHEMES:
        with require_extra("azure", "Azure"):
            from tidefold.sources.landing.azure_folder import AzureFolder
        return AzureFolder(text)
    if scheme == GCS_SCHEME:
        with require_extra("gcs", "Google Cloud Storage"):
            from tidefold.sources.landing.gcs_folder import GcsFolder
        return GcsFolder(text)
    return DiskFolder(text)


def name_at(address: Place) -> str:
    """The last part of a folder's path or address."""
    return folder_at(address).address.rpartition("/")[2]


def is_visible(name: str) -> bool:
    """Whether a file is neither hidden nor temporary, and in no hidden folder."""
    return not name.endswith(_TEMPORARY) and not any(_is_hidden(part) for part in name.split("/"))


def _is_hidden(name: str) -> bool:
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
            # List all names before reading sizes: a sink completes a file before it starts the next one. So once the
            # next
            # file is listed, the size of a file is final.
            for name in sorted(filter(is_visible, list_below(self._root, skip=_is_hidden))):
                try:
                    yield ListedFile(name, stamp_of(self._root, name))
                except UnsafeFileError as error:
                    yield ListedFile(name, Stamp(0, 0, 0.0), error)
        except OSError as error:
            raise self._listing_error(error) from error

    def open(self, name: str, stamp: Stamp | None = None) -> BinaryIO:
        return open_regular(self._root, name)

    def find_tables(self) -> list[str]:
        found = []
        for folder, names, _ in os.walk(self._root):
            if _DELTA_LOG in names:
                found.append(os.path.relpath(folder, self._root))
                names.clear()
        return sorted(found)

    @property
    def options(self) -> dict[str, str] | None:
        return None

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


def stamp_of(root: str, name: str) -> Stamp:
    """The stamp of a file of a folder on a disk as it is now. Raises UnsafeFileError, OSError."""
    return stamp_from(stat_regular(root, name))


def stamp_from(found: os.stat_result) -> Stamp:
    return Stamp(found.st_ino, found.st_size, found.st_mtime)
