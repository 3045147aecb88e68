"""Stops a log, so that it accepts no changes, and resumes it. A repeated call changes nothing. Pure."""

from __future__ import annotations

from dataclasses import replace

from tidefold.domain.log_state import LogState, Stopped
from tidefold.domain.table.table_spec import Engine
from tidefold.errors import RefusedError

# The run name of a log that stopped because its rebuilt ledger does not know the source positions.
REBUILT = "rebuild"
# With these engines, a change that is folded twice gives another result.
_COUNTING = (Engine.AGGREGATE, Engine.APPEND)


def stop(state: LogState, stopped: Stopped) -> LogState:
    """Stops the log. Raises RefusedError if it is already stopped for a savepoint at another address."""
    before = state.stopped
    if before is None:
        return replace(state, stopped=stopped)
    if before.address != stopped.address:
        raise RefusedError(
            "LOG_STOPPED",
            f"{before.by} stopped log `{state.log}` for a savepoint at {before.address}.",
            hint=f"Give that address to finish the savepoint, or run `tidefold resume {state.log}` first.",
        )
    return state  # The same run calls again.


def resume(state: LogState) -> LogState:
    """Lets the log accept changes again. Raises RefusedError if a rebuilt ledger would fold changes twice."""
    if state.stopped and state.stopped.run == REBUILT and state.shape.merge.engine in _COUNTING:
        raise RefusedError(
            "POSITIONS_UNKNOWN",
            f"Log `{state.log}` would count changes twice: {state.stopped.why}.",
            hint=f"`tidefold savepoint {state.log} --to ADDRESS` saves its rows. Feed later changes to a new log.",
        )
    return replace(state, stopped=None) if state.stopped else state
