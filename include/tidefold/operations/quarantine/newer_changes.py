"""Decides which refused records a retry may append, by the changes of their keys since they landed.

A newer change that sets all columns of the record supersedes it; so do deletes and clears. Newer changes without some
of the columns (values that were not sent) do not supersede it. In that case the retry appends the record and then these
changes again. The fold lets later changes win, so the rows are as if the record had been readable at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.schema import CLEAR, DELETE, change_schema, place_columns
from tidefold.changelog.segment import Indexes, read_change_set
from tidefold.domain.ingest.quarantine_retry import find_skipped_ranges, since
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import LogState, TableSpec
from tidefold.domain.table.table_spec import Engine
from tidefold.fold.merge.compaction import of_keys
from tidefold.operations.ingest.schema_update import aligner_to_newest
from tidefold.sources.quarantine.reparse import SecondLook
from tidefold.storage import Store

Row = dict[str, Any]
Key = tuple[object, ...]
Place = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about one record.

    what: `changes` (it is appended), `repeated` (superseded), or the reason why it stays.
    again: the numbers of newer changes that must be appended again with it.
    """

    what: str
    again: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Awaited:
    """Changes of a key that wait for values of the row under the old key.

    orders: their orders; the delete of the old key has the same one.
    keys: the texts of the old keys.
    """

    orders: frozenset[tuple[int, ...]] = frozenset()
    keys: frozenset[tuple[str, ...]] = frozenset()

    def has(self, key: Key, deleted: Iterable[Place]) -> bool:
        """Whether a change waits for this key, which was deleted at these places."""
        return tuple(map(str, key)) in self.keys or any(place[:-2] in self.orders for place in deleted)


@dataclass(slots=True)
class NewerChanges:
    """The changes of some keys since their records were refused.

    by_key: for each key the numbers of its changes.
    cleared: the place of the newest clear of the whole table.
    left_out: for each key (None: for all) the highest place that a restore or an import skipped.
    """

    shape: TableSpec
    changes: pa.Table
    by_key: dict[Key, list[tuple[Place, int, bool, frozenset[str]]]] = field(default_factory=dict)
    cleared: Place = ()
    left_out: dict[Key | None, Place] = field(default_factory=dict)

    def decide(self, row: Row, awaited: Awaited) -> Decision:
        """Decides about a record, given as a change. A record that an `awaited` change needs is always appended."""
        shape, place = self.shape, place_of_row(row, self.shape)
        key = key_of_row(row, shape)
        waits = max(self.left_out.get(key, ()), self.left_out.get(None, ())) >= place
        later = [one for one in self.by_key.get(key, ()) if one[0] >= place]
        if shape.accepts_late or not (later or self.cleared >= place):
            return Decision("left_out" if waits else "changes")
        if not _counts_the_last(shape):
            return Decision("newer")
        silent = frozenset(row["_absent"] or ())
        is_awaited = awaited.has(key, (one[0] for one in later if one[2]))
        gone = self.cleared >= place or row["_op"] == DELETE or any(one[0] == place for one in later)
        if gone or (not is_awaited and any(deleted or left <= silent for _, _, deleted, left in later)):
            return Decision("repeated")
        return Decision("left_out") if waits else Decision("changes", tuple(number for _, number, _, _ in later))

    def with_again(self, table: pa.Table, decisions: list[Decision]) -> pa.Table:
        """Returns the changes to append: those of the records, and the newer ones to append again."""
        kept = table.filter(pa.array([one.what == "changes" for one in decisions], pa.bool_()))
        again = sorted({number for one in decisions for number in one.again})
        return pa.concat_tables([kept, self.changes.take(pa.array(again, pa.int64()))]) if again else kept


def _counts_the_last(shape: TableSpec) -> bool:
    """Whether the newest change of each column, in the order of the log, makes the row."""
    engine = shape.merge.engine
    return engine is Engine.LAST or (engine is Engine.PARTIAL and not shape.needs_sidecar)


def find_newer(store: Store, state: LogState, look: SecondLook, table: pa.Table) -> NewerChanges:
    """Reads the changes of the keys of these records since the oldest record landed."""
    first = min(since(state, one.landed) for one in look.changes)
    groups = table.column("_kg").to_pylist()
    span = KeyGroups(min(groups), max(groups))
    out_of: dict[Key | None, Place] = {}
    tables, cleared = [change_schema(state.shape).empty_table()], Place()
    known: Indexes = {}
    for change_set in state.change_sets:
        if change_set.sqn < first or not change_set.key_groups.meets(span):
            continue
        changes = aligner_to_newest(state).changes(read_change_set(store, change_set, span, known), change_set.schema)
        # Rows without a key never replace each other.
        mine = of_keys(changes, table, state.shape) if state.shape.key else changes.slice(0, 0)
        if any(after < change_set.sqn <= to for after, to in find_skipped_ranges(state)):
            out_of[None] = max(out_of.get(None, ()), _find_clear(changes, state.shape))
            for row in mine.to_pylist():
                key = key_of_row(row, state.shape)
                out_of[key] = max(out_of.get(key, ()), place_of_row(row, state.shape))
        else:
            cleared = max(cleared, _find_clear(changes, state.shape))
            tables.append(mine)
    found = NewerChanges(state.shape, pa.concat_tables(tables), cleared=cleared, left_out=out_of)
    found.by_key = _by_key(found.changes, state.shape)
    return found


def _by_key(changes: pa.Table, shape: TableSpec) -> dict[Key, list[tuple[Place, int, bool, frozenset[str]]]]:
    names = [*shape.key, *place_columns(shape), "_op", "_absent"]
    found: dict[Key, list[tuple[Place, int, bool, frozenset[str]]]] = defaultdict(list)
    for number, row in enumerate(changes.select(names).to_pylist() if shape.key else ()):
        what = (row["_op"] == DELETE, frozenset(row["_absent"] or ()))
        found[key_of_row(row, shape)].append((place_of_row(row, shape), number, *what))
    return found


def _find_clear(changes: pa.Table, shape: TableSpec) -> Place:
    """Returns the place of the newest clear of the whole table. Changes with the same order come after it."""
    clears = changes.filter(pc.field("_op") == CLEAR)
    whole = [row for row in clears.to_pylist() if all(row[name] is None for name in shape.key)]
    return max(((*place_of_row(row, shape)[:-2], -1, -1) for row in whole), default=())


def key_of_row(row: Row, shape: TableSpec) -> Key:
    """Returns the key of a change."""
    return tuple(row[name] for name in shape.key)


def place_of_row(row: Row, shape: TableSpec) -> Place:
    """Returns the place of a change: the order, then the source position."""
    return tuple(row[name] for name in place_columns(shape))
