"""Which change made a row and what became of the others: the fold's own rules, told for one key. Pure.

A fold takes, of the changes that it folds, the one with the highest place, and that counts over the row of the snapshot
below. So a view of the rows is a stack of layers, and what made a row lies in the newest layer that has a change of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tidefold.lifecycle.values import Expire, LogState, Snapshot


class Fate(StrEnum):
    """What became of a change, as far as one view of the rows is concerned."""

    CURRENT = "made the row"
    OLDER = "older order"
    EARLIER = "same order, earlier position"
    AGAIN = "the same change, sent again"
    REPEATED = "sent again: its order lies below what was taken before it"
    REPLACED = "replaced by what was folded later"
    SKIPPED = "left out by a restore or an import"
    LATER = "folded later than this view"
    WAITING = "not folded yet"


class Standing(StrEnum):
    """How the row of a view, as it was read, agrees with what the log says of it."""

    MADE = "made"
    DELETED = "deleted"
    EXPIRED = "dropped for its age"
    IMPORTED = "its rows were imported"
    CUT = "the change is no longer in the log"
    ABSENT = "not there"
    DIFFERS = "not what the log says"


@dataclass(frozen=True, slots=True)
class Layer:
    """Change sets with `after` < sqn <= `to`, folded into a snapshot by its run; None: folded only while it is read.
    `imported`: its rows came from outside, in the place of all that the log had.
    """

    after: int
    to: int
    snapshot: int | None
    run: str
    skipped_to: int | None = None
    expire: Expire | None = None
    imported: bool = False

    def folds(self, sqn: int) -> bool:
        return self.after < sqn <= self.to

    def skips(self, sqn: int) -> bool:
        """Whether a restore or an import left this change set out for good."""
        last = self.to if self.skipped_to is None else self.skipped_to
        return sqn <= last and not self.folds(sqn) and (self.imported or sqn > self.to)


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the key. `place` says which of two counts: the order, the partition, the offset (the kernel's
    `place_columns`). `number` names it among those given; `repeated`: it lies below its change set's floor.
    """

    number: int
    sqn: int
    place: tuple[int, ...]
    delete: bool
    repeated: bool = False

    @property
    def order(self) -> tuple[int, ...]:
        return self.place[:-2]


@dataclass(frozen=True, slots=True)
class Told:
    """A change, what became of it, and the snapshot with its run that folded it or left it out."""

    change: Change
    fate: Fate
    snapshot: int | None = None
    run: str = ""


@dataclass(frozen=True, slots=True)
class Explained:
    """What the log still says of a key: `winner` made the row of the view, or deleted it; None: no change that is left
    did. `dropping`: the layers at and above the winner's, the oldest first, that drop rows for their age. `partly_cut`:
    the log was cut within what the winner was folded with, so another change may have won. `imported`: the snapshot
    below all, whose rows came from outside.
    """

    winner: Change | None
    changes: tuple[Told, ...]
    dropping: tuple[Layer, ...] = ()
    partly_cut: bool = False
    imported: int | None = None


def newest(changes: Sequence[Change]) -> Change | None:
    """The change that counts: of the highest place; of equal ones, which are the same change, the last in the log."""
    return max(changes, key=lambda c: (c.place, c.sqn, c.number), default=None)


def layers(state: LogState, snapshot: Snapshot | None, live: bool = False) -> tuple[Layer, ...]:
    """What the rows of a snapshot were folded from, the newest first; `live`: with what waits on top of it."""
    found: list[Layer] = []
    if live:
        found.append(Layer(snapshot.to_sqn if snapshot else 0, state.last_sqn, None, ""))
    current = snapshot
    while current is not None:
        skipped = current.to_sqn if current.skipped_from is not None else None
        imported = current.external is not None
        span = (current.from_sqn, current.folds_to)
        found.append(Layer(*span, current.id, current.run, skipped, current.expire, imported))
        current = None if imported or current.source is None else state.snapshot(current.source)
    return tuple(found)


def explain(state: LogState, view: Sequence[Layer], changes: Sequence[Change]) -> Explained:
    """Tells of each change of one key, in the order of the log, what became of it in this view."""
    counted = [[c for c in changes if not c.repeated and layer.folds(c.sqn)] for layer in view]
    top = next((i for i, folded in enumerate(counted) if folded), None)
    winner = None if top is None else newest(counted[top])
    later = layers(state, state.latest)
    ordered = sorted(changes, key=lambda c: (c.sqn, c.number))
    told = tuple(_told(change, view, later, winner) for change in ordered)
    if top is None:
        return Explained(None, told, imported=next((layer.snapshot for layer in view if layer.imported), None))
    dropping = tuple(layer for layer in view[top::-1] if layer.expire)
    return Explained(winner, told, dropping, view[top].after < state.truncated_to)


def standing(told: Explained, present: bool, same: bool, was_kept: bool) -> Standing:
    """`present`: the row was found; `same`: it is what the winner says; `was_kept`: a kept snapshot has the key."""
    winner = told.winner
    if winner is None:
        if told.imported is not None:
            return Standing.IMPORTED
        return Standing.CUT if present or was_kept else Standing.ABSENT
    if winner.delete and not present:
        return Standing.DELETED
    if present and same and not winner.delete:
        return Standing.MADE
    if told.dropping and not present:
        return Standing.EXPIRED
    return Standing.CUT if told.partly_cut else Standing.DIFFERS


def _told(change: Change, view: Sequence[Layer], later: Sequence[Layer], winner: Change | None) -> Told:
    if change.repeated:
        return Told(change, Fate.REPEATED)
    layer = next((layer for layer in view if layer.folds(change.sqn)), None)
    if layer is None or winner is None:
        return _outside(change, view, later)
    fate = Fate.CURRENT if change == winner else _lost(change, winner)
    return Told(change, fate, layer.snapshot, layer.run)


def _lost(change: Change, winner: Change) -> Fate:
    if change.place == winner.place:
        return Fate.AGAIN
    if change.place > winner.place:
        return Fate.REPLACED  # Between folds the later one counts: a table keeps no order of its rows.
    return Fate.EARLIER if change.order == winner.order else Fate.OLDER


def _outside(change: Change, view: Sequence[Layer], later: Sequence[Layer]) -> Told:
    """A change that the view does not fold: left out by a restore, or later than it."""
    for layer in view:
        if layer.skips(change.sqn):
            return Told(change, Fate.SKIPPED, layer.snapshot, layer.run)
    for layer in later:
        if layer.folds(change.sqn):
            return Told(change, Fate.LATER, layer.snapshot, layer.run)
    for layer in later:
        if layer.skips(change.sqn):
            return Told(change, Fate.SKIPPED, layer.snapshot, layer.run)
    return Told(change, Fate.WAITING)


def unknown(state: LogState, view: Sequence[Layer]) -> tuple[tuple[int, int], ...]:
    """The ranges of change sets (first, last) within a view that cannot tell of every change any more: cut off, or
    squashed to the last change a key.
    """
    end = max((layer.to for layer in view), default=0)
    cut = ((1, min(state.truncated_to, end)),) if state.truncated_to and end else ()
    return (*cut, *((c.begin, c.sqn) for c in state.change_sets if c.begin < c.sqn and c.begin <= end))
