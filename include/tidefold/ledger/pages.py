"""Splits lists that grow with a log into immutable pages named by their content, so that a ledger version stays
small.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tidefold.domain.log_state import ChangeSet, LandedFileRecord, LogState, Snapshot
from tidefold.domain.paths import LogPaths
from tidefold.errors import AlreadyExistsError
from tidefold.ledger.serialization import decode, digest_of, read_named, require_checksum
from tidefold.ledger.stored_form import encode
from tidefold.storage import Store

_SIZE = 32
# How the items of each paged list are numbered, and what a page of it holds.
_PAGED: dict[str, tuple[Callable[[Any], int], Any]] = {
    "change_sets": (lambda c: c.sqn, tuple[ChangeSet, ...]),
    "landed": (lambda entry: entry.number, tuple[LandedFileRecord, ...]),
    "snapshots": (lambda s: s.id, tuple[Snapshot, ...]),
}
Chunk = tuple[Any, ...]


class Pages:
    """Splits a state into pages and its recent rest, and joins it again.

    known: pages of this store by path. Others that read the store may share them, because pages never change.
    """

    def __init__(self, store: Store, log: str, known: dict[str, Chunk]) -> None:
        self._store = store
        self._paths = LogPaths(log)
        self._chunks = known
        # Those that this one found in the store or put there; of others it cannot know whether they still are.
        self._there: set[str] = set()
        self._written: dict[tuple[int, str, int], str] = {}

    def split(self, state: LogState) -> tuple[dict[str, list[str]], LogState]:
        """Writes the pages that do not exist yet. Returns their names and the state without their items."""
        pages: dict[str, list[str]] = {}
        recent: dict[str, Any] = {}
        for name, (number, _) in _PAGED.items():
            full, recent[name] = _split_chunks(getattr(state, name), number)
            pages[name] = [self._put(state.generation, name, key, chunk) for key, chunk in full]
        return pages, replace(state, **recent)

    def join(self, pages: dict[str, list[str]], recent: LogState) -> LogState:
        """Returns the whole state. Raises CorruptError if a page is missing or damaged."""
        whole: dict[str, Any] = {}
        for name, (_, kind) in _PAGED.items():
            chunks = [
                self._read(self._paths.page(digest, recent.generation), kind, digest) for digest in pages.get(name, [])
            ]
            whole[name] = (*(item for chunk in chunks for item in chunk), *getattr(recent, name))
        return replace(recent, **whole)

    def _put(self, life: int, name: str, key: int, chunk: Chunk) -> str:
        known = self._written.get((life, name, key))
        if known and self._chunks[self._paths.page(known, life)] == chunk:
            return known
        data = encode(chunk)
        digest = digest_of(data)
        path = self._paths.page(digest, life)
        if path not in self._there:
            # A page is named by its content, so an earlier write had the same content.
            with suppress(AlreadyExistsError):
                self._store.put_if_absent(path, data)
        self._there.add(path)
        self._chunks[path] = chunk
        self._written[life, name, key] = digest
        return digest

    def _read(self, path: str, kind: Any, digest: str) -> Chunk:
        if path not in self._chunks:
            self._chunks[path] = decode(path, require_checksum(path, read_named(self._store, path), digest), kind)
        # A version that was just read names it.
        self._there.add(path)
        return self._chunks[path]


def _split_chunks(items: Chunk, number: Callable[[Any], int]) -> tuple[list[tuple[int, Chunk]], Chunk]:
    """Splits a list at fixed numbers, so that the same items always make the same page. The newest chunk stays open."""
    chunks: list[tuple[int, Chunk]] = []
    begin = 0
    while begin < len(items):
        key = number(items[begin]) // _SIZE
        # Numbers rise by one or more: a chunk has at most this many items.
        end = min(begin + _SIZE, len(items))
        while number(items[end - 1]) // _SIZE > key:
            end -= 1
        chunks.append((key, items[begin:end]))
        begin = end
    return (chunks[:-1], chunks[-1][1]) if chunks else ([], ())
