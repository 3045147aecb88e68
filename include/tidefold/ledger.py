"""The ledger: the one truth about a log, kept beside its data as numbered, never overwritten versions (design 3).

Committing is writing version n+1 only if it is absent. No lock, no clock and no database decides anything.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from tidefold.lifecycle.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptError,
    NotFoundError,
    RefusedError,
    UnknownOutcomeError,
)
from tidefold.lifecycle.names import LogPaths
from tidefold.lifecycle.values import ChangeSet, Drop, Landed, LogState, Manifest, Shape, Snapshot
from tidefold.storage import Store

FORMAT = 1
T = TypeVar("T")
_TRIES = 50

# Lists that grow with the log: full chunks become immutable pages, so that the head stays small.
_PAGED: dict[str, tuple[Callable[[Any], int], int, Any]] = {
    "change_sets": (lambda c: c.sqn, 32, list[ChangeSet]),
    "landed": (lambda entry: entry.number, 32, list[Landed]),
    "snapshots": (lambda s: s.id, 32, list[Snapshot]),
}


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of the ledger. `state` holds each paged list's newest items, `pages` the older ones' sha256."""

    format: int
    log: str
    version: int
    writer: str
    checksum: str
    pages: dict[str, list[str]]
    state: msgspec.Raw


class Ledger:
    """Reads and commits the state of one log. `read` raises NotFoundError until `begin` wrote version 1."""

    def __init__(self, store: Store, log: str) -> None:
        self._store = store
        self._paths = LogPaths(log)
        self._log = log
        self._pages: dict[str, bytes] = {}

    def find(self) -> LogState | None:
        """The newest state, or None for a log that was not begun (or was dropped since). Raises CorruptError."""
        version = self._latest_version()
        state = self.read_version(version) if version else None
        return None if state is None or state.dropped is Drop.GONE else state

    def exists(self) -> bool:
        """Whether the log was begun (and not dropped since). Who also wants its state asks `find`."""
        return self.find() is not None

    def read(self) -> LogState:
        """The newest state. Raises NotFoundError (no such log) or CorruptError (unreadable; never taken for absent)."""
        version = self._latest_version()
        if version == 0:
            raise NotFoundError(
                "LOG_UNKNOWN", f"The store has no log `{self._log}`.", hint=f"`tidefold ingest {self._log}` begins it."
            )
        return self.read_version(version)

    def read_version(self, version: int) -> LogState:
        """The state as of one ledger version."""
        path = self._paths.ledger_version(version)
        head = _decode_head(path, self._store.read(path))
        if (head.log, head.version) != (self._log, version):
            raise CorruptError("LEDGER_MISPLACED", f"`{path}` says it is version {head.version} of `{head.log}`.")
        state = _decode(path, bytes(head.state), LogState)
        whole: dict[str, Any] = {}
        for name in _PAGED:
            whole[name] = (*self._read_pages(head.pages.get(name, []), name), *getattr(state, name))
        return replace(state, **whole)

    def begin(self, shape: Shape) -> LogState:
        """The state, made empty if the log is new."""
        while (state := self.find()) is None:
            # Another process may begin the log in the same moment: its beginning is as good.
            with suppress(AlreadyExistsError):
                self._put(self._first(shape))
        return _not_dropped(state)

    def _first(self, shape: Shape) -> LogState:
        version = self._latest_version()
        before = self.read_version(version) if version else LogState(self._log, shape)
        return LogState(self._log, shape, version + 1, before.epoch, last_snapshot=before.last_snapshot)

    def commit(self, move: Callable[[LogState], LogState], *, of_dropped: bool = False) -> LogState:
        """Applies a move to the newest state and writes the result; on a lost race reads again and moves again.

        A move that changes nothing writes nothing. Raises what the move raises, ConflictError after many losses,
        RefusedError for a log that is being dropped (unless `of_dropped`: the drop itself asks).
        """
        for _ in range(_TRIES):
            state = self.read() if of_dropped else _not_dropped(self.read())
            moved = move(state)
            if moved == state:
                return state
            try:
                return self._put(replace(moved, version=state.version + 1))
            except AlreadyExistsError:
                continue
        raise ConflictError("LEDGER_BUSY", f"Other writers of log `{self._log}` were faster {_TRIES} times.")

    def _put(self, state: LogState) -> LogState:
        writer = uuid.uuid4().hex
        path = self._paths.ledger_version(state.version)
        try:
            self._store.put_if_absent(path, self._encode(state, writer))
        except UnknownOutcomeError:
            self._settle(path, writer)
        return state

    def _settle(self, path: str, writer: str) -> None:
        """After a lost answer: read back who wrote the version. Not readable: the outcome stays unknown."""
        try:
            head = _decode_head(path, self._store.read(path))
        except NotFoundError:
            raise AlreadyExistsError("LEDGER_LOST_ANSWER", f"`{path}` was not written.") from None
        if head.writer != writer:
            raise AlreadyExistsError("LEDGER_LOST_RACE", f"`{path}` was written by another process.")

    def _latest_version(self) -> int:
        names = [entry.path.rsplit("/", 1)[1] for entry in self._store.list(self._paths.ledger)]
        try:
            return max((int(name.removesuffix(".json")) for name in names), default=0)
        except ValueError as error:
            raise CorruptError(
                "LEDGER_FOREIGN_FILE",
                f"`{self._paths.ledger}` holds a file that is no ledger version: {error}.",
                hint="Move it away; nothing was changed.",
            ) from error

    def _encode(self, state: LogState, writer: str) -> bytes:
        pages: dict[str, list[str]] = {}
        recent: dict[str, Any] = {}
        for name, (number, size, _) in _PAGED.items():
            full, rest = _chunks(getattr(state, name), number, size)
            pages[name] = [self._put_page(chunk) for chunk in full]
            recent[name] = rest
        body = msgspec.json.encode(replace(state, **recent))
        checksum = hashlib.sha256(body).hexdigest()
        return msgspec.json.encode(Head(FORMAT, state.log, state.version, writer, checksum, pages, msgspec.Raw(body)))

    def _put_page(self, chunk: tuple[Any, ...]) -> str:
        data = msgspec.json.encode(chunk)
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._pages:
            # Named by its content: whoever wrote it before wrote the same.
            with suppress(AlreadyExistsError):
                self._store.put_if_absent(self._paths.page(digest), data)
            self._pages[digest] = data
        return digest

    def _read_pages(self, digests: list[str], name: str) -> tuple[Any, ...]:
        items: list[Any] = []
        for digest in digests:
            path = self._paths.page(digest)
            data = self._pages.get(digest) or _checked(path, _read_named(self._store, path), digest)
            self._pages[digest] = data
            items.extend(_decode(path, data, _PAGED[name][2]))
        return tuple(items)


