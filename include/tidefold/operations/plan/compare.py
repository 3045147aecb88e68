"""Compares the rows of a log in two stores, whose table definitions may differ, in bounded memory.

Rows are joined by key in DuckDB, which writes to disk above the memory of a merge. Tables with the same key and key
groups are compared bucket by bucket.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import duckdb
import pyarrow as pa

from tidefold.changelog.duckdb_connections import connect
from tidefold.changelog.removed import reads_of
from tidefold.changelog.schema import table_schema
from tidefold.changelog.segment import read_change_set
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import ChangeSet
from tidefold.domain.table.table_spec import ORDER, VALID_FROM, VALID_TO, TableSpec
from tidefold.fold.fold_bucket import MERGE_MEMORY
from tidefold.operations.inspect.diff import find_ranges
from tidefold.read.plan import ReadPlan, ReadTask
from tidefold.read.task import ADDED, CHANGED, KINDS, REMOVED, Difference, load_batches, plan_schema, read_task
from tidefold.storage import Store
from tidefold.storage.safe_files import open_scratch

_TABLES = ("before", "after")
# Rows of a history that are not valid any more.
VERSIONS_ADDED, VERSIONS_REMOVED = "versions added", "versions removed"


# A store, and a read of one snapshot in it.
Side = tuple[Store, ReadPlan]


@dataclass(slots=True)
class Comparison:
    """How the rows after an edit differ from those before.

    rows: how many there are before, and after.
    joined_by: the columns by which rows are joined; empty: no key is in both tables, so no row is `changed`.
    counts: rows by kind: those that are valid now, then the earlier versions of a history.
    columns: in how many changed rows a column has another value.
    lost: how many of the removed rows have keys that only the `gone` change sets brought.
    examples: the first rows of each kind.
    """

    rows: tuple[int, int]
    joined_by: tuple[str, ...]
    counts: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(KINDS, 0)))
    columns: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    examples: list[Difference] = field(default_factory=list)


def compare_rows(before: Side, after: Side, gone: Sequence[ChangeSet], limit: int) -> Comparison:
    """Compares all rows. Raises CorruptError if a file is not as confirmed.

    gone: change sets of the first side whose landed files are gone.
    limit: the number of examples of each kind.
    """
    plans = before[1], after[1]
    one, other = (plan.shape for plan in plans)
    comparison = Comparison((_count_rows(plans[0]), _count_rows(plans[1])), _find_join(one, other))
    is_alike = _place_of_rows(one) == _place_of_rows(other)
    ranges: Iterable[KeyGroups | None] = find_ranges(plans) if is_alike else [None]
    for key_groups in ranges:
        with open_scratch() as scratch, connect(MERGE_MEMORY, scratch) as connection:
            for name, side in zip(_TABLES, (before, after), strict=True):
                # An empty batch makes the table, if there is no row.
                first = pa.RecordBatch.from_pylist([], schema=plan_schema(side[1]))
                load_batches(connection, name, chain([first], _read(side, key_groups)))
            bucket = _Bucket(connection, one, other, comparison, limit)
            bucket.compare()
            if gone and comparison.joined_by:
                bucket.count_lost(_read_keys(before, gone, key_groups))
    return comparison


def _find_join(one: TableSpec, other: TableSpec) -> tuple[str, ...]:
    """Returns the columns of both keys, which no two rows of a side share; empty: a table lacks one of them."""
    both = tuple(dict.fromkeys((*one.key, *other.key)))
    common = {c.name for c in one.columns} & {c.name for c in other.columns}
    return both if one.key and other.key and set(both) <= common else ()


def _place_of_rows(shape: TableSpec) -> tuple[Any, ...]:
    """Returns what decides in which key group a row is."""
    return shape.key, [shape.types[name] for name in shape.key], shape.key_groups, shape.spread


def _count_rows(plan: ReadPlan) -> int:
    return sum(file.rows for file in plan.files if not file.hidden)


def _read(side: Side, key_groups: KeyGroups | None) -> Iterator[pa.RecordBatch]:
    store, plan = side
    task = plan.whole
    if key_groups is not None:
        task = ReadTask(key_groups, tuple(f for f in task.files if f.key_groups.meets(key_groups)), ())
    return read_task(store, plan, task)


def _read_keys(side: Side, gone: Sequence[ChangeSet], key_groups: KeyGroups | None) -> Iterator[pa.RecordBatch]:
    store, plan = side
    wanted = key_groups or KeyGroups(0, plan.shape.key_groups - 1)
    for one in gone:
        with reads_of(store, plan.log, [one]):
            changes = plan.aligner.changes(read_change_set(store, one, wanted, {}), one.schema)
        yield from changes.to_batches()


class _Bucket:
    """Two tables, `before` and `after`, whose columns are named by their numbers: c0, c1, ..."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, one: TableSpec, other: TableSpec, into: Comparison, limit: int
    ) -> None:
        self._connection, self._shapes, self._into, self._limit = connection, (one, other), into, limit
        self._names = [*one.types], [*other.types]
        described = connection.execute("SELECT column_name, column_type FROM (DESCRIBE after)").fetchall()
        self._sql_types = dict(described)
        self._values = [c.name for c in one.columns if c.name in other.types and c.name not in into.joined_by]

    def compare(self) -> None:
        """Adds what differs to the comparison."""
        if not self._into.joined_by:
            self._subtract(self._values, "true", (ADDED, REMOVED))
            return
        self._join()
        for kind in (ADDED, REMOVED, CHANGED):
            self._add_examples(kind)
        if all(VALID_TO in shape.types for shape in self._shapes):
            names = [*self._into.joined_by, *self._values, VALID_FROM, VALID_TO]
            self._subtract(names, "{valid_to} IS NOT NULL", (VERSIONS_ADDED, VERSIONS_REMOVED))
            return
        for at, kind in enumerate((VERSIONS_REMOVED, VERSIONS_ADDED)):
            if VALID_TO in self._shapes[at].types:
                [(count,)] = self._fetch(
                    f"SELECT count(*) FROM {_TABLES[at]} s WHERE {self._column(at, VALID_TO)} IS NOT NULL"
                )
                self._into.counts[kind] += count

    def count_lost(self, keys: Iterable[pa.RecordBatch]) -> None:
        """Counts the removed rows that have one of these keys."""
        shape = self._shapes[0]
        schema = pa.schema([field for field in table_schema(shape) if field.name in shape.key])
        ordered = (batch.select(schema.names) for batch in keys)
        load_batches(self._connection, "gone", chain([pa.RecordBatch.from_pylist([], schema=schema)], ordered))
        on = " AND ".join(f"g.c{i} = {self._column(0, n)}" for i, n in enumerate(schema.names))
        [(count,)] = self._fetch(
            f"SELECT count(*) FROM d JOIN before s ON s.rowid = d.bp WHERE d.change = '{REMOVED}' "
            f"AND EXISTS (FROM gone g WHERE {on})"
        )
        self._into.lost += count

    def _fetch(self, statement: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement).fetchall()

    def _column(self, at: int, name: str, alias: str = "s") -> str:
        return f"{alias}.c{self._names[at].index(name)}"

    def _cell(self, at: int, name: str, alias: str = "s") -> str:
        """Returns the value of a column of one side, in the type of the later side."""
        text = self._column(at, name, alias)
        if at or self._shapes[0].types[name] == self._shapes[1].types[name]:
            return text
        return f"TRY_CAST({text} AS {self._sql_types[f'c{self._names[1].index(name)}']})"

    def _join(self) -> None:
        """Joins the rows that are valid now, and keeps where they differ."""

        def pair(name: str) -> tuple[str, str]:
            return self._cell(0, name, "b"), self._cell(1, name, "a")

        on = " AND ".join(f"{b} IS NOT DISTINCT FROM {a}" for b, a in map(pair, self._into.joined_by))
        differ = [f"{b} IS DISTINCT FROM {a}" for b, a in map(pair, self._values)]
        flags = "".join(f", {one} AS f{i}" for i, one in enumerate(differ))
        sides = []
        for at, table in enumerate(_TABLES):
            now = f" WHERE {self._column(at, VALID_TO)} IS NULL" if VALID_TO in self._shapes[at].types else ""
            sides.append(f"(SELECT rowid AS row, s.* FROM {table} s{now})")
        self._connection.execute(
            f"CREATE TEMP TABLE d AS SELECT b.row AS bp, a.row AS ap, CASE WHEN b.row IS NULL THEN '{ADDED}' "
            f"WHEN a.row IS NULL THEN '{REMOVED}' ELSE '{CHANGED}' END AS change{flags} "
            f"FROM {sides[0]} b FULL JOIN {sides[1]} a ON {on} "
            f"WHERE {' OR '.join(['b.row IS NULL', 'a.row IS NULL', *differ])}"
        )
        sums = "".join(f", sum(f{i}::INT)" for i in range(len(differ)))
        for change, count, *flagged in self._fetch(f"SELECT change, count(*){sums} FROM d GROUP BY change"):
            self._into.counts[change] += count
            if change == CHANGED:
                self._into.columns.update({n: int(c) for n, c in zip(self._values, flagged, strict=True) if c})

    def _subtract(self, names: Sequence[str], where: str, kinds: tuple[str, str]) -> None:
        """Counts the rows of each side that the other one does not have as often."""
        sides = []
        for at, table in enumerate(_TABLES):
            cells = ", ".join(self._cell(at, name) for name in names) or "0"
            valid_to = self._column(at, VALID_TO) if VALID_TO in self._shapes[at].types else ""
            sides.append(f"(SELECT {cells} FROM {table} s WHERE {where.format(valid_to=valid_to)})")
        for kind, (one, other) in zip(kinds, (reversed(sides), sides), strict=True):
            [(count,)] = self._fetch(f"SELECT count(*) FROM ({one} EXCEPT ALL {other})")
            self._into.counts[kind] += count

    def _add_examples(self, kind: str) -> None:
        left = self._limit - sum(one.change == kind for one in self._into.examples)
        listed = self._fetch(f"SELECT bp, ap FROM d WHERE change = '{kind}' ORDER BY bp, ap LIMIT {max(left, 0)}")
        for places in listed:
            before, after = (None if place is None else self._read_row(at, place) for at, place in enumerate(places))
            key = {name: (after or before or {})[name] for name in self._into.joined_by}
            self._into.examples.append(Difference(kind, key, before, after))

    def _read_row(self, at: int, place: int) -> dict[str, Any]:
        [row] = self._connection.sql(f"FROM {_TABLES[at]} WHERE rowid = {place}").to_arrow_table().to_pylist()
        return {name: value for name, value in zip(self._names[at], row.values(), strict=True) if name != ORDER}
