"""The ledgers of logs and sets: their state is authoritative. A log's is compared with its table, and ends with it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from tidefold.domain import ledger_evidence
from tidefold.domain.ingest.append import require_fence, with_shape
from tidefold.domain.log_state import DeletionState, LogState, TableSpec
from tidefold.domain.paths import LogPaths, SetPaths
from tidefold.domain.sets.set_state import SetEvidence, SetMark, SetState, require_set_known
from tidefold.domain.state_validation import check_state
from tidefold.domain.table.types import TableColumns
from tidefold.errors import AlreadyExistsError, CorruptError, NotFoundError, RefusedError
from tidefold.ledger.evidence import (
    delete_high_water_marks,
    delete_set_marks,
    find_evidence,
    find_set_evidence,
    list_versions,
    record_high_water_mark,
)
from tidefold.ledger.serialization import Items
from tidefold.ledger.state_ledger import TRIES, ComparedFields, StateLedger, Versions
from tidefold.storage import Store
from tidefold.stored_forms import encode_form

_INCARNATION = 8
_NO_SHAPE = TableSpec((), (), "", 1, 1)


class Ledger(StateLedger[LogState, ledger_evidence.Evidence]):
    """Reads and commits the state of one log. `read` raises NotFoundError until `begin` has written version 1.

    pages, before_write, compared, versions: as in StateLedger.
    """

    def __init__(
        self,
        store: Store,
        log: str,
        pages: dict[str, Items] | None = None,
        before_write: Callable[[], None] = lambda: None,
        compared: ComparedFields | None = None,
        versions: Versions | None = None,
    ) -> None:
        super().__init__(store, log, LogPaths(log), LogState, pages, before_write, compared, versions)

    def find(self) -> LogState | None:
        """Returns the newest state; None for a log that was not started, or was dropped. Raises CorruptError."""
        return _unless_gone(self._newest())

    def find_current(self) -> LogState | None:
        return _unless_gone(super().find_current())

    def exists(self) -> bool:
        """Whether the log was started and not dropped since. To get its state, call `find`."""
        return self.find() is not None

    def read(self) -> LogState:
        """Returns the newest state. Raises NotFoundError (no such log) or CorruptError (unreadable: never absent)."""
        state = self._newest()
        if state is None:
            raise NotFoundError(
                "LOG_UNKNOWN",
                f"The store has no log `{self._name}`.",
                hint=f"`tidefold step ingest {self._name}` starts it.",
            )
        return state

    def peek(self, shape: TableSpec) -> LogState:
        """Returns the newest state, or the state that `begin` would write now. Writes nothing."""
        newest = self._newest()
        return _unless_gone(newest) or self._first(shape, newest)

    def begin(self, shape: TableSpec, fence: int | None = None) -> LogState:
        """Returns the state. A new log starts empty, and an empty log accepts another table definition.

        Raises SupersededError if change sets were announced under another fence.
        """
        for _ in range(TRIES):
            newest = self._newest()
            if (state := _unless_gone(newest)) is not None:
                break
            # Another process may begin the log in the same moment: its beginning is as good, and has this version.
            first = self._first(shape, newest)
            if fence is not None:
                require_fence(first, fence)
            self.require_current(first)
            with suppress(AlreadyExistsError):
                self._put(_with_incarnation(first))
        else:
            raise self._busy()
        _not_dropped(state)
        return self.commit(lambda empty: with_shape(empty, shape)) if with_shape(state, shape) != state else state

    def _first(self, shape: TableSpec, newest: LogState | None) -> LogState:
        before = newest or LogState(self._name, shape)
        first = LogState(self._name, shape, before.version + 1, before.epoch, last_snapshot=before.last_snapshot)
        # What was announced to the log of that name before is refused, as is everything that it numbered.
        return replace(first, fence=before.fence, generation=before.generation, former=before.former)

    def replace(self, shape: TableSpec, make: Callable[[LogState], LogState]) -> LogState:
        """Applies `make` to the newest state that is left, or to an empty one. Writes without a comparison."""
        return self._replace(make, LogState(self._name, shape))

    def commit(self, move: Callable[[LogState], LogState], *, of_dropped: bool = False) -> LogState:
        """Applies a transition to the newest state and writes the result. After a lost race, reads and applies again.

        A transition that changes nothing writes nothing. Raises the errors of the transition, ConflictError after many
        lost races, and RefusedError for a log that is being dropped (unless `of_dropped`: the drop itself commits).
        """
        for _ in range(TRIES):
            state = self.read() if of_dropped else _not_dropped(self.read())
            current = _with_incarnation(state)
            moved = move(current)
            if moved == current:
                return state
            if done := self.try_commit(current, moved):
                return done
        raise self._busy()

    def find_table_problem(self, state: LogState) -> str:
        """Returns what is wrong with the published table; empty: nothing, as far as this process has compared it."""
        _, evidence = self._compared.get(self._name, (0, None))
        if not evidence or not ledger_evidence.describe_table(state, evidence):
            return ""
        # It may have compared them before it published.
        evidence = self._find_evidence(state)
        self._compared[self._name] = (state.version, evidence)
        return ledger_evidence.describe_table(state, evidence)

    def require_table(self, state: LogState) -> None:
        """Raises CorruptError if the published table is missing, as far as this process has compared it."""
        if self.find_table_problem(state) and self.require_current(state).table_version is None:
            raise self._describe_missing()

    def has_foreign_commits(self, state: LogState) -> bool:
        """Whether the published table has versions that the ledger does not know. Makes one request.

        Raises CorruptError if the table is missing now.
        """
        published = ledger_evidence.find_published_version(state)
        if published < 0:
            return False
        entries = self._store.list(LogPaths(self._name).table_log)
        if not entries:
            raise self._describe_missing()
        return max(list_versions(entries), default=published) > published

    def _describe_missing(self) -> CorruptError:
        return CorruptError(
            "TABLE_MISSING",
            f"The published table of `{self._name}` is missing: it has no Delta log.",
            hint=f"{ledger_evidence.hint_to_rebuild(self._name)}.",
        )

    def _make_empty(self) -> LogState:
        return LogState(self._name, _NO_SHAPE, 1)

    def _check(self, state: LogState) -> LogState:
        return check_state(state)

    def _find_evidence(self, state: LogState) -> ledger_evidence.Evidence:
        return find_evidence(self._store, state)

    def _require_known(self, state: LogState, evidence: ledger_evidence.Evidence) -> None:
        ledger_evidence.require_known(state, evidence)

    def _mark(self, before: LogState, done: LogState, evidence: ledger_evidence.Evidence) -> ledger_evidence.Evidence:
        if not ledger_evidence.needs_high_water_mark(before, done):
            return evidence
        waits = done.latest is not None and done.latest.schema != done.schema
        columns = encode_form(TableColumns(done.shape, done.schemas)) if waits else b""
        path = LogPaths(self._name).high_water_mark
        marks = record_high_water_mark(self._store, path, done.version, evidence.high_water_marks, columns)
        return replace(evidence, high_water_marks=marks)

    def _forget_marks(self, above: int) -> None:
        delete_high_water_marks(self._store, self._name, above)


def _unless_gone(state: LogState | None) -> LogState | None:
    return None if state is None or state.deletion is DeletionState.GONE else state


def _with_incarnation(state: LogState) -> LogState:
    """Returns the state with its incarnation, which the first version gives it."""
    return state if state.incarnation else replace(state, incarnation=uuid.uuid4().hex[:_INCARNATION])


def _not_dropped(state: LogState) -> LogState:
    if state.deletion is not DeletionState.NO:
        raise RefusedError(
            "LOG_DROPPED",
            f"Log `{state.log}` is being dropped.",
            hint=f"`tidefold retain drop {state.log} --yes` finishes the drop. Then the log can start again.",
        )
    return state


class SetLedger(StateLedger[SetState, SetEvidence]):
    """Reads and commits the state of one set.

    logs: the logs of the set; their tables show what was published.
    pages, before_write, compared: as in StateLedger.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        logs: Sequence[str],
        pages: dict[str, Items] | None = None,
        before_write: Callable[[], None] = lambda: None,
        compared: ComparedFields | None = None,
    ) -> None:
        paths = SetPaths(name)
        # A log may have the name of the set, so the ledger has the name of its folder.
        super().__init__(store, paths.folder, paths, SetState, pages, before_write, compared)
        self._logs = logs
        self._set = name

    def read(self) -> SetState:
        """Returns the newest state; an empty one if there is none. Raises CorruptError, StorageError."""
        return self.find_current() or self._make_empty()

    def commit(self, transition: Callable[[SetState], SetState]) -> SetState:
        """Applies a transition to the newest state and returns the result. A lost race applies it again.

        An unchanged state is not written. Raises what the transition raises, CorruptError, ConflictError, StorageError.
        """
        for _ in range(TRIES):
            before = self.read()
            if done := self.try_commit(before, transition(before)):
                return done
        raise self._busy()

    def rebuild(self, make: Callable[[SetState], SetState], plan: bool) -> SetState:
        """Returns what `make` returns for the newest state that is left, or an empty one. Writes it unless `plan`."""
        return make(self._newest() or self._make_empty()) if plan else self._replace(make, self._make_empty())

    def _make_empty(self) -> SetState:
        return SetState(self._set)

    def _check(self, state: SetState) -> SetState:
        return state

    def _find_evidence(self, state: SetState) -> SetEvidence:
        return find_set_evidence(self._store, state, self._logs)

    def _require_known(self, state: SetState, evidence: SetEvidence) -> None:
        require_set_known(state, evidence)

    def _mark(self, before: SetState, done: SetState, evidence: SetEvidence) -> SetEvidence:
        """Marks each version once a table is published: a version of the set may change no table."""
        if not done.published or not done.newest:
            return evidence
        mark = SetMark(done.version, done.newest.number, done.published.members[0].log)

        def path(one: SetMark) -> str:
            return SetPaths(self._set).high_water_mark(one.log, one.version, one.number)

        marks = record_high_water_mark(self._store, path, mark, evidence.high_water_marks)
        return replace(evidence, high_water_marks=marks)

    def _forget_marks(self, above: int) -> None:
        delete_set_marks(self._store, self._set, self._logs, above)
