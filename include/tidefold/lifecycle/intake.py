"""The move that takes landed files into a log, and the check that the log is still the one it was begun as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidefold.lifecycle.errors import ConflictError, RefusedError
from tidefold.lifecycle.values import ChangeSet, Landed, LogState, Position, Shape


@dataclass(frozen=True, slots=True)
class Arrival:
    """What an ingest run brings of one landed file; `change_set` is None when no change was in it."""

    landed: Landed
    change_set: ChangeSet | None
    position: Position


def append(state: LogState, arrivals: Sequence[Arrival]) -> LogState:
    """Takes landed files in, in the order given; numbers their change sets (sqn) and their accounts.

    Raises ConflictError when another run took the same offsets meanwhile.
    """
    for arrival in arrivals:
        state = _append_one(state, arrival)
    return state


def _append_one(state: LogState, arrival: Arrival) -> LogState:
    landed, position = arrival.landed, arrival.position
    known = {(p.topic, p.partition): p for p in state.positions}
    before = known.get((position.topic, position.partition))
    if before and landed.first_offset < before.next_offset:
        raise ConflictError(
            "OFFSETS_TAKEN",
            f"{position.topic} partition {position.partition}: offsets below {before.next_offset} are taken, "
            f"{landed.name} brings {landed.first_offset}.",
            hint="Another ingest was faster; run ingest again, it continues where the log stands.",
        )
    sqn = None
    if arrival.change_set:
        sqn = state.last_sqn + 1
        state = replace(state, change_sets=(*state.change_sets, replace(arrival.change_set, sqn=sqn)))
    known[position.topic, position.partition] = position
    account = replace(landed, sqn=sqn, number=len(state.landed) + 1)
    return replace(state, landed=(*state.landed, account), positions=tuple(known[k] for k in sorted(known)))


def check_shape(state: LogState, shape: Shape) -> None:
    """Raises RefusedError when the configuration describes another table than the log was begun with (I28)."""
    if shape == state.shape:
        return
    old, new = _described(state.shape), _described(shape)
    changed = [
        f"{name}: {old.get(name, 'none')} before, {new.get(name, 'none')} now"
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    ]
    raise RefusedError(
        "SHAPE_CHANGED",
        f"The configuration describes another table than log `{state.log}` was begun with ({'; '.join(changed)}).",
        hint="Put the old value back; this version cannot change it for a log that has data.",
    )


def _described(shape: Shape) -> dict[str, str]:
    parts = {"key": ", ".join(shape.key), "order": shape.order}
    parts |= {"key_groups": str(shape.key_groups), "buckets": str(shape.buckets)}
    parts |= {f"column `{column.name}`": column.type for column in shape.columns}
    return {**parts, "column order": ", ".join(column.name for column in shape.columns)}
