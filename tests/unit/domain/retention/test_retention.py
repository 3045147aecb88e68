"""What may go and what must stay. Promises I9, I10, I12, I18; requirement C11."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.builders import appended, arrival, manifest_of, new_log, verdict_for
from tidefold.domain.ingest.append import append
from tidefold.domain.log_state import ChangeSet, Consumer, Hold, LogState, SnapshotKind, State
from tidefold.domain.retention import log_bounds, references
from tidefold.domain.snapshot import claim, transitions
from tidefold.errors import ConflictError, InvalidInputError, NotFoundError, RefusedError


def with_snapshots(count: int, state: LogState | None = None) -> LogState:
    state = state or new_log()
    for number in range(count):
        state = appended(state)
        state = claim.claim(state, claim.Claim(f"run-{state.epoch}-{number}", "r", SnapshotKind.FULL, "2026"))
        attempt = state.open_attempt
        assert attempt
        state = transitions.stage(state, manifest_of(state, attempt), f"digest-{attempt.id}")
        assert state.open_attempt
        state = transitions.record_verdict(state, attempt.id, verdict_for(state.open_attempt))
        state = transitions.record_publication(transitions.confirm(state, attempt.id), attempt.id, attempt.id)
    return state


def states(state: LogState) -> list[str]:
    return [str(s.state) for s in state.snapshots]


def test_the_newest_and_the_tagged_stay() -> None:
    state = references.tag(with_snapshots(5), "monday", 2)
    kept = log_bounds.subsume(state, 2)
    assert states(kept) == ["SUBSUMED", "COMPLETED", "SUBSUMED", "COMPLETED", "COMPLETED"]
    assert log_bounds.subsume(kept, 2) == kept
    gone = log_bounds.mark_deleted(kept, [1, 3, 4])
    assert states(gone) == ["DELETED", "COMPLETED", "DELETED", "COMPLETED", "COMPLETED"]


def test_a_tag_of_a_retired_snapshot_is_refused() -> None:
    state = log_bounds.subsume(with_snapshots(3), 2)
    with pytest.raises(RefusedError) as refused:
        references.tag(state, "late", 1)
    assert refused.value.code == "WRONG_STATE"
    with pytest.raises(NotFoundError):
        references.tag(state, "late", 9)


def test_a_tag_names_one_snapshot_until_it_is_freed() -> None:
    state = references.tag(with_snapshots(3), "monday", 2)
    assert references.tag(state, "monday", 2) == state
    with pytest.raises(RefusedError) as refused:
        references.tag(state, "monday", 3)
    assert refused.value.code == "TAG_TAKEN"
    assert references.tag(references.untag(state, "monday"), "monday", 3).tags[0].snapshot == 3


def test_nothing_folded_nothing_cut() -> None:
    state = appended(new_log())
    assert log_bounds.bounds(state, 2) == ()
    assert log_bounds.truncate(state, 2) == state


def test_the_log_is_cut_behind_the_oldest_kept_snapshot_and_the_bound_says_so() -> None:
    state = appended(with_snapshots(5))
    cut = log_bounds.truncate(state, 2)
    assert [b.name for b in log_bounds.bounds(state, 2)] == ["replay", "materialized"]
    assert cut.truncated_to == 4
    assert [c.sqn for c in cut.change_sets] == [5, 6]
    assert len(cut.garbage) == 4
    assert log_bounds.truncate(cut, 2) == cut
    assert log_bounds.forget_garbage(cut, cut.garbage).garbage == ()


def test_a_tag_keeps_its_snapshot_and_not_the_log() -> None:
    state = references.tag(with_snapshots(5), "monday", 1)
    assert log_bounds.truncate(state, 2).truncated_to == 4


def test_keeping_all_snapshots_keeps_the_log_of_the_first() -> None:
    assert log_bounds.truncate(with_snapshots(5), None).truncated_to == 1


def test_an_open_attempt_keeps_what_it_folds() -> None:
    state = appended(with_snapshots(3))
    state = claim.claim(state, claim.Claim("next", "r", SnapshotKind.FULL, "2026"))
    cut = log_bounds.truncate(state, 1)
    assert cut.truncated_to == 3
    assert {b.name: b.sqn for b in log_bounds.bounds(state, 1)} == {"replay": 3, "materialized": 3, "attempt": 3}


def test_a_log_cut_to_its_end_goes_on_with_the_next_number() -> None:
    cut = log_bounds.truncate(with_snapshots(3), 1)
    assert cut.change_sets == ()
    assert cut.last_sqn == 3
    more = with_snapshots(1, cut)
    assert more.latest
    assert (more.latest.from_sqn, more.latest.to_sqn) == (3, 4)


def test_a_segment_goes_only_when_no_change_set_needs_it() -> None:
    from dataclasses import replace

    state = with_snapshots(3)
    shared = tuple(replace(c, location=replace(c.location, segment="changelog/one.seg")) for c in state.change_sets)
    assert log_bounds.truncate(replace(state, change_sets=shared), 2).garbage == ()
    assert log_bounds.truncate(replace(state, change_sets=shared), 1).garbage == ("changelog/one.seg",)


def test_keeping_none_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        log_bounds.subsume(with_snapshots(1), 0)


def test_unfinished_states_are_never_retired() -> None:
    state = claim.claim(appended(with_snapshots(2)), claim.Claim("next", "r", SnapshotKind.FULL, "2026"))
    assert log_bounds.subsume(state, 1).open_attempt
    assert log_bounds.subsume(state, 1).open_attempt.state is State.ONGOING  # type: ignore[union-attr]


def with_tail(state: LogState, run: str = "tail") -> LogState:
    """One more change set, and a tail-only snapshot of it."""
    return claim.tail(appended(state), claim.Claim(run, "t", SnapshotKind.TAIL, "2026"))


def bound_of(state: LogState, name: str, keep: int | None = 1) -> int | None:
    return next((b.sqn for b in log_bounds.bounds(state, keep) if b.name == name), None)


def test_a_tail_keeps_the_change_sets_that_it_consists_of() -> None:
    """I9, C10: also those that a later snapshot folded."""
    state = with_tail(with_tail(with_snapshots(2), "tail-1"), "tail-2")
    assert [(t.from_sqn, t.to_sqn) for t in log_bounds.tails(state)] == [(2, 3), (2, 4)]
    later = with_snapshots(1, state)
    cut = log_bounds.truncate(later, 1)
    assert (bound_of(later, "tail"), bound_of(later, "replay"), cut.truncated_to) == (2, 5, 2)
    [said] = [b.why for b in log_bounds.bounds(later, 1) if b.name == "tail"]
    assert said == "tail-only snapshots 3 and 1 more consist of what follows"
    retired = log_bounds.subsume(later, 1)
    assert log_bounds.tails(retired) == ()
    assert log_bounds.truncate(retired, 1).truncated_to == 5


def test_tails_stay_and_go_with_their_base() -> None:
    """I18: they are not counted among the newest N."""
    state = with_tail(with_snapshots(3))
    assert [s.id for s in log_bounds.newest(state, 2)] == [2, 3]
    assert log_bounds.find_protected(state, 2) == {2, 3, 4}
    state = with_snapshots(1, state)
    assert log_bounds.find_protected(state, 2) == {3, 4, 5}
    assert log_bounds.find_protected(with_snapshots(1, state), 2) == {5, 6}


def test_a_tagged_tail_keeps_its_base_and_no_other_tail() -> None:
    """I10, C11."""
    state = with_tail(with_tail(with_snapshots(1), "tail-1"), "tail-2")
    state = with_snapshots(2, references.tag(state, "mine", 2))
    assert log_bounds.find_protected(state, 1) == {1, 2, 5}
    kept = log_bounds.subsume(state, 1)
    assert states(kept) == ["COMPLETED", "COMPLETED", "SUBSUMED", "SUBSUMED", "COMPLETED"]
    assert log_bounds.with_files(log_bounds.list_subsumed(kept)) == (kept.snapshots[3],)
    assert log_bounds.truncate(kept, 1).truncated_to == 1


def test_a_hold_keeps_its_snapshot_and_the_log_behind_it() -> None:
    state = references.hold(with_snapshots(5), Hold("audit", 2, "until May"))
    assert references.hold(state, Hold("audit", 2, "until May")) == state
    assert log_bounds.find_protected(state, 1) == {2, 5}
    [first, *_] = log_bounds.bounds(state, 1)
    assert (first.name, first.sqn, first.why) == ("hold audit", 2, "it is held: until May")
    assert log_bounds.truncate(state, 1).truncated_to == 2
    freed = references.release(state, "audit")
    assert references.release(freed, "audit") == freed
    assert (log_bounds.truncate(freed, 1).truncated_to, log_bounds.find_protected(freed, 1)) == (5, {5})


def test_a_held_tail_keeps_the_log_from_where_it_begins() -> None:
    state = references.hold(with_tail(with_snapshots(2)), Hold("audit", 3, "why"))
    assert bound_of(with_snapshots(2, state), "hold audit") == 2


def test_what_cannot_be_held_is_refused_by_name() -> None:
    """Garbage is one-way; nothing that is marked comes back."""
    cut = log_bounds.truncate(references.tag(with_snapshots(5), "old", 1), 2)
    for state, snapshot in ((log_bounds.subsume(cut, 2), 2), (cut, 1)):
        with pytest.raises(RefusedError) as refused:
            references.hold(state, Hold("audit", snapshot, "why"))
        assert refused.value.code == "CANNOT_HOLD"
    with pytest.raises(RefusedError) as taken:
        references.hold(references.hold(cut, Hold("audit", 5, "why")), Hold("audit", 4, "why"))
    assert taken.value.code == "HOLD_TAKEN"


def test_the_slowest_reader_bounds_the_cut() -> None:
    """C11."""
    state = with_snapshots(5)
    state = references.register(references.register(state, Consumer("slow", 1)), Consumer("fast", 4))
    assert [(b.name, b.sqn) for b in log_bounds.bounds(state, 1)][:2] == [("consumer slow", 1), ("consumer fast", 4)]
    assert log_bounds.truncate(state, 1).truncated_to == 1
    state = references.register(state, Consumer("slow", 5))
    assert log_bounds.truncate(state, 1).truncated_to == 4
    assert log_bounds.truncate(references.unregister(state, "fast"), 1).truncated_to == 5
    # A consumer keeps the log and no snapshot.
    assert log_bounds.find_protected(state, 1) == {5}


def test_a_consumer_stands_inside_the_log() -> None:
    cut = log_bounds.truncate(with_snapshots(5), 2)
    hints = {
        cut.truncated_to - 1: "Read a snapshot first, and register at its sqn.",
        cut.last_sqn + 1: f"Use {cut.last_sqn} or less.",
    }
    for sqn, hint in hints.items():
        with pytest.raises(RefusedError) as refused:
            references.register(cut, Consumer("index", sqn))
        assert (refused.value.code, refused.value.hint) == ("CONSUMER_OUTSIDE_LOG", hint)
        assert f"Positions {cut.truncated_to} to {cut.last_sqn} are possible." in refused.value.message
    for sqn in (cut.truncated_to, cut.last_sqn):
        assert references.register(cut, Consumer("index", sqn)).consumers == (Consumer("index", sqn),)


def test_a_restore_under_way_keeps_what_it_is_built_from() -> None:
    """I10: of a tail its base and its change sets."""
    state = references.tag(with_tail(with_snapshots(1)), "mine", 2)
    state = with_snapshots(3, state)
    back = claim.RestorePoint(2, claim.RestoreMode.REPLAY)
    state = claim.claim(state, claim.Claim("back", "r", SnapshotKind.FULL, "2026", restore=back))
    state = references.untag(state, "mine")
    assert log_bounds.find_protected(state, 1) == {1, 5}
    assert (bound_of(state, "attempt"), log_bounds.truncate(state, 1).truncated_to) == (1, 1)
    assert log_bounds.truncate(log_bounds.subsume(state, 1), 1).truncated_to == 1


def test_a_restore_under_way_keeps_each_older_snapshot_that_it_may_link_from() -> None:
    """I10: the only good copy of a file may lie in any of them."""
    state = references.tag(with_snapshots(4), "mine", 3)
    back = claim.RestorePoint(3, claim.RestoreMode.REPLAY)
    state = claim.claim(state, claim.Claim("back", "r", SnapshotKind.FULL, "2026", restore=back))
    state = references.untag(state, "mine")
    assert log_bounds.find_protected(state, 1) == {1, 2, 3, 4}
    assert [s.id for s in log_bounds.list_subsumed(log_bounds.subsume(state, 1))] == []


def test_after_a_replay_the_log_behind_it_stays_until_it_is_folded_again() -> None:
    """I9."""
    state = references.tag(with_snapshots(3), "mine", 1)
    back = claim.RestorePoint(1, claim.RestoreMode.REPLAY)
    state = claim.claim(state, claim.Claim("back", "r", SnapshotKind.FULL, "2026", restore=back))
    assert state.open_attempt
    state = transitions.stage(state, manifest_of(state, state.open_attempt), "digest-back")
    state = transitions.record_verdict(state, 4, verdict_for(state.snapshots[-1]))
    state = transitions.record_publication(transitions.confirm(state, 4), 4, 9)
    assert [c.sqn for c in state.unfolded] == [2, 3]
    assert (bound_of(state, "materialized"), log_bounds.truncate(state, 1).truncated_to) == (1, 1)


def test_only_the_tail_is_squashed_and_not_across_who_needs_its_parts() -> None:
    """C12: the end of a tail-only snapshot, a consumer, and everything while an attempt is made."""
    state = with_tail(appended(appended(with_snapshots(2))))
    state = appended(appended(appended(state)))
    assert [[c.sqn for c in run] for run in log_bounds.find_compactable_runs(state)] == [[3, 4, 5], [6, 7, 8]]
    read = references.register(state, Consumer("index", 7))
    assert [[c.sqn for c in run] for run in log_bounds.find_compactable_runs(read)] == [[3, 4, 5], [6, 7]]
    claimed = claim.claim(state, claim.Claim("next", "r", SnapshotKind.FULL, "2026"))
    assert log_bounds.find_compactable_runs(claimed) == ()
    assert log_bounds.find_compactable_runs(with_snapshots(2)) == ()


def test_a_run_that_somebody_else_squashed_with_more_is_gone_and_no_crash() -> None:
    state = with_snapshots(1)
    for _ in range(4):
        state = appended(state)
    one, other = state.unfolded[:2], state.unfolded[:3]
    rest = appended(appended(log_bounds.compact(state, squash_of(other))))
    with pytest.raises(ConflictError) as gone:
        log_bounds.compact(rest, squash_of(one))
    assert gone.value.code == "RUN_GONE"


def squash_of(run: tuple[ChangeSet, ...]) -> ChangeSet:
    location = replace(run[-1].location, segment=f"changelog/squash-{len(run)}.seg")
    return replace(run[-1], first=run[0].begin, location=location)


def test_a_segment_whose_beginning_was_cut_is_needed_again_when_its_writer_brings_the_rest() -> None:
    """I12, I20."""
    state = with_snapshots(1)
    segment = state.change_sets[0].location.segment
    cut = log_bounds.truncate(state, 1)
    assert cut.garbage == (segment,)
    rest = arrival(cut)
    assert rest.change_set
    location = replace(rest.change_set.location, segment=segment, ordinal=1)
    told = append(cut, [replace(rest, change_set=replace(rest.change_set, location=location))])
    assert told.garbage == ()
    assert segment in log_bounds.truncate(with_snapshots(1, told), 1).garbage
