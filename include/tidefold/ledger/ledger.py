"""The ledger: the authoritative state of a log, stored beside its data as numbered versions that are never overwritten.

To commit is to write version n+1 only if it is absent. No lock, clock or database decides anything.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec

from tidefold.domain.ingest.append import require_fence, with_shape
from tidefold.domain.ledger_evidence import Evidence, needs_high_water_mark, require_known
from tidefold.domain.log_state import DeletionState, LogState, TableSpec
from tidefold.domain.paths import LogPaths
from tidefold.domain.state_validation import check_state
from tidefold.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptError,
    NotFoundError,
    OutdatedLedgerError,
    RefusedError,
    TidefoldError,
    UnknownOutcomeError,
)
from tidefold.ledger.evidence import delete_high_water_marks, find_evidence, record_high_water_mark
from tidefold.ledger.pages import Chunk, PageNames, Pages
from tidefold.ledger.serialization import FORMAT, LedgerHead, decode, decode_head, digest_of
from tidefold.ledger.stored_form import encode
from tidefold.storage import Store

_TRIES = 50
_INCARNATION = 8
_messages = logging.getLogger(__name__)
_NO_SHAPE = TableSpec((), (), "", 1, 1)
# Versions that pruning leaves: a writer that sleeps through fewer commits still finds its version.
KEPT_VERSIONS = 1_000
# By log: the version of its ledger that was compared with the store, and what was found there.
Compared = dict[str, tuple[int, Evidence]]


@dataclass(frozen=True, slots=True)
class ReadVersion:
    """A ledger version that this process has read. Its number never gets another content."""

    state: LogState
    digest: str
    pages: PageNames


# By log: the newest version that was read.
Versions = dict[str, ReadVersion]
# A longer state is read again, so that thousands of them fit into memory.
_CACHED_ITEMS = 2_000


class Ledger:
    """Reads and commits the state of one log. `read` raises NotFoundError until `begin` has written version 1.

    pages: pages of this store that other ledgers have read (`Pages`).
    before_write: called before each version.
    compared: what other ledgers have compared with the store.
    versions: versions that other ledgers have read; None: each call reads again.
    """

    def __init__(
        self,
        store: Store,
        log: str,
        pages: dict[str, Chunk] | None = None,
        before_write: Callable[[], None] = lambda: None,
        compared: Compared | None = None,
        versions: Versions | None = None,
    ) -> None:
        self._store = store
        self._before_write = before_write
        self._paths = LogPaths(log)
        self._log = log
        self._pages = Pages(store, log, {} if pages is None else pages)
        self._compared: Compared = {} if compared is None else compared
        self._digests: dict[int, str] = {}
        self._read = versions

    def find(self) -> LogState | None:
        """Returns the newest state; None for a log that was not started, or was dropped. Raises CorruptError."""
        state = self._newest()
        return None if state is None or state.deletion is DeletionState.GONE else state

    def find_current(self) -> LogState | None:
        """Returns what `find` does. Raises OutdatedLedgerError if the store shows what the ledger does not know.

        Two requests more, once in a process; three for a log without a ledger. Other damage of the store is no matter.
        """
        newest = self._newest()
        try:
            self.require_current(newest or LogState(self._log, _NO_SHAPE, 1))
        except OutdatedLedgerError:
            raise
        except TidefoldError as error:
            _messages.warning("%s: the ledger could not be compared with the table: %s", self._log, error)
        return None if newest is None or newest.deletion is DeletionState.GONE else newest

    def exists(self) -> bool:
        """Whether the log was started and not dropped since. To get its state, call `find`."""
        return self.find() is not None

    def read(self) -> LogState:
        """Returns the newest state. Raises NotFoundError (no such log) or CorruptError (unreadable: never absent)."""
        state = self._newest()
        if state is None:
            raise NotFoundError(
                "LOG_UNKNOWN", f"The store has no log `{self._log}`.", hint=f"`tidefold ingest {self._log}` starts it."
            )
        return state

    def peek(self, shape: TableSpec) -> LogState:
        """Returns the newest state, or the state that `begin` would write now. Writes nothing."""
        return self.find() or self._first(shape)

    def _newest(self) -> LogState | None:
        version = self._latest_version()
        while version:
            try:
                return self.read_version(version)
            except (NotFoundError, CorruptError):
                # This version may be pruned if the process slept through too many commits.
                newer = self._latest_version()
                if newer == version:
                    raise
                version = newer
        self._pages.forget()
        return None

    def read_version(self, version: int) -> LogState:
        """Returns the state as of one ledger version."""
        known = self._read.get(self._log) if self._read else None
        if known and known.state.version == version:
            self._digests[version] = known.digest
            self._pages.remember(version, known.pages)
            return known.state
        path = self._paths.ledger_version(version)
        data = self._store.read(path)
        head = decode_head(path, data)
        if (head.log, head.version) != (self._log, version):
            raise CorruptError(
                "LEDGER_MISPLACED",
                f"`{path}` contains version {head.version} of the ledger of `{head.log}`.",
                hint="Nothing was changed. Move the file away if it was copied there.",
            )
        self._digests[version] = digest_of(data)
        names = PageNames(head.pages, head.skipped)
        state = check_state(self._pages.join(names, decode(path, bytes(head.state), LogState)))
        items = len(state.change_sets) + len(state.landed) + len(state.snapshots)
        if self._read is not None and items <= _CACHED_ITEMS:
            self._read[self._log] = ReadVersion(state, self._digests[version], names)
        return state

    def begin(self, shape: TableSpec, fence: int | None = None) -> LogState:
        """Returns the state. A new log starts empty, and an empty log accepts another table definition.

        Raises SupersededError if change sets were announced under another fence.
        """
        for _ in range(_TRIES):
            if (state := self.find()) is not None:
                break
            # Another process may begin the log in the same moment: its beginning is as good.
            first = self._first(shape)
            if fence is not None:
                require_fence(first, fence)
            self.require_current(first)
            with suppress(AlreadyExistsError):
                self._put(_with_incarnation(first))
        else:
            raise self._busy()
        _not_dropped(state)
        return self.commit(lambda empty: with_shape(empty, shape)) if with_shape(state, shape) != state else state

    def _first(self, shape: TableSpec) -> LogState:
        before = self._newest() or LogState(self._log, shape)
        first = LogState(self._log, shape, before.version + 1, before.epoch, last_snapshot=before.last_snapshot)
        # What was announced to the log of that name before is refused, as is everything that it numbered.
        return replace(first, fence=before.fence, generation=before.generation, former=before.former)

    def require_current(self, state: LogState) -> Evidence:
        """Compares the ledger with the published table and the snapshots, once in a process (I29).

        Everything that changes or deletes anything of a log calls this first; `commit` and `begin` do. Raises
        CorruptError if the store shows what the ledger does not know: LEDGER_BEHIND, LEDGER_LOST.
        """
        version, evidence = self._compared.get(self._log, (0, Evidence()))
        if version and version <= state.version:
            return evidence
        evidence = find_evidence(self._store, state)
        try:
            require_known(state, evidence)
        except CorruptError:
            # Others may have committed since the state was read, and the ledger has their commits first.
            require_known(self._newest() or state, evidence)
        self._compared[self._log] = (state.version, evidence)
        return evidence

    def is_current(self) -> bool:
        """Whether the ledger knows everything that the store shows of the log. A lost or damaged one does not."""
        try:
            self.require_current(self._newest() or LogState(self._log, _NO_SHAPE, 1))
        except CorruptError:
            return False
        return True

    def replace(self, shape: TableSpec, make: Callable[[LogState], LogState]) -> LogState:
        """Applies `make` to the newest state that is left, or to an empty one. Writes without a comparison."""
        base = self._newest() or LogState(self._log, shape)
        made = replace(make(base), version=base.version + 1)
        self._compared.pop(self._log, None)
        done = self._put(made)
        delete_high_water_marks(self._store, self._log, above=done.version)
        return done

    def commit(self, move: Callable[[LogState], LogState], *, of_dropped: bool = False) -> LogState:
        """Applies a transition to the newest state and writes the result. After a lost race, reads and applies again.

        A transition that changes nothing writes nothing. Raises the errors of the transition, ConflictError after many
        lost races, and RefusedError for a log that is being dropped (unless `of_dropped`: the drop itself commits).
        """
        for _ in range(_TRIES):
            state = self.read() if of_dropped else _not_dropped(self.read())
            known = _with_incarnation(state)
            moved = move(known)
            if moved == known:
                return state
            evidence = self.require_current(state)
            try:
                done = self._put(replace(moved, version=state.version + 1))
            except AlreadyExistsError:
                continue
            if needs_high_water_mark(known, done):
                marks = record_high_water_mark(self._store, self._log, done.version, evidence.high_water_marks)
                self._compared[self._log] = (state.version, replace(evidence, high_water_marks=marks))
            return done
        raise self._busy()

    def _busy(self) -> ConflictError:
        return ConflictError("LEDGER_BUSY", f"Other writers of log `{self._log}` committed first, {_TRIES} times.")

    def _put(self, state: LogState) -> LogState:
        check_state(state)
        writer = uuid.uuid4().hex
        path = self._paths.ledger_version(state.version)
        self._before_write()
        if not self._pages.is_next(state.version):
            raise AlreadyExistsError("LEDGER_LOST_RACE", f"`{path}` does not follow the version that was read last.")
        data = self._encode(state, writer)
        try:
            self._store.put_if_absent(path, data)
        except UnknownOutcomeError:
            self._settle(path, writer)
        self._require_counted(state.version, digest_of(data))
        return state

    def _settle(self, path: str, writer: str) -> None:
        """Reads back who wrote the version after a lost answer. If that fails, the outcome stays unknown."""
        try:
            head = decode_head(path, self._store.read(path))
        except NotFoundError:
            raise AlreadyExistsError("LEDGER_LOST_ANSWER", f"`{path}` was not written.") from None
        if head.writer != writer:
            raise AlreadyExistsError("LEDGER_LOST_RACE", f"`{path}` was written by another process.")

    def _require_counted(self, version: int, digest: str) -> None:
        """Raises AlreadyExistsError unless the version counts: the version that it was made from must still exist.

        A writer that slept while that version was pruned finds its number free, and is too late nevertheless.
        """
        before = version - 1
        is_first = version == 1 and self._latest_version() == 1
        if is_first or (before and self._find_digest(before) == self._digests.get(before)):
            return
        try:
            path = self._paths.ledger_version(version + 1)
            if decode_head(path, self._store.read(path)).previous == digest:
                return  # It counted, and so many versions followed that it is pruned now.
            late = True
        except NotFoundError:
            late = self._find_digest(version) == digest
        if late:
            raise AlreadyExistsError(
                "LEDGER_PRUNED", f"Version {version} of the ledger of `{self._log}` was already pruned."
            )
        raise UnknownOutcomeError(
            "LEDGER_UNKNOWN",
            f"tidefold cannot tell whether version {version} of `{self._log}` counted: it was pruned meanwhile.",
            hint="Call again. Nothing is done twice.",
        )

    def _find_digest(self, version: int) -> str | None:
        try:
            return digest_of(self._store.read(self._paths.ledger_version(version)))
        except NotFoundError:
            return None

    def prune(self, keep: int = KEPT_VERSIONS) -> int:
        """Deletes the oldest versions except the newest `keep`, in ascending order, with the pages that only they name.

        Returns the number of deleted versions. Lists only grow or shrink for good, so pages that the oldest retained
        version does not name are not named by a later one.
        """
        versions = self._versions()
        old, kept = versions[:-keep], versions[-keep:]
        if not old:
            return 0
        first = self._head(kept[0])
        needed = _pages_of(first[0]) if first else frozenset()
        unneeded = dict.fromkeys(page for head in self._before(first) for page in _pages_of(head) if page not in needed)
        life = first[0].life if first else 0
        self._store.delete([self._paths.page(page, life) for page in unneeded])
        for version in old:
            self._store.delete([self._paths.ledger_version(version)])
        return len(old)

    def _before(self, found: tuple[LedgerHead, str] | None) -> Iterator[LedgerHead]:
        """Yields the existing versions that counted before one, newest first.

        It skips stray versions: their writer may be about to name their pages again.
        """
        while found:
            head, found = found[0], self._head(found[0].version - 1)
            if found is None or found[1] != head.previous or found[0].life != head.life:
                return
            yield found[0]

    def _head(self, version: int) -> tuple[LedgerHead, str] | None:
        """Returns one version and the sha256 of its file; None if it was pruned (the pruner deletes its pages too)."""
        path = self._paths.ledger_version(version)
        try:
            data = self._store.read(path)
        except NotFoundError:
            return None
        return decode_head(path, data), digest_of(data)

    def _latest_version(self) -> int:
        return max(self._versions(), default=0)

    def _versions(self) -> list[int]:
        names = [entry.path.rsplit("/", 1)[1] for entry in self._store.list(self._paths.ledger)]
        try:
            return sorted(int(name.removesuffix(".json")) for name in names)
        except ValueError as error:
            raise CorruptError(
                "LEDGER_FOREIGN_FILE",
                f"`{self._paths.ledger}` contains a file that is not a ledger version: {error}.",
                hint="Nothing was changed. Move the file away.",
            ) from error

    def _encode(self, state: LogState, writer: str) -> bytes:
        pages, recent = self._pages.split(state)
        body = encode(recent)
        previous = self._digests.get(state.version - 1, "")
        head = LedgerHead(
            FORMAT,
            state.log,
            state.version,
            writer,
            digest_of(body),
            pages.names,
            msgspec.Raw(body),
            previous,
            state.generation,
            pages.skipped,
        )
        return msgspec.json.encode(head)


def _with_incarnation(state: LogState) -> LogState:
    """Returns the state with its incarnation. A ledger of an older program gets one with its next version."""
    return state if state.incarnation else replace(state, incarnation=uuid.uuid4().hex[:_INCARNATION])


def _pages_of(head: LedgerHead) -> frozenset[str]:
    return frozenset(page for pages in head.pages.values() for page in pages)


def _not_dropped(state: LogState) -> LogState:
    if state.deletion is not DeletionState.NO:
        raise RefusedError(
            "LOG_DROPPED",
            f"Log `{state.log}` is being dropped.",
            hint=f"`tidefold drop {state.log} --yes` finishes the drop. Then the log can start again.",
        )
    return state
