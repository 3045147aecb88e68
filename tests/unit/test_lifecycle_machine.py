"""The life cycle under random moves, against a dict model. Promises I1, I3, I4, I7, I8, I14; requirement C1."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from builders import appended, manifest_of, new_log, verdict_for
from tidefold.lifecycle import claims, moves, retention
from tidefold.lifecycle.errors import RefusedError
from tidefold.lifecycle.values import Kind, LogState, State

CONFIRMED = (State.COMPLETED, State.SUBSUMED, State.DELETED)
RUNS = st.sampled_from(["run-a", "run-b", "run-c"])


class LifeCycle(RuleBasedStateMachine):
    """The model knows, for each snapshot id, which sqns it must contain; and who may still act."""

    def __init__(self) -> None:
        super().__init__()
        self.state: LogState = new_log()
        self.confirmed: list[int] = []
        self.published: list[int] = []
        self.fenced: set[int] = set()
        self.passed: set[int] = set()

    def attempt_move(self, move: Callable[[LogState], LogState]) -> bool:
        """Applies a move twice: the second time must change nothing (I4). False when it was refused."""
        try:
            moved = move(self.state)
        except RefusedError:
            return False
        assert move(moved) == moved
        self.state = moved
        return True

    @rule(changes=st.integers(0, 5))
    def append(self, changes: int) -> None:
        self.state = appended(self.state, changes)

    @rule(run=RUNS, takeover=st.booleans())
    def claim(self, run: str, takeover: bool) -> None:
        before = self.state.attempt
        asked = claims.Claim(run, "request", Kind.FULL, "2026-01-01T00:00:00+00:00", takeover)
        try:
            self.state = claims.claim(self.state, asked)
        except RefusedError:
            assert before is not None or not self.state.latest or not self.state.latest.published
            return
        if before and self.state.attempt != before:
            assert before.run == run or takeover
            self.fenced.add(before.id)

    @rule(data=st.data())
    def stage(self, data: st.DataObject) -> None:
        snapshot = self.any_snapshot(data)
        if snapshot is None:
            return
        manifest = manifest_of(self.state, snapshot)
        done = self.attempt_move(lambda s: moves.stage(s, manifest, f"digest-{snapshot.id}"))
        assert not (done and snapshot.id in self.fenced)

    @rule(data=st.data(), passed=st.booleans(), suite=st.sampled_from(["one", "two"]))
    def judge(self, data: st.DataObject, passed: bool, suite: str) -> None:
        snapshot = self.any_snapshot(data)
        if snapshot is None:
            return
        done = self.attempt_move(lambda s: moves.judge(s, snapshot.id, verdict_for(snapshot, passed, suite)))
        judged = self.state.snapshot(snapshot.id)
        if done and judged and judged.verdict and judged.verdict.passed:
            self.passed.add(snapshot.id)
        elif done:
            self.passed.discard(snapshot.id)

    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        snapshot = self.any_snapshot(data)
        if snapshot is None or not self.attempt_move(lambda s: moves.confirm(s, snapshot.id)):
            return
        assert snapshot.id in self.passed
        assert snapshot.id not in self.fenced
        if snapshot.id not in self.confirmed:
            self.confirmed.append(snapshot.id)

    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        snapshot = self.any_snapshot(data)
        if snapshot is None:
            return
        version = len(self.published)
        if self.attempt_move(lambda s: moves.published(s, snapshot.id, version)) and not snapshot.published:
            self.published.append(snapshot.id)

    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        snapshot = self.any_snapshot(data)
        if snapshot is None:
            return
        if self.attempt_move(lambda s: moves.abort(s, snapshot.id, "asked for")):
            assert snapshot.id not in self.confirmed

    @rule(keep=st.integers(1, 3))
    def subsume(self, keep: int) -> None:
        newest = self.confirmed[-keep:]
        self.attempt_move(lambda s: retention.subsume(s, keep))
        kept = {s.id for s in self.state.snapshots if s.state is State.COMPLETED}
        assert kept >= set(newest)
        assert kept >= {t.snapshot for t in self.state.tags}

    @rule(keep=st.integers(1, 3) | st.none())
    def truncate(self, keep: int | None) -> None:
        bounds = retention.bounds(self.state, keep)
        before = self.state.truncated_to
        self.attempt_move(lambda s: retention.truncate(s, keep))
        cut = self.state.truncated_to
        assert cut == before or all(cut <= bound.sqn for bound in bounds)
        assert [c.sqn for c in self.state.change_sets] == list(range(cut + 1, self.state.last_sqn + 1))

    @rule(data=st.data(), name=st.sampled_from(["x", "y"]))
    def tag(self, data: st.DataObject, name: str) -> None:
        snapshot = self.any_snapshot(data)
        if snapshot is not None and self.attempt_move(lambda s: retention.tag(s, name, snapshot.id)):
            assert snapshot.id in self.confirmed

    @rule(name=st.sampled_from(["x", "y"]))
    def untag(self, name: str) -> None:
        self.attempt_move(lambda s: retention.untag(s, name))

    @rule()
    def collect(self) -> None:
        gone = [s.id for s in retention.subsumed(self.state)]
        self.attempt_move(lambda s: retention.deleted(s, gone))
        garbage = self.state.garbage
        assert not {c.segment for c in self.state.change_sets} & set(garbage)
        self.attempt_move(lambda s: retention.collected(s, garbage))

    def any_snapshot(self, data: st.DataObject):
        if not self.state.snapshots:
            return None
        return data.draw(st.sampled_from(self.state.snapshots))

    @invariant()
    def confirmed_ids_rise(self) -> None:
        ever = [s.id for s in self.state.snapshots if s.state in CONFIRMED]
        assert ever == self.confirmed == sorted(self.confirmed)
        if self.confirmed:
            assert self.state.latest
            assert self.state.latest.id == self.confirmed[-1]

    @invariant()
    def ranges_touch(self) -> None:
        end = 0
        for snapshot in self.state.snapshots:
            if snapshot.state in CONFIRMED:
                assert snapshot.from_sqn == end
                end = snapshot.to_sqn
        needed = self.state.attempt.from_sqn if self.state.attempt else end
        assert self.state.truncated_to <= needed

    @invariant()
    def one_open_attempt_with_the_highest_epoch(self) -> None:
        open_ones = [s for s in self.state.snapshots if s.open]
        assert len(open_ones) <= 1
        assert all(s.epoch == self.state.epoch for s in open_ones)

    @invariant()
    def bases_are_confirmed_and_published_before(self) -> None:
        for snapshot in self.state.snapshots:
            if snapshot.base is not None:
                assert snapshot.base in self.confirmed
                assert snapshot.base in self.published

    @invariant()
    def completed_has_a_pass(self) -> None:
        for snapshot in self.state.snapshots:
            if snapshot.state is State.COMPLETED:
                assert snapshot.verdict
                assert snapshot.verdict.allows
                assert snapshot.verdict.manifest == snapshot.manifest


LifeCycle.TestCase.settings = settings(max_examples=500, stateful_step_count=50, deadline=None)
TestLifeCycle = pytest.mark.filterwarnings("ignore")(LifeCycle.TestCase)
