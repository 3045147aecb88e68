"""The moves that stop a log, so that it takes nothing more, and let it go on. Each is nothing when it is so already."""

from __future__ import annotations

from dataclasses import replace

from tidefold.domain.log_state import LogState, Stopped
from tidefold.errors import RefusedError


def stop(state: LogState, stopped: Stopped) -> LogState:
    """From now on the log takes nothing. Refused while it is stopped for a savepoint at another address."""
    before = state.stopped
    if before is None:
        return replace(state, stopped=stopped)
    if before.address != stopped.address:
        raise RefusedError(
            "LOG_STOPPED",
            f"Log `{state.log}` was stopped by {before.by} for a savepoint at {before.address}.",
            hint=f"Give that address, to finish it, or `tidefold resume {state.log}` first.",
        )
    return state  # The run that stopped it goes on.


def resume(state: LogState) -> LogState:
    """The log takes changes again."""
    return replace(state, stopped=None) if state.stopped else state
