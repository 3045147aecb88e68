"""Compares two sets of rows by key: which were added, changed, removed. Arrow in, counts and rows out; DuckDB joins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from tidefold.changelog.duckdb_connection import connect
from tidefold.domain.log_state import TableSpec
from tidefold.fold.fold_bucket import MERGE_MEMORY
from tidefold.storage.scratch import open_scratch

ADDED, CHANGED, REMOVED = "added", "changed", "removed"
KINDS = (ADDED, CHANGED, REMOVED)


@dataclass(frozen=True, slots=True)
class Difference:
    """One row that differs: `before` is None if it was added, `after` if it was removed."""

    change: str
    key: dict[str, Any]
    before: dict[str, Any] | None
    after: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Compared:
    """The numbers of different rows, by kind, and the first of them in the order of the key."""

    counts: dict[str, int]
    rows: tuple[Difference, ...]


def compare(
    before: Iterable[pa.RecordBatch], after: Iterable[pa.RecordBatch], shape: TableSpec, limit: int
) -> Compared:
    """Compares rows with the columns of `shape`, whose keys are unique on each side; returns at most `limit` rows.

    Rows of a table without a key are only added or removed: equal rows cancel each other out.

    Errors of the iterables are raised. The comparison spills to disk above the memory of a merge.
    """
    with open_scratch() as scratch, connect(MERGE_MEMORY, scratch) as connection:
        # Loaded batch by batch, not scanned by DuckDB: it would wrap the errors of the file reader.
        there = [_load(connection, "before", before), _load(connection, "after", after)]
        if there == [False, False]:
            return Compared(dict.fromkeys(KINDS, 0), ())
        if there == [False, True]:
            connection.execute("CREATE TEMP TABLE before AS FROM after LIMIT 0")
        if there == [True, False]:
            connection.execute("CREATE TEMP TABLE after AS FROM before LIMIT 0")
        connection.execute(_differences(shape) if shape.key else _differences_of_all(len(shape.columns)))
        counted = dict(connection.execute("SELECT change, count(*) FROM differences GROUP BY ALL").fetchall())
        found = connection.sql(f"FROM differences ORDER BY ALL LIMIT {int(limit)}").to_arrow_table().to_pylist()
        rows = (_difference(tuple(row.values()), shape) for row in found)
        return Compared({kind: counted.get(kind, 0) for kind in KINDS}, tuple(rows))


def _load(connection: duckdb.DuckDBPyConnection, name: str, batches: Iterable[pa.RecordBatch]) -> bool:
    """Makes and fills a table. Returns false if there was no batch; then there is no table."""
    there = False
    for batch in batches:
        # By place: names of columns are the user's, and DuckDB takes `id` and `ID` for one.
        rows = pa.Table.from_batches([batch.rename_columns([f"c{i}" for i in range(batch.num_columns)])])
        connection.register("batch", rows)
        connection.execute(f"INSERT INTO {name} FROM batch" if there else f"CREATE TEMP TABLE {name} AS FROM batch")
        there = True
    return there


def _differences(shape: TableSpec) -> str:
    names = [column.name for column in shape.columns]
    key = [f"c{names.index(name)}" for name in shape.key]
    same_key = " AND ".join(f"b.{c} = a.{c}" for c in key)
    columns = [f"c{i}" for i in range(len(names))]
    other = " OR ".join(f"b.{c} IS DISTINCT FROM a.{c}" for c in columns)
    # A key is never null, so a null key belongs to no row.
    change = f"CASE WHEN b.{key[0]} IS NULL THEN '{ADDED}' WHEN a.{key[0]} IS NULL THEN '{REMOVED}' "
    change += f"ELSE '{CHANGED}' END"
    keys = ", ".join(f"coalesce(b.{c}, a.{c}) AS k{i}" for i, c in enumerate(key))
    sides = ", ".join(f"{side}.{c} AS {side}_{c}" for side in ("b", "a") for c in columns)
    return (
        f"CREATE TEMP TABLE differences AS SELECT {keys}, {change} AS change, {sides} "
        f"FROM before b FULL JOIN after a ON {same_key} WHERE {other}"
    )


def _differences_of_all(width: int) -> str:
    columns = [f"c{i}" for i in range(width)]
    parts = []
    for change, one, other in ((ADDED, "after", "before"), (REMOVED, "before", "after")):
        sides = (f"{c if side == one else 'NULL'} AS {side[0]}_{c}" for side in ("before", "after") for c in columns)
        found = f"(FROM {one} EXCEPT ALL FROM {other})"
        parts.append(f"SELECT '{change}' AS change, {', '.join(sides)} FROM {found}")
    return f"CREATE TEMP TABLE differences AS {' UNION ALL '.join(parts)}"


def _difference(row: tuple[Any, ...], shape: TableSpec) -> Difference:
    names = [column.name for column in shape.columns]
    keys, change = row[: len(shape.key)], row[len(shape.key)]
    values = row[len(shape.key) + 1 :]
    before, after = dict(zip(names, values, strict=False)), dict(zip(names, values[len(names) :], strict=True))
    return Difference(
        change,
        dict(zip(shape.key, keys, strict=True)),
        None if change == ADDED else before,
        None if change == REMOVED else after,
    )
