"""Reads and writes the documents of a ledger and their pages. Damaged and missing ones are different errors.

A savepoint has one description, which any program can read; its checksum reveals edits. The manifest of a snapshot is
stored once under its id, and the ledger names it by its sha256.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, TypeVar

import msgspec

from tidefold.domain.log_state import ChangeSet, LandedFileRecord, LogState, Snapshot
from tidefold.domain.paths import STORED_FORMAT, LedgerPaths, LogPaths
from tidefold.domain.sets.set_state import SetState, SetVersion
from tidefold.domain.snapshot.manifest import DESCRIPTION, Manifest, Savepoint, check_savepoint
from tidefold.domain.state_validation import check_manifest
from tidefold.errors import AlreadyExistsError, CorruptError, MissingFileError, NotFoundError
from tidefold.storage import Store
from tidefold.stored_forms import decode, decode_form, encode_form, require_form
from tidefold.typed_json import pause_collection

_FORMAT_NAME = "tidefold-savepoint"
# A page has the items of one block of numbers: 32 of them, or 64, 128 and so on. Two full neighbours become one page,
# so a list of n items has about log2(n) pages. Pages do not change when the oldest items are truncated: the version
# says how many items of the first page it leaves out.
Items = tuple[Any, ...]
State = TypeVar("State", LogState, SetState)
_LEAST = 32
# A page that holds more is slow to write again when one of its items changes.
_MOST = 32_768
_READERS = 16


class LedgerHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of the ledger.

    state: contains the newest items of each paged list.
    pages: the sha256 of the pages with older items.
    skipped: how many items of a list's first page the list no longer has.
    previous: the sha256 of the version before. Versions form a chain, which shows which of them count.
    """

    format: int
    log: str
    version: int
    writer: str
    checksum: str
    pages: dict[str, list[str]]
    state: msgspec.Raw
    previous: str = ""
    generation: int = 0
    skipped: dict[str, int] = {}


def decode_head(path: str, data: bytes) -> LedgerHead:
    """Raises CorruptError."""
    head = decode_form(path, data, LedgerHead)
    require_checksum(path, bytes(head.state), head.checksum)
    return head


def read_named(store: Store, path: str) -> bytes:
    """Reads a file that the ledger names. If it is missing, it was lost: CorruptError, not "not found"."""
    try:
        return store.read(path)
    except NotFoundError as error:
        raise MissingFileError(
            "FILE_MISSING", f"`{path}` is missing, and the ledger needs it.", hint="Restore the file from a backup."
        ) from error


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def require_checksum(path: str, data: bytes, digest: str) -> bytes:
    """Returns the bytes. Raises CorruptError if their sha256 differs."""
    if digest_of(data) != digest:
        raise CorruptError("CHECKSUM", f"`{path}` does not match its recorded checksum.")
    return data


def write_description(store: Store, savepoint: Savepoint) -> None:
    """Stores the description of a savepoint, once. From now on there is one."""
    document = {"format": _FORMAT_NAME, "version": STORED_FORMAT, **msgspec.to_builtins(savepoint)}
    data = msgspec.json.format(msgspec.json.encode({**document, "checksum": _checksum(document)}), indent=2)
    store.put_if_absent(DESCRIPTION, data)


def read_description(store: Store) -> tuple[Savepoint, str]:
    """Returns a savepoint and the sha256 of its description.

    Raises NotFoundError if there is none, CorruptError if it is damaged, edited, or newer than this program.
    """
    try:
        data = store.read(DESCRIPTION)
    except NotFoundError as error:
        message = f"There is no savepoint at this address: `{DESCRIPTION}` is missing."
        hint = "Give the address of a finished savepoint. An unfinished one has no such file."
        raise NotFoundError("SAVEPOINT_UNKNOWN", message, hint=hint) from error
    document = decode(DESCRIPTION, data, dict[str, Any])
    version = document.get("version")
    if document.get("format") != _FORMAT_NAME or type(version) is not int:
        raise CorruptError("SAVEPOINT_FORMAT", f"`{DESCRIPTION}` is not a description of a tidefold savepoint.")
    require_form(DESCRIPTION, version)
    if document.pop("checksum", None) != _checksum(document):
        raise CorruptError("SAVEPOINT_EDITED", f"`{DESCRIPTION}` does not match its recorded checksum.")
    return check_savepoint(decode(DESCRIPTION, data, Savepoint)), digest_of(data)


def _checksum(document: dict[str, Any]) -> str:
    """Returns the checksum of the content: spaces and the order of fields do not matter."""
    return digest_of(msgspec.json.encode(document, order="sorted"))


def read_manifest(store: Store, log: str, snapshot: Snapshot) -> Manifest:
    """Returns the manifest that the ledger names. Raises CorruptError if its bytes are not those that were staged."""
    return read_manifest_at(store, LogPaths(log).manifest(snapshot.id), snapshot)


def read_manifest_at(store: Store, path: str, snapshot: Snapshot) -> Manifest:
    """Returns a manifest from another path, such as a local copy."""
    data = require_checksum(path, read_named(store, path), snapshot.manifest or "")
    return check_manifest(decode_manifest(path, data), snapshot)


