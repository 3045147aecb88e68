"""Two logs, their files and everybody who works on them, in memory: each step is a call that may be the last of its
process, or may find that the world went on while it slept. Every ledger version goes to the oracle.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TypeVar
from unittest import mock

import msgspec

from model.oracle import Changes, Oracle, Place, folded, tails
from support.dict_store import DictStore
from support.faults import Killed
from tidefold.changelog import write_intents
from tidefold.domain.log_state import ChangeSet, Column, LogState, Snapshot, SnapshotKind, State, TableSpec
from tidefold.domain.paths import CHANGELOG, INTENTS, LogPaths, data_path
from tidefold.domain.retention.log_bounds import Grace
from tidefold.domain.snapshot import claim
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.errors import ConflictError, NotFoundError, RefusedError, UnknownOutcomeError
from tidefold.fold.inputs import SourcePlaces
from tidefold.fold.plan_fold import plan_fold
from tidefold.ledger import Ledger, read_manifest, serialization
from tidefold.operations.ground import recovery
from tidefold.operations.retention.truncate import SegmentUse, plan_orphans, plan_release

LOGS = ("accounts", "tellers")
SHAPE = TableSpec(("id",), (Column("id", "int"), Column("text", "string")), "postgresql", 1, 1)
INSTANT = "2026-01-01T00:00:00+00:00"
T = TypeVar("T")
Pick = Callable[[Sequence[T]], T]
Process = Generator[None, None, None]
EXPECTED_REFUSALS = (RefusedError, ConflictError, UnknownOutcomeError)


class WatchedStore(DictStore):
    """Calls `before` and `after`, once each, around the next put of a ledger version."""

    before: Callable[[], None] | None = None
    after: Callable[[], None] | None = None

    def put_if_absent(self, path: str, data: bytes) -> None:
        if "/ledger/" not in path:
            return super().put_if_absent(path, data)
        hook, self.before = self.before, None
        if hook:
            hook()
        super().put_if_absent(path, data)
        hook, self.after = self.after, None
        if hook:
            hook()


@dataclass
class Running:
    """A process that has begun. What it does next is in its generator."""

    name: str
    steps: Process


@contextmanager
def small_pages() -> Iterator[None]:
    """Few items are a page already, so that short lives have pages too."""
    with mock.patch.object(serialization, "_LEAST", 4):
        yield


class World:
    """The shared state. What can be done in it is in `model.processes`."""

    def __init__(self, keep: int | None, grace: int = 0) -> None:
        self.keep, self.grace = keep, Grace(grace)
        self.store = WatchedStore()
        self.effects: Counter[str] = Counter()
        self.written: dict[Place, tuple[str, Changes]] = {}
        self.takings: dict[str, list[tuple[Place, ...]]] = {log: [] for log in LOGS}
        self.asked: dict[str, list[claim.Claim]] = {log: [] for log in LOGS}
        self.oracles = {
            log: Oracle(log, self.written, self.takings[log], self.asked[log], keep, grace, self.effects)
            for log in LOGS
        }
        self.readers = {log: Ledger(self.store, log) for log in LOGS}
        self.tables: dict[str, list[tuple[int, str]]] = {log: [] for log in LOGS}
        self.seen: dict[str, Snapshot | None] = dict.fromkeys(LOGS)
        self.running: list[Running] = []
        self.numbers = count(1)
        self.failed: AssertionError | None = None

    def number(self) -> int:
        return next(self.numbers)

    # What processes do.

    def read(self, log: str) -> LogState | None:
        return Ledger(self.store, log).find()

    def commit(self, log: str, move: Callable[[LogState], LogState], repeat: bool = True) -> LogState:
        """Commits a move; done again it must change nothing (I4)."""
        try:
            state = Ledger(self.store, log).commit(move)
        finally:
            self.observe(log)
        assert not repeat or move(state) == state, "the same step again changes something (I4)"
        return state

    def observe(self, log: str) -> None:
        """Shows the oracle every version that it has not seen yet, in order."""
        oracle, reader = self.oracles[log], self.readers[log]
        seen = oracle.state.version if oracle.state else 0
        names = [entry.path for entry in self.store.list(LogPaths(log).ledger)]
        newest = max((int(name[-15:-5]) for name in names), default=0)
        for version in range(seen + 1, newest + 1):
            try:
                oracle.observe(reader.read_version(version))
            except AssertionError as error:
                self.failed = self.failed or error
        if self.failed:
            raise self.failed

    def content(self, change_set: ChangeSet) -> Changes:
        """What a change set holds, if its segment is still there."""
        self.store.read(change_set.location.segment, 0, 0)
        return self.written[change_set.location.segment, change_set.location.ordinal][1]

    def rows(self, log: str, manifest: Manifest | None) -> dict[int, str]:
        """The rows of a snapshot's own files."""
        found: dict[int, str] = {}
        for file in manifest.files if manifest else ():
            data = self.store.read(data_path(LogPaths(log).snapshot(manifest.snapshot), file.name))
            found.update(msgspec.json.decode(data, type=dict[int, str]))
        return found

    # What drives them.

    def start(self, name: str, steps: Process, whole: bool = False) -> None:
        one = Running(name, steps)
        self.running.append(one)
        self.step(one)
        while whole and one in self.running:
            self.step(one)

    def step(self, one: Running) -> None:
        """The next step of a process; it is gone when it ended, was refused, or killed."""
        try:
            next(one.steps)
            return
        except StopIteration:
            self.effects[f"done: {one.name}"] += 1
        except EXPECTED_REFUSALS as error:
            self.effects[f"refused: {error.code}"] += 1
        except Killed:
            self.effects["killed within a call"] += 1
        finally:
            for log in LOGS:
                self.observe(log)
        if one in self.running:
            self.running.remove(one)

    def require_superseded(self, log: str, snapshot: int) -> None:
        """Only an attempt that was fenced off may miss what it planned with."""
        state = self.read(log)
        found = state.snapshot(snapshot) if state else None
        assert found
        assert found.state is State.ABORTED, "what an attempt needs was removed"
        self.effects["a superseded attempt missed its files"] += 1

    @property
    def idle(self) -> list[Running]:
        """The processes that are between two calls."""
        return [one for one in self.running if inspect.getgeneratorstate(one.steps) != inspect.GEN_RUNNING]

    # What must be true after every step.

    def check(self) -> None:
        stored = self.store.files
        named = {log: {c.location.segment for c in s.change_sets} for log in LOGS if (s := self.oracles[log].state)}
        for log in named:
            oracle, state = self.oracles[log], self.oracles[log].state
            assert state
            oracle.check()
            assert named[log] <= stored.keys(), "a segment that is needed is gone (I12)"
            self._check_restorable(oracle, state)
            self._check_table(log, state)
            if state.garbage:
                going = {entry.path for entry in plan_release(SegmentUse(self.store), state).unneeded}
                assert not any(going & others for others in named.values()), "I12"

    def _check_restorable(self, oracle: Oracle, state: LogState) -> None:
        """Every retained snapshot has its rows, and the log after the newest ones can be replayed (I5, I10)."""
        log = oracle.log
        for one in state.snapshots:
            if one.kind is SnapshotKind.FULL and one.state in (State.STAGED, State.COMPLETED):
                rows = self.rows(log, read_manifest(self.store, log, one))
                assert rows == oracle.expected[one.id].rows, "I5"
        for one in tails(state):
            base = state.snapshot(one.base or 0)
            assert base
            tail = state.change_sets_in(one.from_sqn, one.to_sqn)
            _require_whole(tail, one.from_sqn, one.to_sqn)
            rows = self.rows(log, read_manifest(self.store, log, base))
            assert folded(rows, map(self.content, tail)) == oracle.expected[one.id].rows, "I10"
        aside = {s.id for s in state.snapshots if s.as_of}
        held = [h.snapshot for h in state.holds if h.snapshot not in aside]
        for number in {*oracle.newest(state), *(s.id for s in tails(state)), *held}:
            self._check_replay(state, number, oracle.expected[number].position)

    def _check_replay(self, state: LogState, number: int, position: int) -> None:
        after = state.change_sets_in(position, state.last_sqn)
        _require_whole(after, position, state.last_sqn)
        if state.open_attempt or (state.latest and not state.latest.published):
            return
        wanted = claim.RestorePoint(number, claim.RestoreMode.REPLAY)
        asked = claim.Claim("check", f"restore:{number}:replay", SnapshotKind.FULL, INSTANT, restore=wanted)
        begun = claim.claim(state, asked)
        assert begun.open_attempt
        source = state.snapshot(begun.open_attempt.parent or 0)
        assert source
        base = read_manifest(self.store, state.log, source)
        plan_fold(begun, begun.open_attempt, base, state.shape, SourcePlaces(""))

    def _check_table(self, log: str, state: LogState) -> None:
        """Readers see what was confirmed, in that order, and at most one of them is not recorded yet (I1)."""
        shown = [number for number, _ in self.tables[log]]
        recorded = [s.id for s in state.snapshots if s.published]
        assert shown[: len(recorded)] == recorded
        assert shown == self.oracles[log].confirmed[: len(shown)]
        assert len(shown) - len(recorded) <= 1
        for one in state.snapshots:
            if one.published and (one.id == shown[-1] or self.oracles[log].readable(one, state)):
                names = [f.name for f in read_manifest(self.store, log, one).files]
                assert all(data_path(LogPaths(log).table, name) in self.store.files for name in names)

    def quiet(self) -> None:
        """Everybody is gone; whoever comes next ends what they announced."""
        self.running.clear()
        self.store.before = self.store.after = None
        for run in list(write_intents.read_announced(self.store)):
            recovery.recover_run(self.store, run)
        for log in LOGS:
            self.observe(log)
        self.check()

    def check_left_over(self) -> None:
        """After the ordinary clean-ups nothing is stored that nobody names (I22)."""
        self.check()
        assert not self.store.list(INTENTS)
        states = [state for log in LOGS if (state := self.oracles[log].state)]
        named = {c.location.segment for state in states for c in state.change_sets}
        self.store.delete(plan_orphans(self.store, LOGS[:1]))
        assert {e.path for e in self.store.list(CHANGELOG)} == named, "segments are left over"
        for state in states:
            kept = [
                s
                for s in state.snapshots
                if s.state in (State.COMPLETED, State.SUBSUMED) and s.kind is SnapshotKind.FULL
            ]
            names = {s.id: [f.name for f in read_manifest(self.store, state.log, s).files] for s in kept}
            paths = LogPaths(state.log)
            own = {data_path(paths.snapshot(number), name) for number in names for name in names[number]}
            assert {e.path for e in self.store.list(paths.snapshots)} == own, "files of snapshots are left over"
            # The table has none of the files of those as of an instant for their sake.
            beside = {data_path(paths.table, name) for s in kept if not s.as_of for name in names[s.id]}
            stored = {e.path for e in self.store.list(paths.table) if not e.path.startswith(paths.high_water_marks)}
            assert stored == beside, "files beside the table are left over"


def _require_whole(change_sets: Sequence[ChangeSet], after: int, to: int) -> None:
    ends = [after, *(c.sqn for c in change_sets)]
    assert [end + 1 for end in ends] == [*(c.begin for c in change_sets), to + 1], "the log has a gap"


__all__ = ["INSTANT", "LOGS", "SHAPE", "Killed", "NotFoundError", "Pick", "Process", "World", "small_pages"]
