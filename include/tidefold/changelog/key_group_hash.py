"""Which key group a key belongs to: md5 of its canonical text, modulo the log's number of key groups.

DuckDB computes it for changes and, on a rescale, for base rows with the same expression. Its own `hash()` is faster
but may differ between its versions; a key group is for ever.
"""

from __future__ import annotations

import duckdb
import pyarrow as pa

from tidefold.domain.log_state import TableSpec
from tidefold.domain.table.types import parse_type

# Rows without a key are spread by where they come from: 2**16 neighbours of a partition have one key group.
_RUN_BITS = 16


def quote_name(name: str) -> str:
    """A column name as a DuckDB identifier."""
    return '"' + name.replace('"', '""') + '"'


def key_group_sql(shape: TableSpec) -> str:
    """DuckDB expression for the key group of a row that has the key columns. A wider type gives the same text."""
    types = {column.name: column.type for column in shape.columns}
    if shape.key:
        texts = ", ".join(_text_sql(name, types[name]) for name in shape.spread_key)
    else:
        # Rows that came together lie together: what is new touches few buckets.
        texts = f"_partition::VARCHAR, (_offset >> {_RUN_BITS})::VARCHAR"
    # Two keys that make the same text share a key group, never a row: a collision costs nothing.
    # The upper half of the number is what `md5_number_lower` gives, in a quarter of its time.
    return f"((md5_number(concat_ws(chr(31), {texts})) >> 64::UHUGEINT)::UBIGINT % {shape.key_groups})::USMALLINT"


def _text_sql(name: str, type_: str) -> str:
    text = f"{quote_name(name)}::VARCHAR"
    # The zeros behind the point are the column's, not the number's.
    return f"rtrim(rtrim({text}, '0'), '.')" if parse_type(type_).scale else text


def with_key_groups(table: pa.Table, shape: TableSpec, connection: duckdb.DuckDBPyConnection | None = None) -> pa.Table:
    """The same rows with `_kg` filled. Who calls it often keeps a `connection` (see `connect`): opening takes 15 ms."""
    if connection is None:
        with connect() as connection:
            return with_key_groups(table, shape, connection)
    filled = key_groups_of(table, shape, connection)
    return table.set_column(table.schema.get_field_index("_kg"), table.schema.field("_kg"), filled)


def key_groups_of(table: pa.Table, shape: TableSpec, connection: duckdb.DuckDBPyConnection) -> pa.ChunkedArray:
    """The key group of each row (uint16)."""
    connection.register("keyed", table.select(list(shape.spread_key or ("_partition", "_offset"))))
    groups = connection.sql(f"SELECT {key_group_sql(shape)} AS _kg FROM keyed").to_arrow_table()
    connection.unregister("keyed")
    return groups.column("_kg").cast(pa.uint16())


def connect() -> duckdb.DuckDBPyConnection:
    """A connection that gives every value the same text everywhere. For one thread."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.execute("SET TimeZone = 'UTC'")
    return connection
