"""Aborts an unconfirmed attempt and deletes its files."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace

from tidefold.domain.log_state import LogState, Snapshot
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot import transitions
from tidefold.domain.wording import count_noun
from tidefold.errors import SupersededError, TidefoldError, wrap_unexpected
from tidefold.ledger.evidence import find_folders
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.snapshot_details import AbortDetails
from tidefold.operations.ground.sweep import sweep
from tidefold.operations.local_copies.manage import prune
from tidefold.operations.publish.publish_set import give_up_staged

_log = logging.getLogger(__name__)


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
    message = f"snapshot {chosen} aborted ({reason}), {count_noun(removed, 'file')} removed"
    return Outcome(log, Status.ABORTED, message, chosen, details=AbortDetails(files_removed=removed))


def _open_attempt(state: LogState, run_id: str | None) -> int | None:
    attempt = state.find_open(run_id)
    return attempt.id if attempt else None


def give_up_attempt(pipeline: Pipeline, log: str, snapshot: Snapshot, error: Exception) -> Outcome:
    """Aborts an attempt that failed. If that fails too, the outcome has the first error; the next run cleans up."""
    found = wrap_unexpected(error)
    if found is not error:
        _log.error("%s: %s", log, found, exc_info=error)
    ledger = pipeline.ledger(log)
    try:
        # If a newer attempt has deleted this one's files, the cause is SUPERSEDED, not a missing file.
        transitions.require_not_aborted(ledger.read(), snapshot.id)
        ledger.commit(lambda state: transitions.abort(state, snapshot.id, f"{found.code}: {found.message}"))
        sweep(pipeline.store, ledger)
    except SupersededError as superseded:
        found = superseded
        with suppress(TidefoldError):
            sweep(pipeline.store, ledger)
    except TidefoldError as second:
        _log.warning("%s: cleaning up after %s failed: %s", log, found.code, second)
    outcome = Outcome.of_error(log, found, snapshot.id)
    if found.code != "NAME_TAKEN" or outcome.error is None:
        return outcome
    return replace(
        outcome, error=replace(outcome.error, hint=_explain_taken(pipeline, log, snapshot, outcome.error.hint))
    )


def _explain_taken(pipeline: Pipeline, log: str, snapshot: Snapshot, hint: str) -> str:
    """Returns the next step if the store has folders of snapshots that the ledger does not have."""
    folders = [f"`{number:010d}`" for number in sorted(find_folders(pipeline.store, log)) if number >= snapshot.id]
    if not folders:
        return hint
    return (
        f"In `{LogPaths(log).snapshots}`, the ledger does not have {', '.join(folders)}: was only a half of the store "
        f"restored? Put newer `logs` and `tables` back, or move these folders away; then `tidefold run {log}`."
    )
