"""Ties: different changes of one key with the same order. The later position counts, and people are informed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidefold.changelog.key_group_hash import quote_name
from tidefold.changelog.schema import order_columns
from tidefold.domain.table.table_spec import ARRIVAL, Engine, TableSpec
from tidefold.fold.merge.engines.statements import key_list

if TYPE_CHECKING:
    import duckdb

TIED = "tied"
# This many are listed by name. The others are only counted.
LISTED = 20
_DECIDING = (Engine.LAST, Engine.FIRST, Engine.PARTIAL, Engine.HISTORY)


@dataclass(frozen=True, slots=True)
class Tied:
    """The number of keys with a tie, and some of them as JSON, with their order."""

    count: int = 0
    listed: tuple[str, ...] = ()


def find_ties(connection: duckdb.DuckDBPyConnection, shape: TableSpec) -> Tied:
    """Returns the ties among the changes that count (`live`)."""
    if not shape.order_width or shape.order == ARRIVAL or shape.merge.engine not in _DECIDING:
        return Tied()
    key, order = key_list(shape), ", ".join(order_columns(shape))
    connection.execute(
        f"CREATE TEMP TABLE {TIED} AS SELECT {key}, {order} FROM live GROUP BY {key}, {order} HAVING count(*) > 1"
    )
    [(count,)] = connection.execute(f"SELECT count(*) FROM {TIED}").fetchall()
    if not count:
        return Tied()
    content = ", ".join(["_op", "_absent", *(quote_name(column.name) for column in shape.columns)])
    different = (
        f"SELECT {key}, {order} FROM live SEMI JOIN {TIED} USING ({key}, {order}) GROUP BY {key}, {order} "
        f"HAVING count(DISTINCT hash({content})) > 1"
    )
    [(count,)] = connection.execute(f"SELECT count(DISTINCT ({key})) FROM ({different})").fetchall()
    found = connection.execute(f"{different} ORDER BY {key}, {order} LIMIT {LISTED}").fetchall()
    return Tied(count, tuple(_describe_tie(shape, row) for row in found))


def _describe_tie(shape: TableSpec, row: tuple[object, ...]) -> str:
    width = len(shape.key)
    return json.dumps({**dict(zip(shape.key, row[:width], strict=True)), "order": list(row[width:])}, default=str)
