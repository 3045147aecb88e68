"""How long files stay that readers of an older table version may still read. Promises I10, I22, I24."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.builders import appended, manifest_of, new_log, verdict_for
from tidefold.domain.log_state import LogState, SnapshotKind
from tidefold.domain.retention import log_bounds
from tidefold.domain.retention.log_bounds import Grace
from tidefold.domain.snapshot import claim, transitions


def published_hourly(count: int) -> LogState:
    """Snapshot n is shown from hour n on."""
    state = new_log()
    for hour in range(1, count + 1):
        state = transitions.record_publication(confirmed(state, hour), hour, hour - 1, instant(hour))
    return state


def confirmed(state: LogState, number: int) -> LogState:
    state = appended(state)
    state = claim.claim(state, claim.Claim(f"run-{number}", "r", SnapshotKind.FULL, instant(0)))
    state = transitions.stage(state, manifest_of(state, state.snapshots[-1]), f"digest-{number}")
    return transitions.confirm(transitions.record_verdict(state, number, verdict_for(state.snapshots[-1])), number)


def instant(hour: int, minute: int = 0) -> str:
    return f"2026-01-01T{hour:02d}:{minute:02d}:00+00:00"


def going(state: LogState, grace: Grace, at: str) -> list[int]:
    return [s.id for s in log_bounds.deletable(state, grace, at)]


def test_so_many_publications_are_waited_for() -> None:
    state = log_bounds.subsume(published_hourly(5), 2)
    assert going(state, Grace(publishes=2), instant(9)) == [1, 2, 3]
    assert going(state, Grace(publishes=3), instant(9)) == [1, 2]
    assert going(state, Grace(publishes=5), instant(9)) == []


@pytest.mark.parametrize(("at", "gone"), [(instant(3, 29), [1]), (instant(3, 30), [1, 2]), (instant(4, 30), [1, 2, 3])])
def test_so_many_minutes_after_it_was_replaced_are_waited_for(at: str, gone: list[int]) -> None:
    state = log_bounds.subsume(published_hourly(5), 2)
    assert going(state, Grace(minutes=30), at) == gone


def test_a_clock_can_only_delay() -> None:
    """In the year 2999 nothing goes that is not retired, or that too few publications have followed."""
    state = published_hourly(5)
    assert going(state, Grace(publishes=1), "2999-01-01T00:00:00+00:00") == []
    state = log_bounds.subsume(state, 2)
    assert going(state, Grace(publishes=3), "2999-01-01T00:00:00+00:00") == [1, 2]


def test_what_readers_see_now_stays_though_no_grace_is_asked_for() -> None:
    """Its successor is confirmed and not published yet."""
    state = log_bounds.subsume(confirmed(published_hourly(1), 2), 1)
    assert log_bounds.list_subsumed(state)
    assert going(state, Grace(0), instant(0)) == []


def test_a_snapshot_of_a_rebuilt_ledger_has_only_the_instant_of_its_beginning() -> None:
    state = log_bounds.subsume(published_hourly(4), 2)
    state = replace(state, snapshots=tuple(replace(s, published_at="") for s in state.snapshots))
    assert going(state, Grace(minutes=30), instant(0, 29)) == []
    assert going(state, Grace(minutes=30), instant(0, 30)) == [1, 2]
