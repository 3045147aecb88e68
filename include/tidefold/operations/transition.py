"""Applies one transition of a log and describes it. `tag`, `hold`, `consumer` and `resume` share this."""

from __future__ import annotations

from collections.abc import Callable

from tidefold.domain.log_state import LogState
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.pipeline import Pipeline


def apply_transition(
    pipeline: Pipeline,
    log: str,
    transition: Callable[[LogState], LogState],
    describe: Callable[[LogState], Outcome],
) -> Outcome:
    """Commits the transition. Returns its outcome, which `describe` makes from the earlier state.

    An outcome with the status `nothing` commits nothing.
    """
    ledger = pipeline.ledger(log)
    outcome = describe(ledger.read())
    if outcome.status is not Status.NOTHING:
        ledger.commit(transition)
    return outcome
