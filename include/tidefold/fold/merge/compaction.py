"""Reduces changes without a base: to those that still count (requirement C12), or to those of some keys."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.duckdb_connection import connect
from tidefold.changelog.schema import CLEAR, has_absent
from tidefold.domain.table.table_spec import Engine, TableSpec
from tidefold.fold.fold_bucket import MERGE_MEMORY
from tidefold.fold.merge.engines.statements import key_list, latest
from tidefold.storage.scratch import open_scratch


def compact_changes(changes: pa.Table, shape: TableSpec) -> pa.Table:
    """Returns fewer changes with the same effect and the same schema.

    If only the last change of a key counts, that one and every clear stay. With partial changes and other engines all
    changes count, and all stay.
    """
    if shape.merge.engine is not Engine.LAST or has_absent(changes):
        return changes
    with open_scratch() as scratch, connect(MERGE_MEMORY, scratch) as connection:
        connection.register("changes", changes.filter(pc.field("_op") != CLEAR))
        newest = connection.sql(latest(shape, "changes")).to_arrow_table().cast(changes.schema)
    return pa.concat_tables([changes.filter(pc.field("_op") == CLEAR), newest])


def of_keys(changes: pa.Table, keys: pa.Table, shape: TableSpec) -> pa.Table:
    """Returns the changes whose key is one of `keys`."""
    names = key_list(shape)
    with open_scratch() as scratch, connect(MERGE_MEMORY, scratch) as connection:
        connection.register("changes", changes)
        connection.register("keys", keys.select(list(shape.key)))
        found = connection.sql(f"SELECT * FROM changes SEMI JOIN keys USING ({names})").to_arrow_table()
    return found.cast(changes.schema)
