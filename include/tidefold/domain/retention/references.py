"""Tags keep a snapshot, holds keep a snapshot and the log after it, and consumers keep the log."""

from __future__ import annotations

from dataclasses import replace

from tidefold.domain.log_state import Consumer, Hold, LogState, State, Tag
from tidefold.domain.retention.log_bounds import end_of_snapshot
from tidefold.domain.retention.tag_names import require_free
from tidefold.domain.snapshot.transitions import require_snapshot
from tidefold.errors import RefusedError


def tag(state: LogState, name: str, snapshot_id: int) -> LogState:
    """Tags a completed snapshot, so that it is kept. Refused for a retired one: its files may be deleted already."""
    snapshot = require_snapshot(state, snapshot_id)
    if snapshot.state is not State.COMPLETED:
        raise RefusedError(
            "WRONG_STATE",
            f"Snapshot {snapshot_id} of `{state.log}` is {snapshot.state} and cannot be tagged.",
            hint=f"`tidefold snapshot history {state.log}` shows which snapshots are COMPLETED.",
        )
    taken = require_free(state, name, snapshot_id)
    return state if taken else replace(state, tags=(*state.tags, Tag(name, snapshot_id)))


def hold(state: LogState, wanted: Hold) -> LogState:
    """Holds a completed snapshot and the log after it. Refused if it is retired, or the log after it was truncated."""
    snapshot = require_snapshot(state, wanted.snapshot)
    if snapshot.state is not State.COMPLETED or end_of_snapshot(state, snapshot.id) < state.truncated_to:
        what = (
            f"is {snapshot.state}"
            if snapshot.state is not State.COMPLETED
            else "no longer has the change sets after it"
        )
        raise RefusedError(
            "CANNOT_HOLD",
            f"Snapshot {snapshot.id} of `{state.log}` {what} and cannot be held.",
            hint=f"Choose another from `tidefold snapshot history {state.log}`. `snapshot tag` keeps a snapshot alone.",
        )
    taken = next((h for h in state.holds if h.name == wanted.name), None)
    if taken and taken.snapshot != wanted.snapshot:
        raise RefusedError(
            "HOLD_TAKEN",
            f"Hold `{wanted.name}` of `{state.log}` already keeps snapshot {taken.snapshot}.",
            hint=f"`tidefold snapshot release {state.log} {wanted.name}` removes that hold. Or choose another name.",
        )
    return state if taken else replace(state, holds=(*state.holds, wanted))


def release(state: LogState, name: str) -> LogState:
    """Removes a hold. A hold that does not exist is not an error."""
    left = tuple(h for h in state.holds if h.name != name)
    return state if left == state.holds else replace(state, holds=left)


def register(state: LogState, consumer: Consumer) -> LogState:
    """Records the position of a consumer. Refuses positions before the start or after the end of the log."""
    if not state.truncated_to <= consumer.sqn <= state.last_sqn:
        raise RefusedError(
            "CONSUMER_OUTSIDE_LOG",
            f"Consumer `{consumer.name}` of `{state.log}` cannot be at {consumer.sqn}. "
            f"Positions {state.truncated_to} to {state.last_sqn} are possible.",
            hint="Read a snapshot first, and register at its sqn."
            if consumer.sqn < state.truncated_to
            else f"Use {state.last_sqn} or less.",
        )
    inside = next((c for c in state.change_sets if c.begin <= consumer.sqn < c.sqn), None)
    if inside:
        raise RefusedError(
            "CONSUMER_INSIDE_RUN",
            f"Consumer `{consumer.name}` cannot be at {consumer.sqn}: "
            f"the change sets {inside.begin} to {inside.sqn} of `{state.log}` were compacted into one.",
            hint=f"Use {inside.begin - 1} or {inside.sqn}.",
        )
    others = tuple(c for c in state.consumers if c.name != consumer.name)
    return state if consumer in state.consumers else replace(state, consumers=(*others, consumer))


def unregister(state: LogState, name: str) -> LogState:
    """Removes a consumer. A consumer that does not exist is not an error."""
    left = tuple(c for c in state.consumers if c.name != name)
    return state if left == state.consumers else replace(state, consumers=left)


def untag(state: LogState, name: str) -> LogState:
    """Removes a tag. A tag that does not exist is not an error."""
    left = tuple(t for t in state.tags if t.name != name)
    return state if left == state.tags else replace(state, tags=left)
