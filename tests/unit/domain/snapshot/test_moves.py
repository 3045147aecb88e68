"""Refusals of the life cycle, each by its code. Promises I1, I3, I4, I8, I14."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.builders import SHAPE, appended, arrival, manifest_of, new_log, verdict_for
from tidefold.domain.ingest.append import append, check_shape
from tidefold.domain.log_state import LogState, SnapshotKind, State
from tidefold.domain.snapshot import claim as claims
from tidefold.domain.snapshot import transitions
from tidefold.errors import (
    ConflictError,
    GateFailedError,
    InvalidInputError,
    NotFoundError,
    RefusedError,
    SupersededError,
)


def claim(state: LogState, run: str = "run-1", request: str = "r", takeover: bool = False) -> LogState:
    return claims.claim(state, claims.Claim(run, request, SnapshotKind.FULL, "2026-01-01", takeover))


def staged(state: LogState, run: str = "run-1") -> LogState:
    state = claim(state, run)
    attempt = state.open_attempt
    assert attempt
    return transitions.stage(state, manifest_of(state, attempt), f"digest-{attempt.id}")


def judged(state: LogState, passed: bool = True) -> LogState:
    assert state.open_attempt
    return transitions.record_verdict(state, state.open_attempt.id, verdict_for(state.open_attempt, passed))


def published(state: LogState) -> LogState:
    state = judged(staged(state))
    assert state.open_attempt
    snapshot = state.open_attempt.id
    return transitions.record_publication(transitions.confirm(state, snapshot), snapshot, 0)


def second_confirmed() -> LogState:
    """The first snapshot is published, the second is confirmed."""
    return transitions.confirm(judged(staged(appended(published(appended(new_log()))), "run-2")), 2)


def test_a_claim_without_changes_begins_nothing() -> None:
    state = new_log()
    assert claim(state) == state


def test_the_same_run_gets_the_same_snapshot_even_when_more_arrived() -> None:
    state = appended(published(appended(new_log())))
    assert claim(state, "run-1") == state


def test_the_same_run_with_another_request_is_refused() -> None:
    with pytest.raises(RefusedError) as refused:
        claim(staged(appended(new_log())), request="other")
    assert refused.value.code == "RUN_CHANGED"


def test_an_open_attempt_blocks_other_runs_until_taken_over() -> None:
    state = claim(appended(new_log()), "run-1")
    with pytest.raises(RefusedError) as refused:
        claim(state, "run-2")
    assert refused.value.code == "ATTEMPT_OPEN"
    assert "run-1" in str(refused.value)
    taken = claim(state, "run-2", takeover=True)
    assert [(s.state, s.run) for s in taken.snapshots] == [(State.ABORTED, "run-1"), (State.ONGOING, "run-2")]


def test_the_next_step_names_what_goes_on_with_the_attempt_and_takeover_after_only_where_it_helps() -> None:
    hints = []
    for state in (claim(appended(new_log()), "run-1"), staged(appended(new_log()), "run-1")):
        with pytest.raises(RefusedError) as refused:
            claim(state, "run-2")
        hints.append(refused.value.hint)
    ongoing, waiting = hints
    assert "With `--takeover-after 600`, a run by cron does so" in ongoing
    # A staged snapshot may wait for a person, and sends no heartbeat.
    assert "`--takeover-after` leaves it to a person" in waiting
    log = new_log().log
    assert f"`tidefold run {log} --run run-1` goes on" in waiting
    assert f"`tidefold step abort {log}`" in waiting


def test_a_retry_of_the_run_supersedes_its_killed_attempt_and_the_zombie_is_refused_by_name() -> None:
    first = claim(appended(new_log()))
    second = claim(first)
    assert first.open_attempt
    with pytest.raises(SupersededError) as refused:
        transitions.stage(second, manifest_of(first, first.open_attempt), "digest")
    assert refused.value.code == "SUPERSEDED"
    assert "superseded by attempt 2" in str(refused.value)


def test_no_confirm_without_a_verdict_or_with_a_fail() -> None:
    state = staged(appended(new_log()))
    with pytest.raises(RefusedError) as refused:
        transitions.confirm(state, 1)
    assert refused.value.code == "NOT_JUDGED"
    with pytest.raises(GateFailedError):
        transitions.confirm(judged(state, passed=False), 1)


def test_the_ledger_keeps_no_more_than_the_beginning_of_a_long_reason() -> None:
    state = judged(staged(appended(new_log())), passed=False)
    long = "x" * 1_000_000
    overridden = transitions.override(state, 1, long, long).snapshots[0]
    aborted = transitions.abort(state, 1, long).snapshots[0]
    assert overridden.verdict
    for kept in (overridden.verdict.override_by, overridden.verdict.override_why, aborted.abort_reason):
        assert kept == "x" * 999 + "…"
    assert transitions.abort(state, 1, long[:1_000]).snapshots[0].abort_reason == long[:1_000]


def test_an_override_needs_a_name_and_a_reason_and_is_kept() -> None:
    state = judged(staged(appended(new_log())), passed=False)
    with pytest.raises(InvalidInputError):
        transitions.override(state, 1, "ann", " ")
    confirmed = transitions.confirm(transitions.override(state, 1, "ann", "known drop"), 1)
    assert confirmed.latest
    assert confirmed.latest.verdict
    assert (confirmed.latest.verdict.override_by, confirmed.latest.verdict.override_why) == ("ann", "known drop")


def test_a_verdict_for_other_files_does_not_bind() -> None:
    state = staged(appended(new_log()))
    assert state.open_attempt
    other = replace(verdict_for(state.open_attempt), manifest="other")
    with pytest.raises(RefusedError) as refused:
        transitions.record_verdict(state, 1, other)
    assert refused.value.code == "VERDICT_FOR_OTHER_FILES"


def test_a_verdict_for_other_files_completes_nothing() -> None:
    """As in a ledger that was edited by hand."""
    state = judged(staged(appended(new_log())))
    attempt = state.open_attempt
    assert attempt
    assert attempt.verdict
    edited = state.with_snapshot(replace(attempt, verdict=replace(attempt.verdict, manifest="other")))
    with pytest.raises(RefusedError) as refused:
        transitions.confirm(edited, 1)
    assert refused.value.code == "VERDICT_FOR_OTHER_FILES"


def test_a_completed_snapshot_cannot_be_aborted_and_an_aborted_one_not_confirmed() -> None:
    done = published(appended(new_log()))
    with pytest.raises(RefusedError) as refused:
        transitions.abort(done, 1, "no")
    assert refused.value.code == "WRONG_STATE"
    aborted = transitions.abort(staged(appended(new_log())), 1, "asked for")
    with pytest.raises(SupersededError) as gone:
        transitions.confirm(aborted, 1)
    assert gone.value.code == "ABORTED"


def test_the_next_snapshot_waits_for_the_publication_of_the_last() -> None:
    state = transitions.confirm(judged(staged(appended(new_log()))), 1)
    with pytest.raises(RefusedError) as refused:
        claim(appended(state), "run-2")
    assert refused.value.code == "NOT_PUBLISHED"


def test_a_snapshot_is_not_confirmed_before_the_last_one_is_published() -> None:
    state = second_confirmed()
    first = replace(state.snapshots[0], table_version=None)
    forged = state.with_snapshot(first).with_snapshot(replace(state.snapshots[1], state=State.STAGED))
    with pytest.raises(RefusedError) as refused:
        transitions.confirm(forged, 2)
    assert refused.value.code == "NOT_PUBLISHED"


def test_a_base_that_moved_is_refused_also_when_nobody_fenced_the_attempt() -> None:
    state = second_confirmed()
    forged = state.with_snapshot(replace(state.snapshots[1], base=None, state=State.STAGED))
    with pytest.raises(SupersededError) as moved:
        transitions.confirm(forged, 2)
    assert moved.value.code == "BASE_MOVED"


def test_an_unknown_snapshot_is_not_found() -> None:
    with pytest.raises(NotFoundError):
        transitions.confirm(new_log(), 7)


def test_an_abort_lets_the_same_run_begin_again_with_a_new_id() -> None:
    aborted = transitions.abort(claim(appended(new_log())), 1, "failed")
    again = claim(aborted)
    assert again.open_attempt
    assert (again.open_attempt.id, again.open_attempt.epoch, again.open_attempt.from_sqn) == (2, 2, 0)


def test_offsets_that_another_ingest_took_are_refused() -> None:
    state = new_log()
    late = arrival(state)
    other = replace(late, landed=replace(late.landed, checksum="01"))
    with pytest.raises(ConflictError) as refused:
        append(append(state, [late]), [other])
    assert refused.value.code == "OFFSETS_TAKEN"


def test_a_changed_shape_is_refused_by_name() -> None:
    with pytest.raises(RefusedError) as refused:
        check_shape(appended(new_log()), replace(SHAPE, key_groups=8))
    assert "key_groups" in refused.value.message


def test_another_number_of_buckets_is_no_other_shape() -> None:
    """The next full snapshot takes it up (L8)."""
    check_shape(appended(new_log()), replace(SHAPE, buckets=SHAPE.buckets + 1))


@pytest.mark.parametrize("reason", ["superseded", "superseded by newer prices", "a superseded by attempt 2"])
def test_a_person_who_aborts_supersedes_nothing(reason: str) -> None:
    """The cause is a value: no word of a person's reason decides which error the job gets."""
    state = claim(appended(new_log()))
    aborted = transitions.abort(state, 1, reason)
    with pytest.raises(SupersededError) as refused:
        transitions.require_not_aborted(aborted, 1)
    assert (refused.value.code, reason in refused.value.message) == ("ABORTED", True)


def test_what_a_ledger_says_of_a_superseded_attempt_is_read_as_that() -> None:
    """I27: the stored text is as ever."""
    state = claim(claim(appended(new_log())), "run-2", takeover=True)
    assert state.snapshots[0].abort_reason == "superseded by attempt 2"
    with pytest.raises(SupersededError) as refused:
        transitions.require_not_aborted(state, 1)
    assert refused.value.code == "SUPERSEDED"
