"""Snapshots as of an instant for tests: made in this process, with a gate that passes everything."""

from __future__ import annotations

from tidefold.compute.runners import in_process
from tidefold.domain.commit_times import micros
from tidefold.domain.log_state import LogState, Snapshot, State, Verdict
from tidefold.domain.snapshot import transitions
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import PointInTime
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize

DAY = 86_400_000_000


def day(number: int) -> int:
    """Returns the first instant of a day of November 2025, in microseconds."""
    return micros("2025-11-01T00:00:00Z") + (number - 1) * DAY


def staged(pipeline: Pipeline, at: int, run: str, log: str = "accounts") -> Outcome:
    """Makes the snapshot, without judging it."""
    [outcome] = materialize(pipeline, [log], PointInTime(run, at), in_process)
    return outcome


def judged(pipeline: Pipeline, run: str, log: str = "accounts") -> None:
    """Passes what a run has staged."""

    def move(state: LogState) -> LogState:
        mine = state.find_open(run)
        if mine is None or mine.state is not State.STAGED:
            return state
        return transitions.record_verdict(
            state, mine.id, Verdict(True, "suite", mine.manifest or "", "report.html", "1 of 1 checks")
        )

    pipeline.ledger(log).commit(move)


def kept_as_of(pipeline: Pipeline, at: int, run: str, log: str = "accounts") -> Outcome:
    """Runs all steps. Returns the outcome of the first step that failed, or of the confirmation."""
    made = staged(pipeline, at, run, log)
    if made.status != "staged" and not (made.status == "already" and "STAGED" in made.message):
        return made
    judged(pipeline, run, log)
    return confirm(pipeline, log, Confirmation(run=run))


def snapshot_of(pipeline: Pipeline, outcome: Outcome) -> Snapshot:
    found = pipeline.ledger(outcome.log).read().snapshot(outcome.snapshot or 0)
    assert found
    return found
