"""Finds the tables of a set about which a person may still decide, and gives up a version that one of them refused."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.errors import TidefoldError
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.snapshot.abort import abort


def find_undecided(states: Iterable[LogState | None]) -> dict[str, Snapshot]:
    """Returns the staged snapshots that their gates refused, by log: each may still be let through, or aborted."""
    attempts = {state.log: state.open_attempt for state in states if state and state.open_attempt}
    return {
        log: one
        for log, one in attempts.items()
        if one and one.state is State.STAGED and one.verdict and not one.verdict.allows
    }


def abort_version(pipeline: Pipeline, log: str, reason: str, snapshot: int) -> Outcome:
    """Aborts a snapshot, and those that the same run staged for the other logs of its set.

    They would never be published without it, and would block the next run.
    """
    found = pipeline.ledger(log).read().snapshot(snapshot)
    outcome = abort(pipeline, log, reason, snapshot=snapshot)
    chosen = pipeline.config.set_of(log)
    for other in chosen.logs if chosen and found else ():
        state = pipeline.ledger(other).find() if other != log else None
        attempt = state.open_attempt if state else None
        if attempt and found and attempt.run == found.run:
            # It may have been decided about meanwhile.
            with suppress(TidefoldError):
                abort(pipeline, other, f"`{log}` of its set was aborted: {reason}", snapshot=attempt.id)
    return outcome
