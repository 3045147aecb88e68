"""Finds older snapshots from which, with the change sets after them, the rows of a snapshot can be made. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidefold.domain.log_state import ChangeSet, Expire, LogState, Snapshot, SnapshotKind, State

# Change sets with `after` < sqn <= `to`.
_Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Older:
    """A retained snapshot (None: the empty table), and the change sets that turn its rows into those of a newer one.

    `expired`: the age limits of the snapshots between them, the newest first.
    """

    snapshot: Snapshot | None
    change_sets: tuple[ChangeSet, ...]
    expired: tuple[Expire, ...] = ()

    def suits(self, expire: Expire | None) -> bool:
        """Whether the age limit `expire` also drops all rows that the snapshots between dropped."""
        return all(
            expire is not None and one.column == expire.column and one.before <= expire.before for one in self.expired
        )


def older(state: LogState, snapshot: Snapshot) -> Iterator[Older]:
    """Yields the retained snapshots from which the rows of this one can be made again, the nearest first.

    Ends where the log was truncated, or at an import. Leaves out what a restore left out for good.
    """
    if _has_lineage(snapshot):
        expired = (snapshot.expire,) if snapshot.expire else ()
        yield from _descend(state, snapshot.parent, (snapshot.from_sqn, snapshot.folds_to), expired)


def up_to(state: LogState, head: Snapshot | None, to: int) -> Iterator[Older]:
    """Yields the retained snapshots from which the rows after change set `to` can be made, the nearest first.

    `head`: the newest snapshot to yield; None: only the empty table.
    """
    after = head.to_sqn if head else 0
    return _descend(state, head.id if head else None, (after, max(to, after)))


def _descend(state: LogState, source: int | None, span: _Span, expired: tuple[Expire, ...] = ()) -> Iterator[Older]:
    """Yields `source` and the snapshots below it.

    span: the change sets that are folded onto `source`.
    expired: the age limits of the snapshots above.
    """
    spans: tuple[_Span, ...] = ()
    while True:
        spans = _before(span, spans)
        if spans and spans[0][0] < state.truncated_to:
            return
        below = None if source is None else state.snapshot(source)
        if source is None or _is_kept(below):
            change_sets = _within(state, spans)
            if change_sets is not None:
                yield Older(below, change_sets, expired)
        if below is None or not _has_lineage(below):
            return
        expired = (*expired, below.expire) if below.expire else expired
        source, span = below.parent, (below.from_sqn, below.folds_to)


def _has_lineage(snapshot: Snapshot) -> bool:
    """Whether its rows were made from all changes of this log."""
    return snapshot.external is None and snapshot.as_of is None


def _is_kept(snapshot: Snapshot | None) -> bool:
    return snapshot is not None and snapshot.state is State.COMPLETED and snapshot.kind is not SnapshotKind.TAIL


def _before(span: _Span, spans: tuple[_Span, ...]) -> tuple[_Span, ...]:
    """Adds a span before the others. Adjacent spans are joined: compaction may have joined their change sets."""
    if span[0] == span[1]:
        return spans
    if spans and spans[0][0] == span[1]:
        return ((span[0], spans[0][1]), *spans[1:])
    return (span, *spans)


def _within(state: LogState, spans: Sequence[_Span]) -> tuple[ChangeSet, ...] | None:
    """Returns all change sets of these spans in order; None: one is missing, or crosses the end of its span (I7)."""
    found: list[ChangeSet] = []
    for after, to in spans:
        reached = after
        for change_set in state.change_sets_in(after, to):
            if change_set.begin != reached + 1:
                return None
            reached = change_set.sqn
            found.append(change_set)
        if reached != to:
            return None
    return tuple(found)
