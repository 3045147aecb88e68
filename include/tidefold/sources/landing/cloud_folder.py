"""Objects below a prefix in S3, Azure or Google Cloud Storage as landed files.

An object is replaced as a whole, and its ETag shows that.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, TypeAlias, TypeVar

from tidefold.errors import NotFoundError, StorageError
from tidefold.sources.landing.landing_place import ListedFile, ReplacedFileError, Stamp, find_tables_in, is_visible
from tidefold.storage.cloud_address import CloudAddress
from tidefold.storage.cloud_client import FAILURES, UNKNOWN_KEY, CloudBucket, code_of, explain, status_of
from tidefold.storage.range_reader import open_ranges

T = TypeVar("T")
Page: TypeAlias = Sequence[tuple[str, T]]
# The pages of all names after a name; after the empty name: all.
ReadPages: TypeAlias = Callable[[str], Iterable[Page[T]]]

# So many chains at once, each of at least so many names.
MOST, EACH = 8, 4000
# Names relative to the prefix, and their stamps.
StampPage: TypeAlias = list[tuple[str, Stamp]]


class CloudFolder:
    """All objects below a prefix. A listing has their sizes and ETags."""

    pins = True

    def __init__(self, address: str) -> None:
        self._place, self._prefix = CloudAddress.parse(address)
        self._bucket = CloudBucket(self._place)

    @property
    def address(self) -> str:
        return f"{self._place.root}/{self._prefix}".rstrip("/")

    def list_files(self, known: Collection[str] = ()) -> Iterator[ListedFile]:
        is_there, seen = False, set[str]()
        for name, stamp in list_names(self._read_pages, split_names(known) if self._place.is_sorted else [("", "")]):
            is_there = True
            if not self._prefix:  # obstore lists `/a` in the root of a bucket as `a`.
                if name in seen:
                    message = f"`{self.address}` has two objects that are listed as `{name}`: one name has a `/` more."
                    hint = "Give that object another name, or delete it."
                    raise StorageError("STORE_KEY", message, hint=hint)
                seen.add(name)
            # A "folder" that a browser of buckets made is an empty object, which is listed without its last slash.
            if is_visible(name) and (stamp.size or self._exists(name)):
                yield ListedFile(name, stamp)
        if not is_there:
            mark = "" if self._place.is_sorted else ".keep"  # The name of an object in Azure must not end with a slash.
            raise NotFoundError(
                "LANDING_MISSING",
                f"There is no object below `{self.address}/`.",
                hint=f"Check `source.path`. If nothing has landed yet, or landed files expire, create an empty object "
                f"`{self.address}/{mark}`.",
            )

    def _read_pages(self, after: str) -> Iterator[StampPage]:
        """Yields the pages of all names after a name; after the empty name: all. Raises StorageError."""
        prefix = self._key("")
        with self._bucket.translate_errors(self.address):
            for page in self._bucket.read_pages(self._prefix, f"{prefix}{after}" if after else ""):
                stamps = [(item["path"].removeprefix(prefix), _stamp_from(item)) for item in page]
                yield stamps if self._place.is_sorted else sorted(stamps, key=lambda entry: entry[0])

    def _exists(self, name: str) -> bool:
        with self._bucket.translate_errors(name):
            try:
                self._bucket.describe(self._key(name))
            except FileNotFoundError:
                return False
        return True

    def open(self, name: str, stamp: Stamp | None = None) -> BinaryIO:
        key = self._key(name)

        def load(start: int, length: int) -> bytes:
            try:
                try:
                    return self._bucket.load(key, start, length, pinned.etag)
                except FAILURES as error:
                    if status_of(error) == 412:
                        self._bucket.describe(key)  # Some services refuse the condition also where no object is left.
                    raise
            except FAILURES as error:
                raise _as_os_error(error, name) from error

        try:
            pinned = stamp or _stamp_from(self._bucket.describe(key))
        except FAILURES as error:
            raise _as_os_error(error, name) from error
        return open_ranges(load, pinned.size)

    def find_tables(self) -> dict[str, str]:
        return find_tables_in(name for page in self._read_pages("") for name, _ in page)

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name


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


def _stamp_from(item: dict[str, Any]) -> Stamp:
    return Stamp(0, item["size"], item["last_modified"].timestamp(), item["e_tag"])


def _as_os_error(error: Exception, name: str) -> OSError:
    """Converts an error to the one that a file on a disk would raise."""
    if status_of(error) == 412:
        return ReplacedFileError(errno.ESTALE, "it was replaced while it was read", name)
    if isinstance(error, FileNotFoundError) and code_of(error) not in UNKNOWN_KEY:
        return FileNotFoundError(errno.ENOENT, "there is no such object", name)
    return OSError(errno.EIO, explain(error), name)
