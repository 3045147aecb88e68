"""The merge of one bucket: base rows and changes in as Arrow, merged rows out as Arrow; DuckDB does the work.

The result is a pure function of the set of changes: per key the change with the highest order counts, at equal order
the one with the later source position (design 5). How the changes were split or in which order they came is not seen.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from tidefold.changelog.columns import DELETE, UPSERT, place_columns, table_schema
from tidefold.changelog.key_group import quoted
from tidefold.lifecycle.values import Shape

# Each thread's connection that no merge uses now: a new one costs as much as merging 100,000 rows (decision 0014).
_idle = threading.local()


@dataclass(frozen=True, slots=True)
class Squashed:
    """How many keys the changes leave to upsert and to delete."""

    upserts: int
    deletes: int


@contextmanager
def merged(
    base: pa.RecordBatchReader | None, changes: pa.Table, shape: Shape, *, memory: str, scratch: str
) -> Iterator[tuple[Squashed, pa.RecordBatchReader]]:
    """The rows of a bucket after its changes, sorted by key, as a stream that is read within the context.

    `base` is consumed once, batch by batch. Above `memory` (DuckDB size, such as `1GB`) it spills into `scratch`.
    """
    schema = table_schema(shape)
    with _connection(memory, scratch) as connection:
        connection.register("changes", changes)
        connection.execute(_squash_sql(shape))
        connection.register("base", base if base is not None else schema.empty_table())
        [counted] = connection.execute(
            f"SELECT count(*) FILTER (_op = {UPSERT}), count(*) FILTER (_op = {DELETE}) FROM latest"
        ).fetchall()
        stream = connection.sql(_merge_sql(shape)).to_arrow_reader(65_536)
        yield Squashed(*counted), stream


@contextmanager
def _connection(memory: str, scratch: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for one merge, empty again when it ends well; after an error it is not used any more."""
    connection = _opened(memory, scratch)
    try:
        yield connection
        connection.unregister("base")
        connection.unregister("changes")
        connection.execute("DROP TABLE latest")
    except BaseException:
        connection.close()
        raise
    _idle.connection = connection


def _opened(memory: str, scratch: str) -> duckdb.DuckDBPyConnection:
    idle: duckdb.DuckDBPyConnection | None = getattr(_idle, "connection", None)
    _idle.connection = None
    if idle is not None:
        try:
            return _set(idle, memory, scratch)
        except duckdb.Error:
            idle.close()  # It spilled: it cannot be given another folder.
    return _set(duckdb.connect(), memory, scratch)


def _set(connection: duckdb.DuckDBPyConnection, memory: str, scratch: str) -> duckdb.DuckDBPyConnection:
    # One thread: Spark already runs one task a core.
    connection.execute("SET threads = 1")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET memory_limit = ?", [memory])
    connection.execute("SET temp_directory = ?", [scratch])
    return connection


def squashed(changes: pa.Table, shape: Shape) -> pa.Table:
    """Of each key the change that counts, with the schema of a change set."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("changes", changes)
        connection.execute(_squash_sql(shape))
        return connection.sql("SELECT * FROM latest").to_arrow_table().cast(changes.schema)


def of_keys(changes: pa.Table, keys: pa.Table, shape: Shape) -> pa.Table:
    """The changes whose key is one of `keys`: their key columns and their place."""
    names = ", ".join(quoted(name) for name in shape.key)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("changes", changes)
        connection.register("keys", keys.select(list(shape.key)))
        columns = ", ".join((names, *place_columns(shape)))
        return connection.sql(f"SELECT {columns} FROM changes SEMI JOIN keys USING ({names})").to_arrow_table()


def _squash_sql(shape: Shape) -> str:
    key = ", ".join(quoted(name) for name in shape.key)
    newest = ", ".join(f"{name} DESC" for name in place_columns(shape))
    return (
        "CREATE TEMP TABLE latest AS SELECT * FROM changes "
        f"QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY {newest}) = 1"
    )


def _merge_sql(shape: Shape) -> str:
    columns = ", ".join(quoted(column.name) for column in shape.columns)
    key = ", ".join(quoted(name) for name in shape.key)
    # Keys are never null (ingest refuses them), so a plain anti join compares them rightly.
    return (
        f"SELECT {columns} FROM base ANTI JOIN latest USING ({key}) "
        f"UNION ALL SELECT {columns} FROM latest WHERE _op = {UPSERT} ORDER BY {key}"
    )
