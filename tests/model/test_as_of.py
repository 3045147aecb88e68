"""Rows as of an instant against the naive program: any history, any engine, any instant (promises I5 and I25)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.builders import arrival, manifest_of, new_log, verdict_for
from support.effort import choose
from support.engine_cases import ANY, OWN, histories, named
from support.folding import folded
from support.naive import rows_of
from tidefold.domain.commit_times import CommitTimeRange
from tidefold.domain.ingest.append import append
from tidefold.domain.log_state import LogState, SnapshotKind, State
from tidefold.domain.retention import log_bounds
from tidefold.domain.retention.log_bounds import LogRetention
from tidefold.domain.snapshot import claim, point_in_time, transitions
from tidefold.domain.snapshot.claim import Claim, RestoreMode, RestorePoint
from tidefold.domain.table.table_spec import Engine, TableSpec
from tidefold.errors import RefusedError

Changes = list[dict[str, Any]]
INSTANTS = st.integers(1, 12)


@dataclass
class Life:
    """A log of some shape, the changes of each change set, and of each snapshot the sqns that it is made of.

    log: what is kept of it for backfills.
    """

    state: LogState
    log: LogRetention | None = None
    changes: dict[int, Changes] = field(default_factory=dict)
    made: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def sqns(self) -> tuple[int, ...]:
        """What the next snapshot would be made of."""
        latest = self.state.latest
        below, after = (self.made[latest.id], latest.to_sqn) if latest else ((), 0)
        return (*below, *range(after + 1, self.state.last_sqn + 1))

    def append(self, changes: Changes) -> None:
        times = [c["_ts"] for c in changes]
        brought = arrival(self.state, len(changes))
        assert brought.change_set
        timed = replace(brought.change_set, times=CommitTimeRange(min(times), max(times)))
        self.state = append(self.state, [replace(brought, change_set=timed)])
        self.changes[self.state.last_sqn] = changes

    def complete(self, restore: int | None = None) -> None:
        run, sqns = f"run-{len(self.state.snapshots)}", self.sqns if restore is None else self.made[restore]
        asked = RestorePoint(restore, RestoreMode.SKIP) if restore else None
        state = claim.claim(self.state, Claim(run, "", SnapshotKind.FULL, "", restore=asked))
        attempt = state.open_attempt
        if attempt is None:
            return
        self.made[attempt.id] = sqns
        state = transitions.stage(state, manifest_of(state, attempt), f"digest-{attempt.id}")
        state = transitions.record_verdict(state, attempt.id, verdict_for(state.snapshots[-1]))
        self.state = transitions.record_publication(transitions.confirm(state, attempt.id), attempt.id, len(self.made))

    def step(self, kind: str, pick: int) -> None:
        there = [s.id for s in self.state.snapshots if s.state is State.COMPLETED]
        if kind == "complete":
            self.complete()
        elif kind == "skip" and there:
            self.complete(there[pick % len(there)])
        elif kind == "retire":
            self.state = log_bounds.subsume(self.state, 2, self.log)
        elif kind == "cut":
            self.state = log_bounds.truncate(log_bounds.subsume(self.state, 1, self.log), 1, self.log)

    def rows_as_of(self, at: int) -> Changes | None:
        """Folded as the plan says; None: there is nothing. Raises what the plan raises."""
        plan = point_in_time.plan(self.state, at, None)
        if plan is None:
            return None
        folds = [self.changes[sqn] for sqn in self.made[plan.base.id]] if plan.base else []
        last = [c for one in plan.change_sets for c in self.changes[one.sqn] if c["_ts"] < at]
        return folded(self.state.shape, [*folds, last])


STEPS = st.lists(st.tuples(st.sampled_from(["complete", "complete", "skip", "retire", "cut", ""]), st.integers(0, 5)))


def lived(
    shape: TableSpec, parts: list[Changes], steps: list[tuple[str, int]], log: LogRetention | None = None
) -> Life:
    life = Life(new_log(shape), log)
    for number, part in enumerate(parts):
        life.append(part)
        for kind, pick in steps[number : number + 1]:
            life.step(kind, pick)
    return life


def check(life: Life, at: int) -> None:
    shape = life.state.shape
    before = [c for sqn in life.sqns for c in life.changes[sqn] if c["_ts"] < at]
    try:
        rows = life.rows_as_of(at)
    except RefusedError as error:
        check_refused(life, at, error)
        return
    assert (rows is None) == (not before)
    users = [{c.name: row[c.name] for c in shape.columns} for row in rows or ()]
    assert users == [{c.name: row[c.name] for c in shape.columns} for row in rows_of(shape, before)]


def check_refused(life: Life, at: int, error: RefusedError) -> None:
    """Only what was cut; and from some instant on it is always possible, as the newest snapshot itself serves."""
    latest = life.state.latest
    assert life.log is None or at < life.log.since
    assert error.code == "AS_OF_TOO_OLD"
    assert life.state.truncated_to > 0
    assert latest
    assert latest.max_commit_time is not None
    assert latest.max_commit_time >= at
    check(life, latest.max_commit_time + 1)


def parted(changes: Changes, seed: random.Random) -> list[Changes]:
    """Change sets of one to four changes."""
    parts, rest = [], list(changes)
    while rest:
        count = seed.randint(1, 4)
        parts.append(rest[:count])
        rest = rest[count:]
    return parts


@pytest.mark.rotates(4)
@pytest.mark.parametrize("case", [*OWN, *ANY], ids=lambda case: named(case))
@given(data=st.data(), seed=st.randoms(use_true_random=False), steps=STEPS, at=INSTANTS, since=st.none() | INSTANTS)
@settings(max_examples=choose(8, 60), deadline=None)
def test_any_history_as_of_any_instant_has_the_naive_rows(
    case: Any, data: st.DataObject, seed: random.Random, steps: list[tuple[str, int]], at: int, since: int | None
) -> None:
    """Commits are out of order, late ones come after snapshots; some changes were sent again, some were left out.

    since: from then on no instant is ever refused, whatever was retired and cut.
    """
    shape, ops, absent = case
    changes = data.draw(histories(shape, ops, absent))
    changes = [{**change, "_ts": data.draw(INSTANTS)} for change in changes]
    if case in ANY:
        changes = seed.sample(changes, len(changes))
    parts = parted(changes, seed)
    if shape.key and shape.merge.engine is not Engine.AGGREGATE:
        parts = [part + seed.sample(part, len(part) // 2) for part in parts]
    check(lived(shape, parts, steps, None if since is None else LogRetention(since, 1)), at)
