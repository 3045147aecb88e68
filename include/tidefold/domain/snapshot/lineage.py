"""What the rows of a snapshot were made from, step by step: older snapshots, and the change sets after them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidefold.domain.log_state import ChangeSet, Expire, LogState, Snapshot, SnapshotKind, State

# Change sets with `after` < sqn <= `to`.
_Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Older:
    """A kept snapshot (None: the empty table), and the change sets that make its rows those of a newer one.

    `expired`: what the snapshots on the way dropped for its age, the newest first.
    """

    snapshot: Snapshot | None
    change_sets: tuple[ChangeSet, ...]
    expired: tuple[Expire, ...] = ()

    def suits(self, expire: Expire | None) -> bool:
        """Whether dropping `expire` at the end drops all that was dropped on the way."""
        return all(
            expire is not None and one.column == expire.column and one.before <= expire.before for one in self.expired
        )


def older(state: LogState, snapshot: Snapshot) -> Iterator[Older]:
    """The kept snapshots from which the rows of this one can be made again, the nearest first.

    Ends where the log was cut, and with what was imported. What a restore left out for good is left out here too.
    """
    spans: tuple[_Span, ...] = ()
    expired: tuple[Expire, ...] = ()
    current: Snapshot | None = snapshot
    while current is not None:
        spans = _before((current.from_sqn, current.folds_to), spans)
        if spans and spans[0][0] < state.truncated_to:
            return
        if current.external is not None or current.as_of is not None:
            return  # Its rows are not of this log's making, or not of all changes.
        expired = (*expired, current.expire) if current.expire else expired
        below = None if current.source is None else state.snapshot(current.source)
        if current.source is None or _is_kept(below):
            change_sets = _within(state, spans)
            if change_sets is not None:
                yield Older(below, change_sets, expired)
        current = below


def _is_kept(snapshot: Snapshot | None) -> bool:
    return snapshot is not None and snapshot.state is State.COMPLETED and snapshot.kind is not SnapshotKind.TAIL


def _before(span: _Span, spans: tuple[_Span, ...]) -> tuple[_Span, ...]:
    """The spans with one more before them; those that touch are one, as squashing may have made them."""
    if span[0] == span[1]:
        return spans
    if spans and spans[0][0] == span[1]:
        return ((span[0], spans[0][1]), *spans[1:])
    return (span, *spans)


def _within(state: LogState, spans: Sequence[_Span]) -> tuple[ChangeSet, ...] | None:
    """All change sets of these spans in order, or None when one is not there, or reaches out of its span (I7)."""
    found: list[ChangeSet] = []
    for after, to in spans:
        reached = after
        for change_set in state.between(after, to):
            if change_set.begin != reached + 1:
                return None
            reached = change_set.sqn
            found.append(change_set)
        if reached != to:
            return None
    return tuple(found)
