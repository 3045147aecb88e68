"""Keeps the tables of a set as of an instant: what the source had committed before, in all tables or in none.

All records of a transaction have its commit time, so a transaction is before the instant in every table, or in none.
That holds if all logs have ingested up to one point. One conditional write of the set's ledger records the snapshots.
"""

from __future__ import annotations

from tidefold.config import SetConfig
from tidefold.domain.commit_times import format_instant
from tidefold.domain.log_state import LogState, Snapshot
from tidefold.domain.sets.set_state import Member, PastVersion, SetState, record_past
from tidefold.domain.snapshot.point_in_time import came_later, find_kept, plan
from tidefold.errors import ConflictError, GateFailedError, RefusedError, TidefoldError
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.pipeline import Pipeline, now
from tidefold.operations.sets.checks import find_unequal_sums
from tidefold.operations.sets.confirm import explain_missing
from tidefold.operations.sets.publish import publish_decided

_TRIES = 10


def require_one_point(pipeline: Pipeline, chosen: SetConfig) -> SetState:
    """Returns the state of a set whose logs have all ingested exactly up to its point. Raises RefusedError."""
    state = pipeline.set_ledger(chosen.name).read()
    _read_logs(pipeline, chosen, state)
    return state


def keep_past_version(pipeline: Pipeline, chosen: SetConfig, at: int, run: str) -> Outcome:
    """Records the snapshots of all logs as of an instant together. A repeated call returns `already`.

    Raises RefusedError with the name of a log that has no such snapshot, or not all changes from before the instant.
    """
    ledger = pipeline.set_ledger(chosen.name)
    for _ in range(_TRIES):
        # The set is read before its logs: a later change of a log needs a later version of the set.
        state = publish_decided(pipeline, ledger, ledger.read())
        snapshots = {log: _find_past(one, at) for log, one in _read_logs(pipeline, chosen, state).items() if one}
        members = tuple(Member(log, one.id) for log, one in snapshots.items() if one)
        what = f"{len(members)} tables as of {format_instant(at)}"
        if not members:
            return Outcome(chosen.name, Status.NOTHING, f"no table had rows as of {format_instant(at)}")
        if unequal := find_unequal_sums(pipeline, chosen, {one.log: one.snapshot for one in members}):
            raise GateFailedError(
                "SET_SUMS", f"{what}: {unequal.message}.", hint="Choose an instant after the initial snapshot."
            )
        assert state.point is not None
        after = record_past(state, PastVersion(at, state.point.position, members, run, now()))
        if ledger.try_commit(state, after):
            status = Status.ALREADY if after is state else Status.COMPLETED
            return Outcome(chosen.name, status, f"{what} belong together, at position {state.point.position} or before")
    raise ConflictError("SET_BUSY", f"Other processes changed set `{chosen.name}` {_TRIES} times.")


def _read_logs(pipeline: Pipeline, chosen: SetConfig, state: SetState) -> dict[str, LogState | None]:
    """Returns the states of the logs. Raises RefusedError unless all have ingested exactly up to the point."""
    if state.point is None:
        hint = "`tidefold run` ingests what has landed; `tidefold sets` shows what the set waits for."
        raise RefusedError("SET_HELD", f"Set `{chosen.name}` has no point yet.", hint=hint)
    logs = {log: pipeline.ledger(log).find() for log in chosen.logs}
    for log, one in logs.items():
        missing = explain_missing(log, one, state.point)
        if missing:
            message = f"Set `{chosen.name}` is held by `{log}`: {missing.message}."
            raise RefusedError("SET_HELD", message, hint=missing.hint)
        if one and one.shape.order != "postgresql":
            raise RefusedError(
                "SET_NO_PAST",
                f"Set `{chosen.name}` cannot be read as of an instant: in this source, the records of one transaction "
                "can have several times.",
                hint=f"Restore a version: `tidefold restore --set {chosen.name} --version NUMBER --log-position stay`. "
                "Or make the snapshots of single logs.",
            )
    return logs


def _find_past(state: LogState, at: int) -> Snapshot | None:
    """Returns the snapshot of a log as of an instant; None: nothing was committed before. Raises RefusedError."""
    kept = find_kept(state, at)
    if kept and not came_later(state, kept):
        return kept
    if kept is None and _is_empty(state, at):
        return None
    why = "lacks changes that arrived later" if kept else "is not there"
    which = f"`tidefold untag {state.log} {kept.as_of.tag}`, then" if kept and kept.as_of else "Repeat"
    raise RefusedError(
        "SET_HELD",
        f"The snapshot of `{state.log}` as of {format_instant(at)} {why}.",
        hint=f"{which} `tidefold as-of --set NAME` with a new run id.",
    )


def _is_empty(state: LogState, at: int) -> bool:
    try:
        return plan(state, at, None) is None
    except TidefoldError:
        return False
