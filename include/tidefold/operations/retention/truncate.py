"""Cuts the log behind the kept snapshots and removes the segments that nothing needs any more; starts no JVM."""

from __future__ import annotations

from collections.abc import Sequence

from tidefold.domain.log_state import LogState
from tidefold.domain.retention import retention
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.retention.details import TruncateDetails
from tidefold.operations.retention.segment_gc import plan_release


def truncate(pipeline: Pipeline, log: str, plan: bool = False) -> Outcome:
    """Cuts the log up to its tightest bound. With `plan` nothing changes: the outcome only says what would go.

    Also finishes what an interrupted call began.
    """
    ledger = pipeline.ledger(log)
    before = ledger.find()
    if before is None:
        return Outcome(log, Status.NOTHING, "the log is empty")
    keep = pipeline.config.retention.keep
    state = retention.truncate(before, keep) if plan else ledger.commit(lambda now: retention.truncate(now, keep))
    released = plan_release(pipeline.store, state)
    if not plan and released.unneeded:
        ledger.require_current(state)
    if not plan:
        pipeline.store.delete([entry.path for entry in released.unneeded])
        ledger.commit(lambda now: retention.forget_garbage(now, released.settled))
        ledger.prune()
    unneeded = {entry.path: entry.bytes for entry in released.unneeded}
    return _describe(before, state, unneeded, released.unreadable, keep, plan)


def _describe(
    before: LogState, state: LogState, going: dict[str, int], unreadable: Sequence[str], keep: int | None, plan: bool
) -> Outcome:
    found = retention.bounds(state, keep)
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
        return Outcome(state.log, Status.NOTHING, f"nothing to cut; {holds}", details=details)
    verb = "would cut" if plan else "cut"
    message = f"{verb} up to change set {state.truncated_to}: {len(going):,} segments, {size:,} bytes; {holds}"
    return Outcome(state.log, Status.PLANNED if plan else Status.TRUNCATED, message, details=details)
