"""What the rows of a snapshot were made from, step by step: older snapshots, and the change sets after them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tidefold.lifecycle.values import ChangeSet, Kind, LogState, Snapshot, State

# An older snapshot (None: the empty table), and the change sets that make its rows those of a newer one.
Older = tuple[Snapshot | None, tuple[ChangeSet, ...]]


def older(state: LogState, snapshot: Snapshot) -> Iterator[Older]:
    """The kept snapshots from which the rows of this one can be made again, the nearest first.

    Ends where the log was cut. What a restore left out for good is left out here too.
    """
    change_sets: tuple[ChangeSet, ...] = ()
    current: Snapshot | None = snapshot
    while current is not None:
        step = state.between(current.from_sqn, current.folds_to)
        if not _is_whole(current, step):
            return
        change_sets = (*step, *change_sets)
        if current.source is None:
            yield None, change_sets
            return
        current = state.snapshot(current.source)
        if current is not None and current.state is State.COMPLETED and current.kind is not Kind.TAIL:
            yield current, change_sets


def _is_whole(snapshot: Snapshot, change_sets: tuple[ChangeSet, ...]) -> bool:
    """Whether these are all change sets that the snapshot folded (I7)."""
    reached = snapshot.from_sqn
    for change_set in change_sets:
        if change_set.begin != reached + 1:
            return False
        reached = change_set.sqn
    return reached == snapshot.folds_to
