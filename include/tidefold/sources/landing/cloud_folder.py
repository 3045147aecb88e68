"""Objects below a prefix in S3, Azure or Google Cloud Storage as landed files.

An object is replaced as a whole, and its ETag shows that.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Collection, Iterator
from typing import Any, BinaryIO, cast

from tidefold.errors import NotFoundError
from tidefold.sources.landing.landing_place import ListedFile, ReplacedFileError, Stamp, find_tables_in, is_visible
from tidefold.sources.landing.object_folder import BLOCK, StampPage, list_names, split_names
from tidefold.storage.cloud_address import CloudAddress
from tidefold.storage.cloud_client import FAILURES, CloudBucket, explain, status_of
from tidefold.storage.object_store import RangeReader


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
        is_there = False
        for name, stamp in list_names(self._read_pages, split_names(known) if self._place.is_sorted else [("", "")]):
            is_there = True
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
        return cast(BinaryIO, io.BufferedReader(RangeReader(load, pinned.size), BLOCK))

    def find_tables(self) -> dict[str, str]:
        return find_tables_in(name for page in self._read_pages("") for name, _ in page)

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name


def _stamp_from(item: dict[str, Any]) -> Stamp:
    return Stamp(0, item["size"], item["last_modified"].timestamp(), item["e_tag"])


def _as_os_error(error: Exception, name: str) -> OSError:
    """Converts an error to the one that a file on a disk would raise."""
    if status_of(error) == 412:
        return ReplacedFileError(errno.ESTALE, "it was replaced while it was read", name)
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "there is no such object", name)
    return OSError(errno.EIO, explain(error), name)
