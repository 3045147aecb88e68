"""Explains which change made a row and why the others did not, by the fold's rules for one key. Pure.

A view of the rows is a stack of layers: change sets folded one after the other. In a log in its own order, a newer
layer counts over the older ones. In a log that columns order, only the position decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from tidefold.domain.commit_times import AsOf
from tidefold.domain.log_state import Expire, LogState, Snapshot
from tidefold.domain.table.table_spec import Engine, TableSpec


class ChangeOutcome(StrEnum):
    """What one view of the rows did with a change."""

    CURRENT = "made the row"
    OLDER = "older order"
    EARLIER = "same order, earlier position"
    AGAIN = "the same change, sent again"
    REPEATED = "sent again: its order is below that of earlier records of its partition"
    REPLACED = "replaced by what was folded later"
    SKIPPED = "left out by a restore or an import"
    LATER = "folded later than this view"
    AFTER = "committed at its source after the instant of this view"
    WAITING = "not folded yet"


class RowAgreement(StrEnum):
    """Whether the row of a view is what the log says, and if not, why."""

    MADE = "made"
    DELETED = "deleted"
    EXPIRED = "dropped for its age"
    IMPORTED = "its rows were imported"
    CUT = "the change is no longer in the log"
    ABSENT = "not there"
    DIFFERS = "not what the log says"


@dataclass(frozen=True, slots=True)
class FoldedRange:
    """The change sets with `after` < sqn <= `to` that were folded together.

    snapshot, run: which snapshot and run folded them; None: they are folded while they are read.
    skipped_to: change sets from `to` to here were left out for good.
    expire: which rows were dropped for their age.
    imported: its rows came from outside, and replaced all that the log had.
    before: only changes that were committed before this instant count.
    """

    after: int
    to: int
    snapshot: int | None
    run: str
    skipped_to: int | None = None
    expire: Expire | None = None
    imported: bool = False
    before: int | None = None

    def takes(self, change: KeyChange) -> bool:
        """Whether this change is folded here."""
        return self.folds(change.sqn) and not self.is_late(change)

    def is_late(self, change: KeyChange) -> bool:
        """Whether it was committed too late for this view."""
        return self.before is not None and (change.committed is None or change.committed >= self.before)

    def folds(self, sqn: int) -> bool:
        return self.after < sqn <= self.to

    def skips(self, sqn: int) -> bool:
        """Whether a restore or an import left this change set out for good."""
        last = self.to if self.skipped_to is None else self.skipped_to
        return sqn <= last and not self.folds(sqn) and (self.imported or sqn > self.to)


@dataclass(frozen=True, slots=True)
class ExplainedChange:
    """A change and what one view did with it.

    snapshot, run: which snapshot and run folded it or left it out.
    gave: the columns of the row that come from it, if the row consists of several changes.
    """

    change: KeyChange
    fate: ChangeOutcome
    snapshot: int | None = None
    run: str = ""
    gave: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeyHistory:
    """What the log still contains of a key.

    winner: the change that made or deleted the row of the view; None: the log no longer has that change.
    changes: all changes that the log still has, in its order.
    dropping: the ranges that drop rows for their age, from the winner's range on, oldest first.
    partly_cut: the log was truncated within the winner's range, so another change may have won.
    imported: the imported snapshot below all ranges; its rows came from outside.
    """

    winner: KeyChange | None
    changes: tuple[ExplainedChange, ...]
    dropping: tuple[FoldedRange, ...] = ()
    partly_cut: bool = False
    imported: int | None = None


def layers(state: LogState, snapshot: Snapshot | None, live: bool = False) -> tuple[FoldedRange, ...]:
    """Returns what the rows of a snapshot were folded from, newest first. `live`: also the changes that wait."""
    ranges: list[FoldedRange] = []
    if live:
        ranges.append(FoldedRange(snapshot.to_sqn if snapshot else 0, state.last_sqn, None, ""))
    current = snapshot
    while current is not None:
        if current.as_of:
            return (*ranges, *_as_of(state, current, current.as_of))
        imported = current.external is not None and current.reshape is None
        ranges.append(
            FoldedRange(
                after=current.from_sqn,
                to=current.folds_to,
                snapshot=current.id,
                run=current.run,
                skipped_to=current.to_sqn if current.skipped_from is not None else None,
                expire=current.expire,
                imported=imported,
            )
        )
        current = None if imported or current.parent is None else state.snapshot(current.parent)
    return tuple(ranges)


def _as_of(state: LogState, snapshot: Snapshot, wanted: AsOf) -> tuple[FoldedRange, ...]:
    """Returns the layers of a snapshot as of an instant: those of the snapshot that was the newest when it began.

    Its own run folded everything above its base again, so those layers name that run.
    """
    head = None if wanted.head is None else state.snapshot(wanted.head)
    own = FoldedRange(head.to_sqn if head else 0, snapshot.to_sqn, snapshot.id, snapshot.run, None, snapshot.expire)
    below = layers(state, head)
    base = next((n for n, layer in enumerate(below) if layer.snapshot == snapshot.base), len(below))
    again = (replace(layer, snapshot=snapshot.id, run=snapshot.run, expire=None) for layer in below[:base])
    return tuple(replace(layer, before=wanted.at) for layer in (own, *again, *below[base:]))


def explain(
    state: LogState, view: Sequence[FoldedRange], changes: Sequence[KeyChange], shape: TableSpec | None = None
) -> KeyHistory:
    """Explains each change of one key in this view, in the order of the log.

    Without a shape the last change of a key is its row.
    """
    folded = _in_order(view, changes, shape)
    parts = find_contributions(shape, folded)
    makers = [c for c in folded if c.number in parts and not c.removes] or [c for c in folded if c.removes]
    winner = makers[-1] if makers else None
    later = layers(state, state.latest)
    ordered = sorted(changes, key=lambda c: (c.sqn, c.number))
    told = tuple(_explain_change(change, view, later, winner, parts) for change in ordered)
    if winner is None:
        return KeyHistory(None, told, imported=next((layer.snapshot for layer in view if layer.imported), None))
    top = next(i for i, layer in enumerate(view) if layer.takes(winner))
    dropping = tuple(layer for layer in view[top::-1] if layer.expire)
    one_alone = shape is None or shape.merge.engine is Engine.LAST
    cut = view[top].after < state.truncated_to if one_alone else state.truncated_to > state.begins
    return KeyHistory(winner, told, dropping, cut)


def _in_order(view: Sequence[FoldedRange], changes: Sequence[KeyChange], shape: TableSpec | None) -> list[KeyChange]:
    """Returns the changes that the view folds, the winning one last.

    If rows do not store their order, a change that is folded later wins.
    """
    ordered = []
    for age, layer in enumerate(view):
        for change in changes:
            if not change.repeated and layer.takes(change):
                own = shape is None or not shape.accepts_late
                ordered.append(((-age if own else 0, change.place, change.sqn, change.number), change))
    return [change for _, change in sorted(ordered, key=lambda one: one[0])]


def standing(told: KeyHistory, present: bool, same: bool, was_kept: bool) -> RowAgreement:
    """Compares the row of a view with the winning change.

    present: the view has the row.
    same: the row has the values of the winning change.
    was_kept: a retained snapshot has the key.
    """
    winner = told.winner
    if winner is None:
        if told.imported is not None:
            return RowAgreement.IMPORTED
        # A row that only snapshots before a restore have is explained by the changes that the restore left out.
        was_left_out = any(change.fate is ChangeOutcome.SKIPPED for change in told.changes)
        return RowAgreement.CUT if present or (was_kept and not was_left_out) else RowAgreement.ABSENT
    if winner.removes and not present:
        return RowAgreement.DELETED
    if present and same and not winner.removes:
        return RowAgreement.MADE
    if told.dropping and not present:
        return RowAgreement.EXPIRED
    return RowAgreement.CUT if told.partly_cut else RowAgreement.DIFFERS


def _explain_change(
    change: KeyChange,
    view: Sequence[FoldedRange],
    later: Sequence[FoldedRange],
    winner: KeyChange | None,
    parts: Mapping[int, tuple[str, ...]],
) -> ExplainedChange:
    if change.repeated:
        return ExplainedChange(change, ChangeOutcome.REPEATED)
    layer = next((layer for layer in view if layer.takes(change)), None)
    if layer is None or winner is None:
        return _outside(change, view, later)
    if change == winner or change.number in parts:
        return ExplainedChange(change, ChangeOutcome.CURRENT, layer.snapshot, layer.run, parts.get(change.number, ()))
    return ExplainedChange(change, _explain_loss(change, winner), layer.snapshot, layer.run)


def _explain_loss(change: KeyChange, winner: KeyChange) -> ChangeOutcome:
    if change.place == winner.place:
        return ChangeOutcome.AGAIN
    if change.place > winner.place:
        return ChangeOutcome.REPLACED  # The table does not store the order of its rows, so the later fold wins.
    return ChangeOutcome.EARLIER if change.order == winner.order else ChangeOutcome.OLDER


def _outside(change: KeyChange, view: Sequence[FoldedRange], later: Sequence[FoldedRange]) -> ExplainedChange:
    """Explains a change that the view does not fold: a restore left it out, or it is later than the view."""
    for layer in view:
        if layer.folds(change.sqn) and layer.is_late(change):
            return ExplainedChange(change, ChangeOutcome.AFTER, layer.snapshot, layer.run)
    for layer in view:
        if layer.skips(change.sqn):
            return ExplainedChange(change, ChangeOutcome.SKIPPED, layer.snapshot, layer.run)
    for layer in later:
        if layer.folds(change.sqn):
            return ExplainedChange(change, ChangeOutcome.LATER, layer.snapshot, layer.run)
    for layer in later:
        if layer.skips(change.sqn):
            return ExplainedChange(change, ChangeOutcome.SKIPPED, layer.snapshot, layer.run)
    return ExplainedChange(change, ChangeOutcome.WAITING)


def unknown(state: LogState, view: Sequence[FoldedRange]) -> tuple[tuple[int, int], ...]:
    """Returns the ranges of change sets (first, last) within a view that do not have every change any more.

    They were truncated, lost when the ledger was rebuilt, or compacted to the last change of each key.
    """
    end = max((layer.to for layer in view), default=0)
    cut = min(state.truncated_to, end)
    lost, begins = state.lost_from or cut + 1, state.begins + 1
    gone = tuple((first, last) for first, last in ((begins, min(cut, lost - 1)), (lost, cut)) if first <= last)
    return (*gone, *((c.begin, c.sqn) for c in state.change_sets if c.begin < c.sqn and c.begin <= end))


@dataclass(frozen=True, slots=True)
class KeyChange:
    """One change of a key.

    number: identifies it among the changes that are explained.
    sqn: of its change set.
    place: order, partition and offset (see `place_columns`); of two changes the one with the higher place wins.
    delete: it removes the row.
    repeated: its order is below the floor of its change set, so the source sent it a second time.
    clear: it removes more than this key.
    merge: its values are added to the row's.
    given: the columns that it sets; None: all.
    ranks: the order of each column that has an order of its own.
    committed: microseconds since 1970 UTC, if the source says it.
    """

    number: int
    sqn: int
    place: tuple[int, ...]
    delete: bool
    repeated: bool = False
    clear: bool = False
    merge: bool = False
    given: tuple[str, ...] | None = None
    ranks: tuple[tuple[str, tuple[int, ...] | None], ...] = ()
    committed: int | None = None

    @property
    def order(self) -> tuple[int, ...]:
        return self.place[:-2]

    @property
    def removes(self) -> bool:
        return self.delete or self.clear


def find_contributions(shape: TableSpec | None, changes: Sequence[KeyChange]) -> Mapping[int, tuple[str, ...]]:
    """Returns the number of each change that the row consists of, and the columns that it gave.

    The changes are in the order in which they count. Empty: there is no row. Without a table definition the last change
    is the row.
    """
    engine = shape.merge.engine if shape else Engine.LAST
    names = tuple(column.name for column in shape.columns) if shape else ()
    values = tuple(name for name in names if shape is None or name not in shape.key)
    if engine is Engine.HISTORY:
        # A delete ends the version before it, so the delete is part of that row of the table, too.
        return {change.number: () if change.removes else names for change in changes}
    parts: dict[int, set[str]] = {}
    for change in changes:
        if change.removes:
            parts = {}
        elif engine is Engine.AGGREGATE:
            parts = {**(parts if change.merge else {}), change.number: set(change.given or values)}
        elif engine is Engine.FIRST:
            parts = parts or {change.number: set(values)}
        else:
            parts = _give_columns(parts, change, values, changes)
    return {number: tuple(name for name in values if name in own) for number, own in parts.items()}


def _give_columns(
    parts: dict[int, set[str]], change: KeyChange, values: Sequence[str], changes: Sequence[KeyChange]
) -> dict[int, set[str]]:
    """Returns the parts of the row after a change that sets some of its columns."""
    by_number = {one.number: one for one in changes}
    taken = set(values if change.given is None else change.given)
    ranks = dict(change.ranks)
    for name in [name for name in taken if name in ranks]:
        holder = next((number for number, own in parts.items() if name in own), None)
        rank = dict(by_number[holder].ranks).get(name) if holder is not None else None
        if ranks[name] is None or (rank is not None and (ranks[name] or ()) < rank):
            taken.discard(name)
    left = {number: own - taken for number, own in parts.items()}
    whole = {number: own for number, own in left.items() if own}
    return {**whole, change.number: taken} if taken or not whole else whole
