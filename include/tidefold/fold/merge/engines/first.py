"""First wins: the row is the first change of its key, or the first change after a delete."""

from __future__ import annotations

from tidefold.changelog.key_group_hash import quote_name
from tidefold.changelog.schema import DELETE, UPSERT
from tidefold.domain.table.table_spec import ORDER, TableSpec
from tidefold.fold.merge.engines.statements import Statements, join_base, key_list, oldest, place, value_of, values


def first(shape: TableSpec) -> Statements:
    """Returns the statements. In a log's own order the existing row came first.

    In a log that columns order, the sidecar keeps the order of rows, and nothing is deleted.
    """
    key, here = key_list(shape), place(shape)
    deleted = f"max(CASE WHEN _op = {DELETE} THEN {here} END) OVER (PARTITION BY {key})"
    counted = f"_op = {UPSERT} AND (_deleted IS NULL OR {here} > _deleted)"
    taken = "".join(f", {oldest(c, here)} FILTER ({counted}) AS _v{i}" for i, c in enumerate(values(shape)))
    touched = (
        f"SELECT {key}, any_value(_deleted) IS NOT NULL AS _gone, min({here}) FILTER ({counted}) AS _place{taken} "
        f"FROM (SELECT *, {deleted} AS _deleted FROM live) GROUP BY {key}"
    )
    there = f"base.{quote_name(shape.key[0])} IS NOT NULL"
    stays = f"({there} AND (touched._gone IS NULL OR (NOT touched._gone AND {_came_first(shape)})))"
    chosen = [
        f"CASE WHEN {stays} THEN base.{quote_name(c.name)} ELSE {value_of(c, f'touched._v{i}')} END"
        for i, c in enumerate(values(shape))
    ]
    if shape.stores_order:
        chosen.append(f"CASE WHEN {stays} THEN base.{ORDER} ELSE touched._place END")
    counts = "SELECT count(*) FILTER (_place IS NOT NULL), count(*) FILTER (_place IS NULL) FROM touched"
    return Statements(
        (("touched", touched),), counts, join_base(shape, chosen, f"{stays} OR touched._place IS NOT NULL")
    )


def _came_first(shape: TableSpec) -> str:
    return "true" if shape.source_ordered else f"base.{ORDER} <= touched._place"
