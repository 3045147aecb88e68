"""Which rows are too old for what leaves the store, and when rows were dropped last (N10)."""

from __future__ import annotations

from tidefold.domain.log_state import Expire, LogState, Snapshot, State
from tidefold.operations.pipeline import Pipeline, now


def find_last_clean_up(state: LogState) -> Expire | None:
    """The limit of the newest snapshot of the table that dropped rows for their age."""
    ended = (State.ABORTED, State.ONGOING)
    made = (s for s in reversed(state.snapshots) if s.in_main_lineage and s.state not in ended)
    return next((s.expire for s in made if s.expire), None)


def find_current_limit(pipeline: Pipeline, state: LogState, snapshot: Snapshot | None = None) -> Expire | None:
    """Which rows are too old now. None: none are, or the rows are those of an instant in the past."""
    if state.log not in pipeline.config.logs or (snapshot and snapshot.as_of):
        return None
    return pipeline.log_of(state).expire(now())
