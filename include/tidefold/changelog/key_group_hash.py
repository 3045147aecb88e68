"""Key groups by md5 of a key's canonical text, computed by DuckDB.

DuckDB computes it with the same expression for changes and, when buckets change, for base rows. DuckDB's own `hash()`
is faster but may differ between versions, and a key group never changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidefold.changelog.duckdb_connections import connect
from tidefold.domain.log_state import TableSpec
from tidefold.domain.table.types import parse_type

if TYPE_CHECKING:
    import pyarrow as pa


# Rows without a key are spread by where they come from: 2**16 neighbours of a partition have one key group.
_RUN_BITS = 16


def quote_name(name: str) -> str:
    """Returns a column name as a DuckDB identifier."""
    return '"' + name.replace('"', '""') + '"'


def key_group_sql(shape: TableSpec) -> str:
    """Returns the DuckDB expression for the key group of a row. A wider type gives the same text."""
    types = {column.name: column.type for column in shape.columns}
    if shape.key:
        texts = ", ".join(_text_sql(name, types[name]) for name in shape.spread_key)
    else:
        # Rows that arrive together share a key group, so new rows touch few buckets.
        texts = f"_partition::VARCHAR, (_offset >> {_RUN_BITS})::VARCHAR"
    # Two keys with the same text share a key group, never a row, so a collision is harmless.
    # The upper half of the number is the result of `md5_number_lower`, in a quarter of the time.
    return f"((md5_number(concat_ws(chr(31), {texts})) >> 64::UHUGEINT)::UBIGINT % {shape.key_groups})::USMALLINT"


def _text_sql(name: str, type_: str) -> str:
    text = f"{quote_name(name)}::VARCHAR"
    # The zeros after the point belong to the type of the column, not to the number.
    return f"rtrim(rtrim({text}, '0'), '.')" if parse_type(type_).scale else text


def with_key_groups(table: pa.Table, shape: TableSpec) -> pa.Table:
    """Returns the same rows with `_kg` filled."""
    return table.set_column(table.schema.get_field_index("_kg"), table.schema.field("_kg"), key_groups_of(table, shape))


def key_groups_of(table: pa.Table, shape: TableSpec) -> pa.ChunkedArray:
    """Returns the key group of each row (uint16)."""
    import pyarrow as pa

    with connect() as connection:
        connection.register("keyed", table.select(list(shape.spread_key or ("_partition", "_offset"))))
        groups = connection.sql(f"SELECT {key_group_sql(shape)} AS _kg FROM keyed").to_arrow_table()
    return groups.column("_kg").cast(pa.uint16())