def _not_dropped(state: LogState) -> LogState:
    if state.dropped is not Drop.NO:
        raise RefusedError(
            "LOG_DROPPED",
            f"Log `{state.log}` is being dropped.",
            hint=f"`tidefold drop {state.log} --yes` finishes it; then the log can begin anew.",
        )
    return state


def read_manifest(store: Store, log: str, snapshot: Snapshot) -> Manifest:
    """The manifest that the ledger names; CorruptError when its bytes are not those that were staged."""
    path = LogPaths(log).manifest(snapshot.id)
    return _decode(path, _checked(path, _read_named(store, path), snapshot.manifest or ""), Manifest)


def write_manifest(store: Store, manifest: Manifest) -> str:
    """Stores a manifest under its snapshot's id, once, and answers its sha256."""
    data = msgspec.json.encode(manifest)
    store.put_if_absent(LogPaths(manifest.log).manifest(manifest.snapshot), data)
    return hashlib.sha256(data).hexdigest()


def _chunks(
    items: tuple[Any, ...], number: Callable[[Any], int], size: int
) -> tuple[list[tuple[Any, ...]], tuple[Any, ...]]:
    """Cuts a list at fixed numbers, so that the same items always make the same page; the newest chunk stays open."""
    chunks: dict[int, list[Any]] = {}
    for item in items:
        chunks.setdefault(number(item) // size, []).append(item)
    ordered = [tuple(chunks[key]) for key in sorted(chunks)]
    return (ordered[:-1], ordered[-1]) if ordered else ([], ())


def _read_named(store: Store, path: str) -> bytes:
    """A file that the ledger names: if it is not there, it was lost, which is more than "not found"."""
    try:
        return store.read(path)
    except NotFoundError as error:
        raise CorruptError("FILE_MISSING", f"`{path}` is gone, and the ledger needs it.", hint="Restore it.") from error


def _checked(path: str, data: bytes, digest: str) -> bytes:
    if hashlib.sha256(data).hexdigest() != digest:
        raise CorruptError("CHECKSUM", f"`{path}` does not hold what was written to it.", hint="Restore the file.")
    return data


def _decode_head(path: str, data: bytes) -> Head:
    format_ = _decode(path, data, dict[str, Any]).get("format")
    if isinstance(format_, int) and format_ > FORMAT:
        raise CorruptError(
            "LEDGER_NEWER",
            f"`{path}` has format {format_}; this version reads up to {FORMAT}.",
            hint="Update tidefold.",
        )
    head = _decode(path, data, Head)
    _checked(path, bytes(head.state), head.checksum)
    return head


def _decode(path: str, data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptError("UNREADABLE", f"`{path}` cannot be read: {error}.", hint="Restore the file.") from error
