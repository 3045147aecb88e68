"""Decides which refused records a retry may append, by what came for their keys since, and in other files.

A newer change that sets all columns of the record supersedes it; so do deletes and clears. Newer changes without some
of the columns (values that were not sent) do not supersede it. In that case the retry appends the record and then these
changes again. The fold lets later changes win, so the rows are as if the record had been readable at once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.schema import CLEAR, DELETE, change_schema, order_columns, place_columns
from tidefold.changelog.segment import Indexes, read_change_set
from tidefold.domain.ingest.quarantine_retry import find_skipped_ranges, since, stream_before
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import LogState, TableSpec
from tidefold.domain.source_progress import LandedFileRecord, list_streamed
from tidefold.domain.table.table_spec import MARIADB, MONGODB, MYSQL, ORACLE, POSITION, POSTGRESQL, SQLSERVER, Engine
from tidefold.fold.merge.compaction import of_keys
from tidefold.operations.ground.schema_update import aligner_to_newest
from tidefold.sources.debezium.late_checks import checks_late
from tidefold.sources.json_lines.late_keys import follows_unwrapped
from tidefold.sources.quarantine.reparse import Refused, SecondLook
from tidefold.sources.records.accounting import COUNTING
from tidefold.storage import Store

# In a log that counts every record, a record without proof stays in quarantine, so that it is not counted twice.
Row = dict[str, Any]
Key = tuple[object, ...]
Place = tuple[int, ...]
Order = tuple[int, ...]
# With these orders, a source that restarts sends earlier records again.
_GOES_BACK = (POSTGRESQL, MYSQL, MARIADB, SQLSERVER, ORACLE, MONGODB)
# Unwrapped records do not say where a transaction begins: so many of the newest offsets may be of one.
_UNWRAPPED = 10_000
_PLACE = ("_partition", "_offset", "_ts", "_kg")


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
    """Records that ask for the row that a key had: changes of a key that lack values, and what was taken over.

    orders: their orders; the delete of the old key has the same one. Without an order of the source: places of deletes.
    keys: the texts of keys, each with the highest order before which a record asks for its row; None: of unknown ones.
    open: where the newest transaction begins; empty: keys are checked at once. Its later records may ask for the rows
        that it superseded.
    """

    orders: frozenset[Order] = frozenset()
    keys: Mapping[tuple[str, ...] | None, Order] = field(default_factory=dict)
    open: Order = ()

    def has(self, key: Key, text: tuple[str, ...] | None, at: Place, deleted: Iterable[Place]) -> bool:
        """Whether a record waits for what the key was at this place. The key was deleted at these places.

        text: the key as the source wrote it.
        """
        waits = max(self.keys.get(one, ()) for one in (tuple(map(str, key)), text, None)) > (at[:-2] or at)
        return waits or any((place[:-2] or place) in self.orders for place in deleted)


@dataclass(slots=True)
class NewerChanges:
    """The changes of some keys since their records were refused.

    by_key: for each key the numbers of its changes.
    cleared: the place of the newest clear of the whole table, but of a snapshot by signal.
    signalled: the orders of such snapshots. They show later moments, so that changes of keys after them still need what
        came before: they supersede no upsert.
    left_out: for each key (None: for all) the highest place that a restore or an import skipped.
    """

    shape: TableSpec
    changes: pa.Table
    by_key: dict[Key, list[tuple[Place, int, bool, frozenset[str]]]] = field(default_factory=dict)
    cleared: Place = ()
    signalled: frozenset[Order] = frozenset()
    left_out: dict[Key | None, Place] = field(default_factory=dict)

    def decide(self, row: Row, text: tuple[str, ...] | None, awaited: Awaited) -> Decision:
        """Decides about a record, given as a change, with its key as the source wrote it.

        A record that an `awaited` one needs is appended, unless the whole table was cleared since.
        """
        shape, place = self.shape, place_of_row(row, self.shape)
        key = key_of_row(row, shape)
        waits = max(self.left_out.get(key, ()), self.left_out.get(None, ())) >= place
        later = [one for one in self.by_key.get(key, ()) if one[0] >= place]
        if shape.accepts_late or not (later or self.cleared >= place):
            return Decision("left_out" if waits else "changes")
        if not _counts_the_last(shape):
            return Decision("newer")
        silent = frozenset(row["_absent"] or ())
        is_awaited = awaited.has(key, text, place, (one[0] for one in later if one[2]))
        gone = self.cleared >= place or any(one[0] == place for one in later)
        closed = [one for one in later if not awaited.open or one[0] < awaited.open]
        streamed = [one for one in closed if one[0][:-2] not in self.signalled]
        is_superseded = any(deleted or left <= silent for _, _, deleted, left in streamed)
        if gone or ((is_superseded or (closed and row["_op"] == DELETE)) and not is_awaited):
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


def find_newer(
    store: Store, state: LogState, look: SecondLook, table: pa.Table, *, are_lost: bool = False
) -> NewerChanges:
    """Reads the changes of the keys of these records since the oldest record landed.

    are_lost: nothing can complete the records. A snapshot by signal then supersedes them once the stream has reached
        the moment that it shows.
    """
    first = min(since(state, one.landed) for one in look.changes)
    groups = table.column("_kg").to_pylist()
    span = KeyGroups(min(groups), max(groups))
    out_of: dict[Key | None, Place] = {}
    tables, cleared = [change_schema(state.shape).empty_table()], Place()
    ends = [(one, at.stream.max_commit_time or 0) for at in state.positions for one in at.stream.signalled]
    signalled = frozenset(one[:-1] for one, end in ends if not are_lost or end <= one[-1])
    indexes: Indexes = {}
    for change_set in state.change_sets:
        if change_set.sqn < first or not change_set.key_groups.meets(span):
            continue
        changes = aligner_to_newest(state).changes(read_change_set(store, change_set, span, indexes), change_set.schema)
        # Rows without a key never replace each other.
        mine = of_keys(changes, table, state.shape) if state.shape.key else changes.slice(0, 0)
        if any(after < change_set.sqn <= to for after, to in find_skipped_ranges(state)):
            out_of[None] = max(out_of.get(None, ()), _find_clear(changes, state.shape))
            for row in mine.to_pylist():
                key = key_of_row(row, state.shape)
                out_of[key] = max(out_of.get(key, ()), place_of_row(row, state.shape))
        else:
            cleared = max(cleared, _find_clear(changes, state.shape, signalled))
            tables.append(mine)
    newer = NewerChanges(state.shape, pa.concat_tables(tables), {}, cleared, signalled, out_of)
    newer.by_key = _by_key(newer.changes, state.shape)
    return newer


def _by_key(changes: pa.Table, shape: TableSpec) -> dict[Key, list[tuple[Place, int, bool, frozenset[str]]]]:
    names = [*shape.key, *place_columns(shape), "_op", "_absent"]
    by_key: dict[Key, list[tuple[Place, int, bool, frozenset[str]]]] = defaultdict(list)
    for number, row in enumerate(changes.select(names).to_pylist() if shape.key else ()):
        what = (row["_op"] == DELETE, frozenset(row["_absent"] or ()))
        by_key[key_of_row(row, shape)].append((place_of_row(row, shape), number, *what))
    return by_key


def _find_clear(changes: pa.Table, shape: TableSpec, but: Collection[Order] = ()) -> Place:
    """Returns the place of the newest clear of the whole table. Changes with the same order come after it.

    but: the orders of clears that do not count.
    """
    clears = changes.filter(pc.field("_op") == CLEAR)
    whole = [row for row in clears.to_pylist() if all(row[name] is None for name in shape.key)]
    orders = (order_of_row(row, shape) for row in whole)
    return max(((*order, -1, -1) for order in orders if order not in but), default=())


def key_of_row(row: Row, shape: TableSpec) -> Key:
    """Returns the key of a change."""
    return tuple(row[name] for name in shape.key)


def place_of_row(row: Row, shape: TableSpec) -> Place:
    """Returns the place of a change: the order, then the source position."""
    return tuple(row[name] for name in place_columns(shape))


def may_be_taken_over(shape: TableSpec) -> bool:
    """Whether a record may ask what was under its key before its transaction (decision 0069)."""
    return follows_unwrapped(shape) if shape.order == POSITION else checks_late(shape)


def find_open(state: LogState) -> Order:
    """Returns where the newest transaction begins, whose later records may ask for rows before it; empty: none may."""
    if not may_be_taken_over(state.shape):
        return ()
    if state.shape.order == POSITION:
        return min(((p.partition, p.next_offset - _UNWRAPPED) for p in state.positions), default=())
    return min((position.stream.max_order for position in list_streamed(state.positions)), default=())[:1]


class ResentProof:
    """Judges the records of one partition in the order of arrival."""

    def __init__(self, store: Store, state: LogState) -> None:
        self._store, self._state = store, state
        self._counts = state.shape.merge.engine in COUNTING
        self._former: list[tuple[Order, str]] = []

    def judge(self, row: Row, one: Refused) -> str | None:
        """Returns `repeated`: it was sent before; `unproved`: that cannot be decided; None: it is new."""
        if one.entry.order is not None or self._state.shape.order not in _GOES_BACK:
            return None
        order, before = order_of_row(row, self._state.shape), stream_before(self._state, one.landed).max_order
        if order < before:
            return "repeated"
        return self._judge_counted(row, order, before, one.landed) if self._counts else None

    def _judge_counted(self, row: Row, order: Order, before: Order, landed: LandedFileRecord) -> str | None:
        """Judges a record of a log that counts every record.

        Only their number distinguishes rows with the same order. A record is new if its order is higher than all
        before, or if its content is new and the source has not sent anything again so far.
        """
        taken = self._read_taken(landed, row["_offset"])
        reached = max([before, *(at for at, _ in (*taken, *self._former))], default=())
        if order < reached:
            return "repeated"
        content = _content(row)
        same = Counter((*taken, *self._former))[order, content]
        self._former.append((order, content))
        if order > reached or (order > before and not same and not self._was_resent(landed)):
            return None
        return "unproved"

    def _read_taken(self, landed: LandedFileRecord, offset: int) -> list[tuple[Order, str]]:
        """Returns orders and contents of the partition's changes before an offset, since the file landed."""
        rows, shape = [], self._state.shape
        for change_set in self._state.change_sets:
            if change_set.sqn >= since(self._state, landed):
                read = read_change_set(self._store, change_set)
                for row in aligner_to_newest(self._state).changes(read, change_set.schema).to_pylist():
                    if row["_partition"] == landed.partition and row["_offset"] < offset and row["_op"] != CLEAR:
                        rows.append((order_of_row(row, shape), _content(row)))
        return rows

    def _was_resent(self, landed: LandedFileRecord) -> bool:
        """Whether the source had gone back before the end of this file."""
        place = (landed.topic, landed.partition)
        return any(
            e.repeated or e.resent
            for e in self._state.landed
            if e.number <= landed.number and (e.topic, e.partition) == place
        )


def order_of_row(row: Row, shape: TableSpec) -> Order:
    """Returns the order of a change."""
    return tuple(row[name] for name in order_columns(shape))


def order_or_place(row: Row, shape: TableSpec) -> tuple[int, ...]:
    """Returns the order of a change; without one of the source, its place."""
    return order_of_row(row, shape) or place_of_row(row, shape)


def _content(row: Row) -> str:
    return repr({name: value for name, value in row.items() if name not in _PLACE})
