"""Aborts an unconfirmed attempt and deletes its files."""

from __future__ import annotations

from tidefold.domain.log_state import LogState
from tidefold.domain.snapshot import transitions
from tidefold.operations.local_copies.manage import prune
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.retention.subsume import sweep
from tidefold.operations.sets.publish import give_up_staged
from tidefold.operations.snapshot.details import AbortDetails


def abort(
    pipeline: Pipeline,
    log: str,
    reason: str,
    snapshot: int | None = None,
    run_id: str | None = None,
    *,
    plan: bool = False,
) -> Outcome:
    """Aborts a snapshot: by id, by run, or the open one. A completed snapshot is refused if its id is given.

    With `plan` nothing changes. Raises RefusedError, NotFoundError.
    """
    ledger = pipeline.ledger(log)
    state = ledger.find()
    if state is None:
        return Outcome(log, Status.NOTHING, "the log has no snapshot yet")
    chosen = snapshot if snapshot is not None else _open_attempt(state, run_id)
    if chosen is not None and plan:
        aborted = transitions.require_snapshot(transitions.abort(state, chosen, reason), chosen)
        message = f"would abort snapshot {chosen} of run {aborted.run}, and delete its files"
        return Outcome(log, Status.PLANNED, message, chosen)
    if chosen is not None:
        give_up_staged(pipeline, log, state.snapshot(chosen))
        ledger.commit(lambda state: transitions.abort(state, chosen, reason))
        prune(pipeline, log, chosen)
    # Also deletes files of earlier attempts that were killed before they could clean up.
    removed = 0 if plan else sweep(pipeline.store, ledger)
    if chosen is None:
        message = "no attempt is open" if run_id is None else "this run has no open attempt"
        return Outcome(log, Status.NOTHING, message, details=AbortDetails(files_removed=removed))
    message = f"snapshot {chosen} aborted ({reason}), {removed} files removed"
    return Outcome(log, Status.ABORTED, message, chosen, details=AbortDetails(files_removed=removed))


def _open_attempt(state: LogState, run_id: str | None) -> int | None:
    attempt = state.open_of(run_id)
    return attempt.id if attempt else None
