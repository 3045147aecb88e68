"""Finds old reports of snapshots whose files are deleted, and of aborted attempts."""

from __future__ import annotations

from datetime import datetime, timedelta

from tidefold.domain.log_state import LogState, State
from tidefold.domain.paths import LogPaths
from tidefold.storage import Store

_ENDED = (State.DELETED, State.ABORTED)
# The verdicts beside the reports stay: they are small, and the history of refused snapshots.
_VERDICT = "verdict-"


def find_old_reports(store: Store, state: LogState, instant: str, days: int) -> tuple[str, ...]:
    """Returns reports of ended snapshots that were started this many days before an instant (ISO 8601)."""
    limit = datetime.fromisoformat(instant) - timedelta(days=days)
    ended = (s for s in state.snapshots if s.state in _ENDED and datetime.fromisoformat(s.started_at) < limit)
    folders = {f"{LogPaths(state.log).quality(s.id)}/" for s in ended}
    if not folders:
        return ()
    stored = (entry.path for entry in store.list(f"{LogPaths(state.log).folder}/quality"))
    return tuple(
        path
        for path in stored
        if f"{path.rpartition('/')[0]}/" in folders and not path.rpartition("/")[2].startswith(_VERDICT)
    )
