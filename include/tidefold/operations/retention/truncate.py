"""Truncates the log, and deletes the segments that nothing needs any more."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tidefold.domain.log_state import LogState
from tidefold.domain.retention import log_bounds
from tidefold.domain.wording import in_units
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.pipeline import Pipeline, now
from tidefold.operations.retention.details import TruncateDetails
from tidefold.operations.retention.segment_gc import plan_release
from tidefold.storage import delete_files


def truncate(pipeline: Pipeline, log: str, plan: bool = False) -> Outcome:
    """Truncates the log to its tightest bound. With `plan` nothing changes: the outcome lists what would be deleted.

    Also finishes an interrupted call.
    """
    ledger = pipeline.ledger(log)
    before = ledger.find()
    if before is None:
        return Outcome(log, Status.NOTHING, "the log is empty")
    keep, kept_log = pipeline.config.retention.keep, pipeline.config.retention.log_retention(now())
    cut = partial(log_bounds.truncate, keep=keep, log=kept_log)
    state = cut(before) if plan else ledger.commit(cut)
    released = plan_release(pipeline.store, state)
    if not plan and released.unneeded:
        ledger.require_current(state)
    if not plan:
        delete_files(pipeline.store, [entry.path for entry in released.unneeded], pipeline.config.retention.threads)
        ledger.commit(lambda current: log_bounds.forget_garbage(current, released.settled))
        ledger.prune()
    unneeded = {entry.path: entry.bytes for entry in released.unneeded}
    return _describe(before, state, unneeded, released.unreadable, log_bounds.bounds(state, keep, kept_log), plan)


def _describe(
    before: LogState,
    state: LogState,
    going: dict[str, int],
    unreadable: Sequence[str],
    found: tuple[log_bounds.Bound, ...],
    plan: bool,
) -> Outcome:
    size = sum(going.values())
    details = TruncateDetails(
        truncated_to=state.truncated_to,
        bounds=found,
        files=len(going),
        bytes=size,
        paths=sorted(going),
        unreadable=list(unreadable) or None,
    )
    holds = f"held by {found[0].name} at {found[0].sqn}: {found[0].why}" if found else "nothing was folded yet"
    if unreadable:
        holds += f"; {len(unreadable)} damaged segments stay, because it is unknown which logs need them"
    if state.truncated_to == before.truncated_to and not going:
        return Outcome(state.log, Status.NOTHING, f"nothing to truncate; {holds}", details=details)
    verb = "would cut" if plan else "cut"
    message = f"{verb} up to change set {state.truncated_to}: {len(going):,} segments, {in_units(size)}; {holds}"
    return Outcome(state.log, Status.PLANNED if plan else Status.TRUNCATED, message, details=details)
