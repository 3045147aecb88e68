"""Objects below a prefix as landed files. An object is replaced as a whole, and its ETag shows that."""

from __future__ import annotations

import errno
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO, ClassVar, TypeAlias, TypeVar, cast

from tidefold.errors import NotFoundError
from tidefold.sources.landing.landing_place import ListedFile, ReplacedFileError, Stamp, find_tables_in, is_visible
from tidefold.storage.object_client import ObjectClient
from tidefold.storage.object_store import RangeReader

T = TypeVar("T")
Page: TypeAlias = Sequence[tuple[str, T]]
# The pages of all names after a name; after the empty name: all.
ReadPages: TypeAlias = Callable[[str], Iterable[Page[T]]]

# So many chains at once, each of at least so many names.
MOST, EACH = 8, 4000
# Names relative to the prefix, and their stamps.
StampPage: TypeAlias = list[tuple[str, Stamp]]
# The bytes of one read request. Nearly all landed files are smaller.
BLOCK = 8 << 20


class UnsortedListingError(Exception):
    """The store does not list names in order, or not from a given name on."""


def split_names(names: Collection[str], each: int = EACH, most: int = MOST) -> list[tuple[str, str]]:
    """Returns ranges of names, each after its first and up to its second name. An empty second name: no end."""
    parts = min(most, len(names) // each)
    if parts < 2:
        return [("", "")]
    ordered = sorted(names)
    ends = sorted({ordered[len(ordered) * part // parts] for part in range(1, parts)} - {""})
    return list(zip(["", *ends], [*ends, ""], strict=True))


def list_names(pages: ReadPages[T], ranges: Sequence[tuple[str, str]]) -> Iterator[tuple[str, T]]:
    """Yields every name once, in order. A store that does not list in order is listed in one chain."""
    if len(ranges) > 1:
        try:
            with ThreadPoolExecutor(len(ranges)) as pool:
                parts = list(pool.map(lambda one: _list_range(pages, *one), ranges))
        except UnsortedListingError:
            pass
        else:
            yield from (entry for part in parts for entry in part)
            return
    for page in pages(""):
        yield from page


def _list_range(pages: ReadPages[T], after: str, upto: str) -> list[tuple[str, T]]:
    entries: list[tuple[str, T]] = []
    last = after
    for page in pages(after):
        for name, entry in page:
            # The empty name is the object that stands for the folder itself.
            if name <= last and (name or last):
                raise UnsortedListingError
            if upto and name > upto:
                return entries
            entries.append((name, entry))
            last = name
    return entries


class ObjectFolder(ABC):
    """All objects below a prefix. A listing has their sizes and ETags.

    cuts: whether a listing may begin at a name.
    mark: the name of an empty object that makes an empty folder.
    """

    pins = True
    cuts: ClassVar[bool] = True
    mark: ClassVar[str] = ""

    def __init__(self, prefix: str, client: ObjectClient) -> None:
        self._prefix, self._client = prefix, client

    @property
    @abstractmethod
    def address(self) -> str: ...

    @abstractmethod
    def _read_pages(self, after: str) -> Iterator[StampPage]:
        """Yields the pages of all names after a name; after the empty name: all. Raises StorageError."""

    @abstractmethod
    def _find_stamp(self, key: str) -> Stamp:
        """Asks for one object. Raises the errors of the client."""

    @abstractmethod
    def _open_pinned(self, key: str, name: str, stamp: Stamp) -> BinaryIO:
        """Opens exactly this version of an object. Its reads raise OSError."""

    def _is_replaced(self, error: Exception) -> bool:
        """Whether a read was refused because the name has another object."""
        return self._client.status_of(error) == 412

    def _is_absent(self, error: Exception) -> bool:
        """Whether a request was refused because the name has no object."""
        return self._client.status_of(error) == 404

    def list_files(self, known: Collection[str] = ()) -> Iterator[ListedFile]:
        is_there = False
        ranges = split_names(known) if self.cuts else [("", "")]
        for name, stamp in list_names(self._read_pages, ranges):
            is_there = True
            # A "folder" that a browser of buckets made is an empty object.
            if is_visible(name) and not (stamp.size == 0 and name.endswith("/")) and name:
                yield ListedFile(name, stamp)
        if not is_there:
            raise NotFoundError(
                "LANDING_MISSING",
                f"There is no object below `{self.address}/`.",
                hint=f"Check `source.path`. If nothing has landed yet, or landed files expire, create an empty object "
                f"`{self.address}/{self.mark}`.",
            )

    def open(self, name: str, stamp: Stamp | None = None) -> BinaryIO:
        key = self._key(name)
        if stamp is None:
            try:
                stamp = self._find_stamp(key)
            except self._client.failures as error:
                raise self._as_os_error(error, name) from error
        return self._open_pinned(key, name, stamp)

    def _open_ranges(self, key: str, name: str, size: int, load: Callable[[int, int], bytes]) -> BinaryIO:
        """Opens an object whose reads are requests for parts of it. `load` raises the errors of the client."""

        def read(start: int, length: int) -> bytes:
            try:
                return load(start, length)
            except self._client.failures as error:
                if self._is_replaced(error):
                    self._find_stamp(key)  # Some services refuse the condition also where there is no object any more.
                raise

        def convert(start: int, length: int) -> bytes:
            try:
                return read(start, length)
            except self._client.failures as error:
                raise self._as_os_error(error, name) from error

        return cast(BinaryIO, io.BufferedReader(RangeReader(convert, size), BLOCK))

    def find_tables(self) -> dict[str, str]:
        return find_tables_in(name for page in self._read_pages("") for name, _ in page)

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def _as_os_error(self, error: Exception, name: str) -> OSError:
        """Converts an error to the one that a file on a disk would raise."""
        if self._is_replaced(error):
            return ReplacedFileError(errno.ESTALE, "it was replaced while it was read", name)
        if self._is_absent(error):
            return FileNotFoundError(errno.ENOENT, "there is no such object", name)
        text = " ".join(str(error).split())
        return OSError(errno.EIO, f"{self._client.name_failure(error) or type(error).__name__}: {text}", name)
