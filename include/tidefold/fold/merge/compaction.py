"""Reduces changes without a base: to those that still count (requirement C12), or to those of some keys."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.duckdb_connection import connect
from tidefold.changelog.schema import CLEAR, DELETE, has_absent, place_columns
from tidefold.domain.retention.compaction import REDUCING
from tidefold.domain.table.table_spec import Engine, TableSpec
from tidefold.fold.fold_bucket import MERGE_MEMORY
from tidefold.fold.merge.engines.statements import key_list, latest, place
from tidefold.storage.scratch import open_scratch


def compact_changes(changes: pa.Table, shape: TableSpec) -> pa.Table:
    """Returns fewer changes with the same effect and the same schema.

    `last`: the last change of each key and every clear stay. `first`: the last delete of each key and the first change
    after it stay, if nothing is cleared. With partial changes and other engines all changes count, and all stay.
    """
    engine, clears = shape.merge.engine, changes.filter(pc.field("_op") == CLEAR)
    if engine not in REDUCING or has_absent(changes) or (engine is Engine.FIRST and len(clears)):
        return changes
    query = latest(shape, "changes") if engine is Engine.LAST else _select_first(shape)
    with open_scratch() as scratch, connect(MERGE_MEMORY, scratch) as connection:
        connection.register("changes", changes.filter(pc.field("_op") != CLEAR))
        kept = connection.sql(query).to_arrow_table().cast(changes.schema)
    return pa.concat_tables([clears, kept])


def _select_first(shape: TableSpec) -> str:
    """Selects the last delete of each key, and the first upsert after it."""
    here, key = place(shape), key_list(shape)
    deleted = f"max(CASE WHEN _op = {DELETE} THEN {here} END) OVER (PARTITION BY {key})"
    count = f"_deleted IS NULL OR {here} >= _deleted"
    order = ", ".join(place_columns(shape))
    # A repeated change has the same place.
    return (
        f"SELECT * EXCLUDE (_deleted) FROM (SELECT *, {deleted} AS _deleted FROM changes) WHERE {count} "
        f"QUALIFY row_number() OVER (PARTITION BY {key}, _op ORDER BY {order}) = 1"
    )


def of_keys(changes: pa.Table, keys: pa.Table, shape: TableSpec) -> pa.Table:
    """Returns the changes whose key is one of `keys`."""
    names = key_list(shape)
    with open_scratch() as scratch, connect(MERGE_MEMORY, scratch) as connection:
        connection.register("changes", changes)
        connection.register("keys", keys.select(list(shape.key)))
        found = connection.sql(f"SELECT * FROM changes SEMI JOIN keys USING ({names})").to_arrow_table()
    return found.cast(changes.schema)
