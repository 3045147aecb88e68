"""Reduces changes without a base: to those that still count (requirement C12), or to those of some keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.duckdb_connections import connect
from tidefold.changelog.schema import CLEAR, DELETE, change_schema, has_absent, order_columns, place_columns
from tidefold.domain.retention.log_bounds import REDUCING
from tidefold.domain.table.table_spec import Engine, TableSpec
from tidefold.fold.fold_bucket import MERGE_MEMORY
from tidefold.fold.merge.arrow_merge import can_tie, group_ties, hash_content
from tidefold.fold.merge.engines.statements import key_list, latest, order, place
from tidefold.storage.safe_files import open_scratch


def compact_changes(
    changes: pa.Table,
    shape: TableSpec,
    whole_from: Sequence[int] | None = None,
    tied: pa.Table | None = None,
    *,
    of_deletes: bool = True,
) -> pa.Table:
    """Returns fewer changes with the same effect, the same ties and the same schema.

    `last`: the last change of each key stays. `first`: the last delete of each key and the first change after it stay.
    With clears, partial changes and other engines all changes stay: they count, or a change of a key may need a value
    from before a snapshot.

    whole_from: `last` also keeps all changes of a key that has a delete of this order or a higher one; empty: all. With
        `of_deletes` False: all changes of this order or a higher one, and the last one before it of each key.
    tied: keys and orders whose changes all stay, because the fold counts ties: see `find_waiting_ties`.
    """
    engine, is_cleared = shape.merge.engine, pc.any(pc.equal(changes.column("_op"), CLEAR)).as_py()
    if engine not in REDUCING or has_absent(changes) or is_cleared or whole_from == ():
        return changes
    query = latest(shape, "changes") if engine is Engine.LAST else _select_first(shape)
    if engine is Engine.LAST and whole_from is not None:
        of_key, start = f"OVER (PARTITION BY {key_list(shape)})", f"{[*whole_from]}::BIGINT[]"
        if of_deletes:
            query += f" OR max({order(shape)}) FILTER (WHERE _op = {DELETE}) {of_key} >= {start}"
        else:
            before = f"max({place(shape)}) FILTER (WHERE {order(shape)} < {start}) {of_key}"
            query += f" OR {order(shape)} >= {start} OR {place(shape)} = {before}"
    with open_scratch() as scratch, connect(MERGE_MEMORY, scratch) as connection:
        connection.register("changes", changes)
        if tied:
            connection.register("tied", tied)
            query += f" OR ({', '.join([key_list(shape), *order_columns(shape)])}) IN (FROM tied)"
        return connection.sql(query).to_arrow_table().cast(changes.schema)


def find_waiting_ties(changes: Iterable[pa.Table], shape: TableSpec) -> pa.Table | None:
    """Returns the keys and orders of which `changes` have different ones; None: the engine or the order has no ties.

    changes: all that wait, however they are compacted: one that stays may tie with one of another run.
    """
    if shape.merge.engine not in REDUCING or not can_tie(shape):
        return None
    names = ", ".join([key_list(shape), *order_columns(shape)])
    with open_scratch() as scratch, connect(MERGE_MEMORY, scratch) as connection:
        for number, part in enumerate([change_schema(shape).empty_table(), *changes]):
            connection.register("part", part)
            into = "INSERT INTO waiting" if number else "CREATE TEMP TABLE waiting AS"
            connection.execute(
                f"{into} SELECT {names}, _partition, _offset, {hash_content(shape)} AS _content FROM part"
            )
        return connection.sql(f"SELECT {names} {group_ties(shape, 'waiting', '_content')}").to_arrow_table()


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
        matches = connection.sql(f"SELECT * FROM changes SEMI JOIN keys USING ({names})").to_arrow_table()
    return matches.cast(changes.schema)
