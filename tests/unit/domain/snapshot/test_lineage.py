"""Which older snapshots a snapshot's rows can be made again from, against an oracle that folds all it can think of.

Promises I5, I7, I10, I17; requirements L6, N7, N10.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from support.builders import appended, manifest_of, new_log, verdict_for
from support.effort import choose
from tidefold.domain.explain.key_history import layers
from tidefold.domain.ingest.append import resume
from tidefold.domain.log_state import ChangeSet, Expire, LogState, SnapshotKind, State
from tidefold.domain.retention import log_bounds
from tidefold.domain.snapshot import claim, transitions
from tidefold.domain.snapshot.claim import Claim, RestoreMode, RestorePoint
from tidefold.domain.snapshot.point_in_time import Older, older
from tidefold.errors import RefusedError

# The rows of a snapshot, told by which sqns they are made of, in order: enough to know them apart.
Made = tuple[int, ...]


@dataclass
class Life:
    """A log, and of every snapshot that was completed the sqns that it is made of, written down as it was made."""

    state: LogState = field(default_factory=new_log)
    made: dict[int, Made] = field(default_factory=dict)
    run: int = 0

    def append(self) -> None:
        # Somebody resumes a log that a restore has stopped.
        self.state = appended(resume(self.state))

    def complete(self, restore: RestorePoint | None = None, expire: Expire | None = None) -> None:
        self.run += 1
        asked = Claim(f"run-{self.run}", "", SnapshotKind.FULL, "", restore=restore, expire=expire)
        state = claim.claim(self.state, asked)
        attempt = state.open_attempt
        if attempt is None:
            return
        if restore:
            carries = restore.mode is RestoreMode.CARRY
            self.made[attempt.id] = self.made[(carries and attempt.parent) or restore.snapshot]
        else:
            latest = self.state.latest
            below = self.made[latest.id] if latest else ()
            after = latest.to_sqn if latest else 0
            self.made[attempt.id] = (*below, *range(after + 1, self.state.last_sqn + 1))
        state = transitions.stage(state, manifest_of(state, attempt), f"digest-{attempt.id}")
        staged = state.snapshot(attempt.id)
        assert staged
        state = transitions.record_verdict(state, attempt.id, verdict_for(staged))
        self.state = transitions.record_publication(transitions.confirm(state, attempt.id), attempt.id, self.run)

    def restore(self, pick: int, mode: RestoreMode) -> None:
        there = [s.id for s in self.state.snapshots if s.state is State.COMPLETED]
        if there:
            with suppress(RefusedError):  # The log is cut there.
                self.complete(RestorePoint(there[pick % len(there)], mode))

    def tail(self) -> None:
        self.run += 1
        if self.state.latest:
            before = self.state
            self.state = claim.tail(before, Claim(f"run-{self.run}", "", SnapshotKind.TAIL, ""))
            if self.state != before:
                [new] = self.state.snapshots[-1:]
                base = self.made[new.base or 0]
                self.made[new.id] = (*base, *range(new.from_sqn + 1, new.to_sqn + 1))

    def squash(self) -> None:
        for run in log_bounds.find_compactable_runs(self.state):
            location = replace(run[-1].location, segment=f"squash-{self.state.version}-{run[0].begin}.seg")
            one = replace(run[-1], first=run[0].begin, location=location)
            self.state = log_bounds.compact(self.state, one)

    def retire(self, pick: int) -> None:
        """Takes a snapshot's files away, as subsume does, but of any; never the newest's."""
        there = [s for s in self.state.snapshots if s.state is State.COMPLETED and s != self.state.latest]
        if there:
            self.state = self.state.with_snapshot(replace(there[pick % len(there)], state=State.DELETED))

    def cut(self, count: int) -> None:
        """Cuts the log anywhere, even where truncate would not."""
        sets = self.state.change_sets
        kept = sets[min(count, len(sets)) :]
        to = sets[-1].sqn if not kept else kept[0].begin - 1
        self.state = replace(self.state, change_sets=kept, truncated_to=to if sets else self.state.truncated_to)


STEPS = st.one_of(
    st.tuples(st.just("append")),
    st.tuples(st.just("append")),
    st.tuples(st.just("complete")),
    st.tuples(st.just("complete")),
    st.tuples(st.just("restore"), st.integers(0, 9), st.sampled_from(RestoreMode)),
    st.tuples(st.just("tail")),
    st.tuples(st.just("squash")),
    st.tuples(st.just("retire"), st.integers(0, 9)),
)


def lived(steps: list[tuple[object, ...]], cut: int) -> Life:
    life = Life()
    for name, *arguments in steps:
        getattr(life, str(name))(*arguments)
    if cut and life.state.change_sets:
        life.cut(cut)
    return life


def sqns(change_sets: tuple[ChangeSet, ...]) -> Made:
    return tuple(sqn for one in change_sets for sqn in range(one.begin, one.sqn + 1))


@settings(max_examples=choose(160, 400))
@given(st.lists(STEPS, max_size=25), st.integers(0, 3))
def test_what_is_offered_makes_exactly_the_rows_and_nothing_that_could_is_left_out(
    steps: list[tuple[object, ...]], cut: int
) -> None:
    life = lived(steps, cut)
    state = life.state
    for snapshot in state.snapshots:
        if snapshot.state is not State.COMPLETED or snapshot.kind is SnapshotKind.TAIL:
            continue
        offered = list(older(state, snapshot))
        for found in offered:
            below = life.made[found.snapshot.id] if found.snapshot else ()
            assert (*below, *sqns(found.change_sets)) == life.made[snapshot.id]
            assert found.snapshot is None or found.snapshot.state is State.COMPLETED
            assert found.snapshot is None or found.snapshot.kind is not SnapshotKind.TAIL
        assert {found.snapshot and found.snapshot.id for found in offered} == possible(life, snapshot.id)


def possible(life: Life, wanted: int) -> set[int | None]:
    """Every ancestor whose sqns begin those of the snapshot, and for which the log still has the rest, whole."""
    state = life.state
    whole = [tuple(range(c.begin, c.sqn + 1)) for c in state.change_sets]
    found: set[int | None] = set()
    for base in (None, *ancestors(state, wanted)):
        known = state.snapshot(base) if base else None
        if base and (known is None or known.state is not State.COMPLETED or known.kind is SnapshotKind.TAIL):
            continue
        below = life.made[base] if base else ()
        rest = life.made[wanted][len(below) :]
        assert life.made[wanted][: len(below)] == below
        used = [run for run in whole if set(run) <= set(rest)]
        if tuple(sqn for run in used for sqn in run) == rest:
            found.add(base)
    return found


def ancestors(state: LogState, wanted: int) -> list[int]:
    chain, current = [], state.snapshot(wanted)
    while current and current.parent is not None:
        chain.append(current.parent)
        current = state.snapshot(current.parent)
    return chain


@settings(max_examples=choose(80, 200))
@given(st.lists(STEPS, max_size=25))
def test_the_layers_of_a_snapshot_are_what_it_was_made_of(steps: list[tuple[object, ...]]) -> None:
    """What `explain` looks for the maker of a row in, the newest layer first."""
    life = lived(steps, 0)
    for snapshot in life.state.snapshots:
        found = [range(layer.after + 1, layer.to + 1) for layer in reversed(layers(life.state, snapshot))]
        assert tuple(sqn for span in found for sqn in span) == life.made[snapshot.id]


def test_the_nearest_comes_first() -> None:
    life = Life()
    for _ in range(4):
        life.append()
        life.complete()
    latest = life.state.latest
    assert latest
    ids = [found.snapshot.id if found.snapshot else 0 for found in older(life.state, latest)]
    assert ids == [3, 2, 1, 0]
    assert all(one > other for one, other in pairwise(ids))


def test_a_run_that_was_squashed_across_the_end_of_a_retired_snapshot_serves_as_a_whole() -> None:
    life = Life()
    for _ in range(3):
        life.append()
        life.complete()
    life.restore(0, RestoreMode.REPLAY)
    life.retire(1)
    life.squash()
    life.complete()
    assert [(c.begin, c.sqn) for c in life.state.change_sets] == [(1, 1), (2, 3)]
    third = life.state.snapshot(3)
    assert third
    # Snapshot 2 is gone; from 1 on the squashed run is just what lies between.
    assert [f.snapshot and f.snapshot.id for f in older(life.state, third)] == [1, None]


def test_ages_on_the_way_must_be_dropped_in_the_end() -> None:
    life = Life()
    limits = [None, Expire("day", "2026-01-01"), None, Expire("day", "2026-02-01")]
    for limit in limits:
        life.append()
        life.complete(expire=limit)
    latest = life.state.latest
    assert latest
    found = {f.snapshot.id if f.snapshot else 0: f for f in older(life.state, latest)}
    assert [e.before for e in found[1].expired] == ["2026-02-01", "2026-01-01"]
    assert found[3].expired == (limits[3],)
    assert found[1].suits(Expire("day", "2026-02-01"))
    assert found[1].suits(Expire("day", "2026-03-01"))
    for other in (None, Expire("day", "2026-01-15"), Expire("other", "2026-03-01")):
        assert not found[1].suits(other)
    assert Older(None, ()).suits(None)