def decode_manifest(path: str, data: bytes) -> Manifest:
    """Decodes a stored manifest, whichever snapshot it belongs to. Raises CorruptError."""
    return decode_form(path, data, Manifest)


def write_manifest(store: Store, manifest: Manifest) -> str:
    """Stores a manifest under its snapshot's id, once, and returns its sha256."""
    data = encode_form(manifest)
    store.put_if_absent(LogPaths(manifest.log).manifest(manifest.snapshot), data)
    return digest_of(data)


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


# The lists of each state that are stored in pages.
_PAGED: dict[type, dict[str, _PagedList]] = {
    LogState: {
        "change_sets": _PagedList(lambda c: c.sqn, tuple[ChangeSet, ...]),
        "landed": _PagedList(lambda entry: entry.number, tuple[LandedFileRecord, ...]),
        # Snapshots change their state after they are written.
        "snapshots": _PagedList(lambda s: s.id, tuple[Snapshot, ...], most=256),
    },
    SetState: {"earlier": _PagedList(lambda version: version.number, tuple[SetVersion, ...], most=256)},
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

    def __init__(self, store: Store, paths: LedgerPaths, kind: type, chunks: dict[str, Items]) -> None:
        self._store = store
        self._paths = paths
        self._paged = _PAGED[kind]
        self._chunks = chunks
        # The ledger version that was read last, and its pages; 0: there is none.
        self._newest = 0
        self._names: dict[str, list[str]] = {}

    def split(self, state: State) -> tuple[PageNames, State]:
        """Writes the pages that do not exist yet. Returns their names and the state without their items.

        The state must be the next one (`is_next`).
        """
        pages = PageNames({}, {})
        recent: dict[str, Any] = {}
        for name, paged in self._paged.items():
            items: Items = getattr(state, name)
            before = self._list_pages(name, state.generation)
            first, kept, skipped = _find_first(before, items, paged)
            blocks, recent[name] = _split_blocks(items[kept:], paged)
            pages_before = {paged.number(chunk[0]): (digest, chunk) for digest, chunk in before}
            pages.names[name] = first
            for block in blocks:
                digest, chunk = pages_before.get(paged.number(block[0]), ("", ()))
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

    def join(self, pages: PageNames, recent: State) -> State:
        """Returns the whole state. Raises CorruptError if a page is missing or damaged."""
        life = recent.generation
        wanted = [(name, digest) for name in self._paged for digest in pages.names.get(name, [])]
        self._read_missing(life, wanted)
        whole: dict[str, Any] = {}
        for name in self._paged:
            chunks = (self._chunks[self._paths.page(digest, life)] for digest in pages.names.get(name, []))
            items = chain(chain.from_iterable(chunks), getattr(recent, name))
            whole[name] = tuple(islice(items, pages.skipped.get(name, 0), None))
        self._newest, self._names = recent.version, pages.names
        return replace(recent, **whole)

    def count(self, state: State) -> int:
        """Returns the number of items in the lists that have pages."""
        return sum(len(getattr(state, name)) for name in self._paged)

    def remember(self, version: int, pages: PageNames) -> None:
        """Continues after a version that another ledger of this process has read."""
        self._newest, self._names = version, pages.names

    def forget(self) -> None:
        """Forgets the version that was read last: the ledger has no version now."""
        self._newest, self._names = 0, {}

    def _list_pages(self, name: str, life: int) -> list[tuple[str, Items]]:
        """Returns the pages of a list in the version that was read last. A new life of the log has none of them."""
        chunks = ((digest, self._chunks.get(self._paths.page(digest, life))) for digest in self._names.get(name, []))
        return [(digest, chunk) for digest, chunk in chunks if chunk]

    def _put(self, life: int, chunk: Items) -> str:
        data = msgspec.json.encode(chunk)
        digest = digest_of(data)
        path = self._paths.page(digest, life)
        try:
            self._store.put_if_absent(path, data)
        except AlreadyExistsError:
            # A page is named by its content: an earlier write had the same content, unless it was damaged since.
            if digest_of(self._store.read(path)) != digest:
                self._store.delete([path])
                self._store.put_if_absent(path, data)
        self._chunks[path] = chunk
        return digest

    def _read_missing(self, life: int, wanted: Iterable[tuple[str, str]]) -> None:
        paths = {self._paths.page(digest, life): (name, digest) for name, digest in wanted}
        missing = {path: of for path, of in paths.items() if path not in self._chunks}

        def read(path: str) -> Items:
            name, digest = missing[path]
            chunk: Items = decode(
                path, require_checksum(path, read_named(self._store, path), digest), self._paged[name].kind
            )
            return chunk

        with ThreadPoolExecutor(_READERS) as pool, pause_collection():
            loaded = pool.map(read, missing) if len(missing) > 1 else map(read, missing)
            self._chunks.update(zip(missing, loaded, strict=True))


def _find_first(before: Sequence[tuple[str, Items]], items: Items, paged: _PagedList) -> tuple[list[str], int, int]:
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


def _split_blocks(items: Items, paged: _PagedList) -> tuple[list[Items], Items]:
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
