"""Objects below a prefix in S3 as landed files. An object is replaced as a whole, and its ETag shows that."""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, TypeAlias, TypeVar, cast

from s3fs.core import S3File

from tidefold.errors import NotFoundError
from tidefold.sources.landing.folders import ListedFile, ReplacedFileError, Stamp, is_visible
from tidefold.storage.s3.address import S3Address, S3Endpoint
from tidefold.storage.s3.client import FAILURES, Bucket, code_of

T = TypeVar("T")
Page: TypeAlias = Sequence[tuple[str, T]]
# The pages of all names after a name; after the empty name: all.
ReadPages: TypeAlias = Callable[[str], Iterable[Page[T]]]

# So many chains at once, each of at least so many names.
MOST, EACH = 8, 4000


class UnsortedListingError(Exception):
    """The store does not list names in order, or not from a given name on."""


def split_names(known: Collection[str], each: int = EACH, most: int = MOST) -> list[tuple[str, str]]:
    """Returns ranges of names, each after its first and up to its second name. An empty second name: no end."""
    parts = min(most, len(known) // each)
    if parts < 2:
        return [("", "")]
    ordered = sorted(known)
    ends = sorted({ordered[len(ordered) * part // parts] for part in range(1, parts)} - {""})
    return list(zip(["", *ends], [*ends, ""], strict=True))


def list_names(pages: ReadPages[T], ranges: Sequence[tuple[str, str]]) -> Iterator[tuple[str, T]]:
    """Yields every name once, in order. A store that does not list in order is listed in one chain."""
    if len(ranges) > 1:
        try:
            with ThreadPoolExecutor(len(ranges)) as pool:
                found = list(pool.map(lambda one: _list_range(pages, *one), ranges))
        except UnsortedListingError:
            pass
        else:
            yield from (entry for part in found for entry in part)
            return
    for page in pages(""):
        yield from page


def _list_range(pages: ReadPages[T], after: str, upto: str) -> list[tuple[str, T]]:
    found: list[tuple[str, T]] = []
    last = after
    for page in pages(after):
        for name, entry in page:
            # The empty name is the object that stands for the folder itself.
            if name <= last and (name or last):
                raise UnsortedListingError
            if upto and name > upto:
                return found
            found.append((name, entry))
            last = name
    return found


# The bytes of one read request. Nearly all landed files are smaller.
_BLOCK = 8 << 20
_DELTA_LOG = "_delta_log/"


class S3Folder:
    """All objects below a prefix. One request lists 1,000 of them, with size and ETag."""

    pins = True

    def __init__(self, address: str) -> None:
        self._place = S3Address.parse(address)
        self._bucket = Bucket(self._place.bucket)

    @property
    def address(self) -> str:
        return f"s3://{self._place.bucket}/{self._place.prefix}".rstrip("/")

    def list_files(self, known: Collection[str] = ()) -> Iterator[ListedFile]:
        is_there = False
        for name, item in list_names(self._read_pages, split_names(known)):
            is_there = True
            # A "folder" that a browser of buckets made is an empty object.
            if is_visible(name) and not (item["Size"] == 0 and name.endswith("/")) and name:
                yield ListedFile(name, _stamp_from(item, item["Size"]))
        if not is_there:
            raise NotFoundError(
                "LANDING_MISSING",
                f"There is no object below `{self.address}/`.",
                hint=f"Check `source.path`. If nothing has landed yet, or landed files expire, create an empty object "
                f"`{self.address}/`.",
            )

    def open(self, name: str, stamp: Stamp | None = None) -> BinaryIO:
        key = self._key(name)
        if stamp is None:
            try:
                found = self._bucket.call("head_object", Key=key)
            except FAILURES as error:
                raise _as_os_error(error, name) from error
            stamp = _stamp_from(found, found["ContentLength"])
        return cast(BinaryIO, _PinnedObject(self._bucket, key, name, stamp))

    def find_tables(self) -> list[str]:
        names = (name for page in self._read_pages("") for name, _ in page)
        found = {name.partition(_DELTA_LOG)[0] for name in names if f"/{_DELTA_LOG}" in f"/{name}"}
        folders = sorted(folder.rstrip("/") or "." for folder in found if not folder or folder.endswith("/"))
        return [one for one in folders if not any(one != other and one.startswith(f"{other}/") for other in folders)]

    @property
    def options(self) -> dict[str, str] | None:
        return S3Endpoint.of().delta_options()

    def _read_pages(self, after: str) -> Iterator[list[tuple[str, dict[str, Any]]]]:
        prefix = self._key("")
        begin = {"StartAfter": f"{prefix}{after}"} if after else {}
        with self._bucket.translate_errors(self.address):
            for page in self._bucket.pages("list_objects_v2", Prefix=prefix, **begin):
                yield [(item["Key"].removeprefix(prefix), item) for item in page.get("Contents", [])]

    def _key(self, name: str) -> str:
        return f"{self._place.prefix}/{name}" if self._place.prefix else name


def _stamp_from(found: dict[str, Any], size: int) -> Stamp:
    return Stamp(0, size, found["LastModified"].timestamp(), found["ETag"])


class _PinnedObject(S3File):  # type: ignore[misc]
    """An object that is read in parts. Each request requires the ETag, so S3 refuses it after a replacement."""

    def __init__(self, bucket: Bucket, key: str, name: str, stamp: Stamp) -> None:
        path = f"{bucket.name}/{key}"
        self._name = name
        # With these details s3fs sends no request of its own.
        self._details = {"name": path, "size": stamp.size, "ETag": stamp.etag, "type": "file"}
        super().__init__(bucket.files, path, "rb", block_size=_BLOCK, size=stamp.size)
        self.key = key
        self.read_kw = {"IfMatch": stamp.etag}

    def _fetch_range(self, start: int, end: int) -> bytes:
        try:
            return cast(bytes, super()._fetch_range(start, end))
        except FAILURES as error:
            raise _as_os_error(error, self._name) from error


def _as_os_error(error: Exception, name: str) -> OSError:
    """Converts an error to the one that a file on a disk would raise."""
    if code_of(error) in ("PreconditionFailed", "412"):
        return ReplacedFileError(errno.ESTALE, "it was replaced while it was read", name)
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "there is no such object", name)
    text = " ".join(str(error).split())
    return OSError(errno.EIO, f"{code_of(error) or type(error).__name__}: {text}", name)
