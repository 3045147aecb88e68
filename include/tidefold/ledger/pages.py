"""Splits lists that grow with a log into immutable pages named by their content, so that a ledger version stays small.

A page has the items of one block of numbers: 32 of them, or 64, 128 and so on. Two full neighbours become one page, so
a list of n items has about log2(n) pages. Pages do not change when the oldest items are truncated: the version says
how many items of the first page it leaves out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from tidefold.domain.log_state import ChangeSet, LandedFileRecord, LogState, Snapshot
from tidefold.domain.paths import LogPaths
from tidefold.errors import AlreadyExistsError
from tidefold.ledger.serialization import decode, digest_of, read_named, require_checksum
from tidefold.ledger.stored_form import encode
from tidefold.pause_gc import pause_collection
from tidefold.storage import Store

Chunk = tuple[Any, ...]
_LEAST = 32
# A page that holds more is slow to write again when one of its items changes.
_MOST = 32_768
_READERS = 16


@dataclass(frozen=True, slots=True)
class _PagedList:
    """A list of the state that is stored in pages.

    number: returns the number of an item; numbers rise.
    kind: the type of a page.
    most: the most numbers in one page.
    """

    number: Callable[[Any], int]
    kind: Any
    most: int = _MOST


_PAGED = {
    "change_sets": _PagedList(lambda c: c.sqn, tuple[ChangeSet, ...]),
    "landed": _PagedList(lambda entry: entry.number, tuple[LandedFileRecord, ...]),
    # Snapshots change their state after they are written.
    "snapshots": _PagedList(lambda s: s.id, tuple[Snapshot, ...], most=256),
}


@dataclass(frozen=True, slots=True)
class PageNames:
    """The pages of a ledger version.

    names: the sha256 of each page, by list, oldest items first.
    skipped: how many items of a list's first page the list no longer has.
    """

    names: dict[str, list[str]]
    skipped: dict[str, int]


class Pages:
    """Splits a state into pages and its recent rest, and joins it again.

    known: pages of this store by path. Others that read the store may share them, because pages never change.
    """

    def __init__(self, store: Store, log: str, known: dict[str, Chunk]) -> None:
        self._store = store
        self._paths = LogPaths(log)
        self._chunks = known
        # The ledger version that was read last, and its pages; 0: there is none.
        self._newest = 0
        self._names: dict[str, list[str]] = {}

    def split(self, state: LogState) -> tuple[PageNames, LogState]:
        """Writes the pages that do not exist yet. Returns their names and the state without their items.

        The state must be the next one (`is_next`).
        """
        pages = PageNames({}, {})
        recent: dict[str, Any] = {}
        for name, paged in _PAGED.items():
            items: Chunk = getattr(state, name)
            before = self._list_pages(name, state.generation)
            first, kept, skipped = _find_first(before, items, paged)
            blocks, recent[name] = _split_blocks(items[kept:], paged)
            known = {paged.number(chunk[0]): (digest, chunk) for digest, chunk in before}
            pages.names[name] = first
            for block in blocks:
                digest, chunk = known.get(paged.number(block[0]), ("", ()))
                pages.names[name].append(digest if chunk == block else self._put(state.generation, block))
            if skipped:
                pages.skipped[name] = skipped
        return pages, replace(state, **recent)

    def is_next(self, version: int) -> bool:
        """Whether a version follows the one that was read last.

        The pages of another one could have the names of pages that became a part of larger ones. A pruner deletes
        those.
        """
        return version == self._newest + 1

    def join(self, pages: PageNames, recent: LogState) -> LogState:
        """Returns the whole state. Raises CorruptError if a page is missing or damaged."""
        life = recent.generation
        wanted = [(name, digest) for name in _PAGED for digest in pages.names.get(name, [])]
        self._read_missing(life, wanted)
        whole: dict[str, Any] = {}
        for name in _PAGED:
            chunks = (self._chunks[self._paths.page(digest, life)] for digest in pages.names.get(name, []))
            items = chain(chain.from_iterable(chunks), getattr(recent, name))
            whole[name] = tuple(islice(items, pages.skipped.get(name, 0), None))
        self._newest, self._names = recent.version, pages.names
        return replace(recent, **whole)

    def remember(self, version: int, pages: PageNames) -> None:
        """Continues after a version that another ledger of this process has read."""
        self._newest, self._names = version, pages.names

    def forget(self) -> None:
        """Forgets the version that was read last: the ledger has no version now."""
        self._newest, self._names = 0, {}

    def _list_pages(self, name: str, life: int) -> list[tuple[str, Chunk]]:
        """Returns the pages of a list in the version that was read last. A new life of the log has none of them."""
        found = ((digest, self._chunks.get(self._paths.page(digest, life))) for digest in self._names.get(name, []))
        return [(digest, chunk) for digest, chunk in found if chunk]

    def _put(self, life: int, chunk: Chunk) -> str:
        data = encode(chunk)
        digest = digest_of(data)
        path = self._paths.page(digest, life)
        # A page is named by its content, so an earlier write had the same content.
        with suppress(AlreadyExistsError):
            self._store.put_if_absent(path, data)
        self._chunks[path] = chunk
        return digest

    def _read_missing(self, life: int, wanted: Iterable[tuple[str, str]]) -> None:
        paths = {self._paths.page(digest, life): (name, digest) for name, digest in wanted}
        missing = {path: of for path, of in paths.items() if path not in self._chunks}

        def read(path: str) -> Chunk:
            name, digest = missing[path]
            chunk: Chunk = decode(
                path, require_checksum(path, read_named(self._store, path), digest), _PAGED[name].kind
            )
            return chunk

        with ThreadPoolExecutor(_READERS) as pool, pause_collection():
            found = pool.map(read, missing) if len(missing) > 1 else map(read, missing)
            self._chunks.update(zip(missing, found, strict=True))


def _find_first(before: Sequence[tuple[str, Chunk]], items: Chunk, paged: _PagedList) -> tuple[list[str], int, int]:
    """Looks for the page whose rest the items begin with, because the items before them were truncated.

    Returns its name, how many of the items are in it, and how many of its items are truncated.

    before: the pages of the version before.
    """
    left = ((one, chunk) for one, chunk in before if items and paged.number(chunk[-1]) >= paged.number(items[0]))
    digest, chunk = next(left, ("", ()))
    skipped = next((at for at, item in enumerate(chunk) if item == items[0]), len(chunk))
    kept = len(chunk) - skipped
    # As long as nothing of it is truncated, it may become a part of a larger page. A short one is written again.
    is_rest = skipped and kept and len(chunk) > _LEAST and chunk[skipped:] == items[:kept]
    return ([digest], kept, skipped) if is_rest else ([], 0, 0)


def _split_blocks(items: Chunk, paged: _PagedList) -> tuple[list[Chunk], Chunk]:
    """Splits a list into the largest full blocks of numbers, and the rest, which stays open.

    The same items after the same page always make the same pages.
    """
    if not items:
        return [], ()
    opened = paged.number(items[-1]) // _LEAST * _LEAST
    blocks = []
    begin = 0
    for first, length in _plan_blocks(paged.number(items[0]) // _LEAST * _LEAST, opened, paged.most):
        end = bisect_left(items, first + length, begin, key=paged.number)
        if end > begin:
            blocks.append(items[begin:end])
        begin = end
    return blocks, items[begin:]


def _plan_blocks(first: int, end: int, most: int) -> Iterator[tuple[int, int]]:
    """Yields the largest aligned blocks that lie between two numbers: the first number and the length of each."""
    while first < end:
        length = _LEAST
        while length < most and first % (length * 2) == 0 and first + length * 2 <= end:
            length *= 2
        yield first, length
        first += length
