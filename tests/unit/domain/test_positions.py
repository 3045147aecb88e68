"""Where the source stood at an earlier sqn: against a program that remembers it. N9, I7."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.builders import new_log, verdict_for
from tidefold.domain.external_snapshot import External, Layout, Ownership
from tidefold.domain.ingest import append as append_module
from tidefold.domain.ingest.append import IngestedFile, append
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import ChangeSet, ChangeSetLocation, LogState, SnapshotKind, State, Stopped
from tidefold.domain.retention.log_bounds import compact, find_compactable_runs
from tidefold.domain.snapshot import claim, transitions
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.source_progress import NO_PROGRESS, LandedFileRecord, Position, SourceProgress, StreamPosition
from tidefold.domain.source_progress_history import continue_from, positions_at
from tidefold.errors import RefusedError

# Of each landed file: partition, how many offsets it has, by how much the order rises, whether a change is in it.
FILES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 4), st.booleans()), max_size=25)


def landed(state: LogState, number: int, file: tuple[int, int, int, bool]) -> LogState:
    partition, offsets, rise, changes = file
    before = next((p for p in state.positions if p.partition == partition), Position("t", partition, 0))
    high = (1, (before.stream.max_order[1] if before.stream.max_order else 0) + rise)
    end = before.next_offset + offsets
    account = LandedFileRecord(0, f"f{number}", 1, "", "t", partition, before.next_offset, end, 0, 0, 0, 0, 0, 0, None)
    change_set = ChangeSet(0, ChangeSetLocation(f"changelog/{number}.seg", 0, 8, 10, ""), 1, KeyGroups(0, 15), high)
    return append(
        state,
        [IngestedFile(account, change_set if changes else None, Position("t", partition, end, StreamPosition(high)))],
    )


def grown(files: list[tuple[int, int, int, bool]]) -> tuple[LogState, dict[int, list[tuple[Position, ...]]]]:
    """The log, and of each sqn all positions that the source had while the log ended with it."""
    state, seen = new_log(), {0: [()]}
    for number, file in enumerate(files):
        state = landed(state, number, file)
        seen.setdefault(state.last_sqn, []).append(state.positions)
    return state, seen


def as_map(positions: tuple[Position, ...]) -> dict[int, Position]:
    return {p.partition: p for p in positions}


@given(FILES, st.data())
def test_each_partition_stands_where_it_stood_while_the_log_ended_there(
    files: list[tuple[int, int, int, bool]], data: st.DataObject
) -> None:
    """Exactly as it was at one moment between that change set and the next one of its partition."""
    state, seen = grown(files)
    sqn = data.draw(st.integers(0, state.last_sqn))
    found = as_map(positions_at(state, sqn))
    at_once, at_last = as_map(seen[sqn][0]), as_map(seen[state.last_sqn][-1])
    assert set(at_once) <= set(found)
    for partition, position in found.items():
        possible = [
            at_once.get(partition),
            *(as_map(p).get(partition) for n in range(sqn, state.last_sqn + 1) for p in seen[n]),
        ]
        assert position in possible
        # Never too high: of what comes later in the partition nothing is passed over.
        later = [e for e in state.landed if e.partition == partition and (e.sqn or 0) > sqn]
        assert all(position.next_offset <= e.first_offset for e in later)
        assert position.next_offset <= at_last[partition].next_offset


@given(FILES)
def test_a_squash_changes_no_position(files: list[tuple[int, int, int, bool]]) -> None:
    state, _ = grown(files)
    squashed = state
    for run in find_compactable_runs(state):
        location = replace(run[-1].location, segment=f"changelog/s{run[0].sqn}.seg")
        one = replace(run[-1], location=location, first=run[0].begin)
        squashed = compact(squashed, one)
    for change_set in squashed.change_sets:
        assert positions_at(squashed, change_set.sqn) == positions_at(state, change_set.sqn)


# What an import does to a log

POSITIONS = (Position("t", 0, 47, StreamPosition((1, 46))), Position("t", 1, 3, StreamPosition((1, 2))))
ORIGINAL = External("/save", Ownership.CLAIM, Layout.NATIVE, "ab", "accounts", 9, 17, SourceProgress(POSITIONS))


def claimed(state: LogState, run: str = "in", original: External = ORIGINAL) -> LogState:
    asked = claim.Claim(run, "r", SnapshotKind.INCREMENTAL, "2026-01-01T00:00:00+00:00", external=original)
    return claim.claim(state, asked)


def confirmed(state: LogState) -> LogState:
    attempt = state.open_attempt
    assert attempt
    manifest = Manifest(
        "accounts", attempt.id, attempt.epoch, attempt.kind, attempt.base, 0, 0, state.shape, (), NO_PROGRESS
    )
    state = transitions.stage(state, manifest, "digest")
    assert state.open_attempt
    state = transitions.record_verdict(state, attempt.id, verdict_for(state.open_attempt))
    return transitions.record_publication(transitions.confirm(state, attempt.id), attempt.id, attempt.id)


def test_a_new_log_takes_sqn_and_positions_over_when_the_import_counts_and_not_before() -> None:
    state = claimed(new_log())
    assert (state.positions, state.landed, state.truncated_to) == ((), (), 0)
    with pytest.raises(RefusedError) as refused:
        landed(state, 1, (0, 1, 1, True))
    assert refused.value.code == "IMPORT_OPEN"
    state = confirmed(state)
    assert (state.last_sqn, state.truncated_to, state.positions) == (17, 17, POSITIONS)
    assert state.landed == continue_from(new_log(), SourceProgress(POSITIONS)).landed
    state = landed(state, 1, (0, 1, 1, True))
    assert (state.last_sqn, state.positions[0].next_offset) == (18, 48)
    assert positions_at(state, 17) == POSITIONS


def test_an_aborted_import_leaves_a_new_log_as_it_was() -> None:
    state = claimed(new_log())
    assert state.open_attempt
    state = transitions.abort(state, state.open_attempt.id, "no")
    state = landed(state, 1, (0, 1, 1, True))
    assert state.last_sqn == 1


def test_a_claimed_original_is_claimed_once_until_it_is_deleted() -> None:
    state = confirmed(claimed(new_log()))
    for ownership in Ownership:
        with pytest.raises(RefusedError) as refused:
            claimed(state, "again", replace(ORIGINAL, ownership=ownership))
        assert refused.value.code == "ORIGINAL_CLAIMED"
    assert claimed(state, "other", replace(ORIGINAL, address="/other")).open_attempt
    [snapshot] = state.snapshots
    gone = state.with_snapshot(replace(snapshot, state=State.DELETED))
    assert claim.find_owners(gone) == ()


def test_a_log_is_stopped_once_for_one_address() -> None:
    first = Stopped("run", "me", "why", "/save", "2026-01-01T00:00:00+00:00")
    state = append_module.stop(new_log(), first)
    assert append_module.stop(state, replace(first, run="again", by="you")) is state
    with pytest.raises(RefusedError) as refused:
        append_module.stop(state, replace(first, address="/other"))
    assert refused.value.code == "LOG_STOPPED"
    with pytest.raises(RefusedError):
        landed(state, 1, (0, 1, 1, True))
    assert append_module.resume(state) == new_log()
    assert append_module.resume(new_log()) == new_log()
