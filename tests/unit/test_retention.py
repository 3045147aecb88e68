"""What may go and what must stay. Promises I9, I10, I12, I18; requirement C11; complaints 11, 12."""

from __future__ import annotations

import pytest

from builders import appended, manifest_of, new_log, verdict_for
from tidefold.lifecycle import claims, moves, retention
from tidefold.lifecycle.errors import InvalidInputError, NotFoundError, RefusedError
from tidefold.lifecycle.values import Kind, LogState, State


def with_snapshots(count: int, state: LogState | None = None) -> LogState:
    state = state or new_log()
    for number in range(count):
        state = appended(state)
        state = claims.claim(state, claims.Claim(f"run-{state.epoch}-{number}", "r", Kind.FULL, "2026"))
        attempt = state.attempt
        assert attempt
        state = moves.stage(state, manifest_of(state, attempt), f"digest-{attempt.id}")
        assert state.attempt
        state = moves.judge(state, attempt.id, verdict_for(state.attempt))
        state = moves.published(moves.confirm(state, attempt.id), attempt.id, attempt.id)
    return state


def states(state: LogState) -> list[str]:
    return [str(s.state) for s in state.snapshots]


def test_the_newest_and_the_tagged_stay() -> None:
    state = retention.tag(with_snapshots(5), "monday", 2)
    kept = retention.subsume(state, 2)
    assert states(kept) == ["SUBSUMED", "COMPLETED", "SUBSUMED", "COMPLETED", "COMPLETED"]
    assert retention.subsume(kept, 2) == kept
    gone = retention.deleted(kept, [1, 3, 4])
    assert states(gone) == ["DELETED", "COMPLETED", "DELETED", "COMPLETED", "COMPLETED"]


def test_a_tag_of_a_retired_snapshot_is_refused() -> None:
    state = retention.subsume(with_snapshots(3), 2)
    with pytest.raises(RefusedError) as refused:
        retention.tag(state, "late", 1)
    assert refused.value.code == "WRONG_STATE"
    with pytest.raises(NotFoundError):
        retention.tag(state, "late", 9)


def test_a_tag_names_one_snapshot_until_it_is_freed() -> None:
    state = retention.tag(with_snapshots(3), "monday", 2)
    assert retention.tag(state, "monday", 2) == state
    with pytest.raises(RefusedError) as refused:
        retention.tag(state, "monday", 3)
    assert refused.value.code == "TAG_TAKEN"
    assert retention.tag(retention.untag(state, "monday"), "monday", 3).tags[0].snapshot == 3


def test_nothing_folded_nothing_cut() -> None:
    state = appended(new_log())
    assert retention.bounds(state, 2) == ()
    assert retention.truncate(state, 2) == state


def test_the_log_is_cut_behind_the_oldest_kept_snapshot_and_the_bound_says_so() -> None:
    state = appended(with_snapshots(5))
    cut = retention.truncate(state, 2)
    assert [b.name for b in retention.bounds(state, 2)] == ["replay", "materialized"]
    assert cut.truncated_to == 4
    assert [c.sqn for c in cut.change_sets] == [5, 6]
    assert len(cut.garbage) == 4
    assert retention.truncate(cut, 2) == cut
    assert retention.collected(cut, cut.garbage).garbage == ()


def test_a_tag_keeps_its_snapshot_and_not_the_log() -> None:
    state = retention.tag(with_snapshots(5), "monday", 1)
    assert retention.truncate(state, 2).truncated_to == 4


def test_keeping_all_snapshots_keeps_the_log_of_the_first() -> None:
    assert retention.truncate(with_snapshots(5), None).truncated_to == 1


def test_an_open_attempt_keeps_what_it_folds() -> None:
    state = appended(with_snapshots(3))
    state = claims.claim(state, claims.Claim("next", "r", Kind.FULL, "2026"))
    cut = retention.truncate(state, 1)
    assert cut.truncated_to == 3
    assert {b.name: b.sqn for b in retention.bounds(state, 1)} == {"replay": 3, "materialized": 3, "attempt": 3}


def test_a_log_cut_to_its_end_goes_on_with_the_next_number() -> None:
    cut = retention.truncate(with_snapshots(3), 1)
    assert cut.change_sets == ()
    assert cut.last_sqn == 3
    more = with_snapshots(1, cut)
    assert more.latest
    assert (more.latest.from_sqn, more.latest.to_sqn) == (3, 4)


def test_a_segment_goes_only_when_no_change_set_needs_it() -> None:
    from dataclasses import replace

    state = with_snapshots(3)
    shared = tuple(replace(c, segment="changelog/one.seg") for c in state.change_sets)
    assert retention.truncate(replace(state, change_sets=shared), 2).garbage == ()
    assert retention.truncate(replace(state, change_sets=shared), 1).garbage == ("changelog/one.seg",)


def test_keeping_none_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        retention.subsume(with_snapshots(1), 0)


def test_unfinished_states_are_never_retired() -> None:
    state = claims.claim(appended(with_snapshots(2)), claims.Claim("next", "r", Kind.FULL, "2026"))
    assert retention.subsume(state, 1).attempt
    assert retention.subsume(state, 1).attempt.state is State.ONGOING  # type: ignore[union-attr]
