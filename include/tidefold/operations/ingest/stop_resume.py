"""Stops a log for a savepoint, and resumes it."""

from __future__ import annotations

import hashlib

from tidefold.domain.ingest import append
from tidefold.domain.log_state import LogState, Stopped
from tidefold.domain.snapshot.claim import name_span
from tidefold.domain.wording import shorten_reason
from tidefold.errors import InvalidInputError
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline, apply_transition, now


def stop(pipeline: Pipeline, log: str, address: str, by: str, why: str) -> Stopped:
    """Stops the log, so that it accepts no changes. A repeated call continues the first one.

    Returns the stop, whose run makes the last snapshot.

    Raises NotFoundError, RefusedError if it was stopped for another address.
    """
    if not by.strip() or not why.strip():
        raise InvalidInputError(
            "STOP_UNNAMED", "A log stops only with a reason and the name of the person who stops it."
        )
    instant = now()
    run = f"stop-{hashlib.sha256(f'{log} {address} {instant}'.encode()).hexdigest()[:12]}"
    stopped = Stopped(run, shorten_reason(by), shorten_reason(why), address, instant)
    state = pipeline.ledger(log).commit(lambda current: append.stop(current, stopped))
    return state.stopped or stopped


def resume(pipeline: Pipeline, log: str) -> Outcome:
    """Lets the log accept changes again. Raises NotFoundError."""

    def describe(state: LogState) -> Outcome:
        stopped = state.stopped
        if stopped is None:
            return Outcome(log, Status.NOTHING, "the log is not stopped")
        message = f"the log accepts changes again; {stopped.by} had stopped it: {stopped.why}"
        if waiting := state.unfolded:
            message += f"; the next run folds {name_span(waiting[0].begin, waiting[-1].sqn)}"
        return Outcome(log, Status.RESUMED, message)

    return apply_transition(pipeline, log, append.resume, describe)
