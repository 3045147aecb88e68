"""Columns of a change set and of a table, as Arrow types: the contract between sources, segments and the fold.

A change set carries, before the user's columns:
`_op` (0 upsert, 1 delete), `_kg` (key group), `_o0`.. (the order, compared number by number), `_partition` and
`_offset` (source position), `_ts` (source commit time, microseconds since 1970 UTC). A delete fills only the key.
"""

from __future__ import annotations

import pyarrow as pa

from tidefold.lifecycle.values import Shape

UPSERT, DELETE = 0, 1
# The order of a log that has none of its own: the place in the stream of the one who writes it.
ARRIVAL = "arrival"
# How many numbers make up an order of each kind.
ORDER_WIDTH = {"postgresql": 2, ARRIVAL: 1}

_ARROW = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def order_columns(shape: Shape) -> tuple[str, ...]:
    """Names of the order columns, most significant first."""
    return tuple(f"_o{i}" for i in range(ORDER_WIDTH[shape.order]))


def place_columns(shape: Shape) -> tuple[str, ...]:
    """What says which of two changes of a key counts, compared number by number: the order, then the source position.

    The one definition for the fold and for whoever explains it.
    """
    return (*order_columns(shape), "_partition", "_offset")


def table_schema(shape: Shape) -> pa.Schema:
    """Schema of the log's table: key columns are not null."""
    return pa.schema([pa.field(c.name, _ARROW[c.type], nullable=c.name not in shape.key) for c in shape.columns])


def change_schema(shape: Shape) -> pa.Schema:
    """Schema of a change set of this log."""
    system = [pa.field("_op", pa.int8()), pa.field("_kg", pa.uint16())]
    system += [pa.field(name, pa.int64()) for name in order_columns(shape)]
    system += [
        pa.field("_partition", pa.int32()),
        pa.field("_offset", pa.int64()),
        pa.field("_ts", pa.int64()),
    ]
    return pa.schema(system + [pa.field(c.name, _ARROW[c.type]) for c in shape.columns])
