"""Finds the changes that a row consists of: applies the rules of the merge engine, change by change. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidefold.domain.table.table_spec import Engine, TableSpec


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
        known = dict(by_number[holder].ranks).get(name) if holder is not None else None
        if ranks[name] is None or (known is not None and (ranks[name] or ()) < known):
            taken.discard(name)
    left = {number: own - taken for number, own in parts.items()}
    whole = {number: own for number, own in left.items() if own}
    return {**whole, change.number: taken} if taken or not whole else whole
