"""The columns of a change set and of a table, as Arrow types: the contract between sources, segments and the fold.

A change set has these columns before the user's columns:

`_op`: the operation (see below).
`_kg`: the key group.
`_o0`, ...: the order, compared number by number.
`_partition`, `_offset`: the source position.
`_ts`: the commit time at the source, in microseconds since 1970 UTC.
`_absent`: names of columns that the change lacks, which is not null; null: it has all columns.

A delete fills only the key.
"""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.domain.log_state import TableSpec
from tidefold.domain.table.table_spec import ARRIVAL as ARRIVAL
from tidefold.domain.table.table_spec import VALID_FROM, Engine
from tidefold.domain.table.types import Type, parse_type

# An upsert sets a row, a delete removes it. A clear removes every row whose key begins with its values. A clear without
# values removes all rows, and is in a change set once for each key group. A merge has values to add to those of the row
# (aggregates).
UPSERT, DELETE, CLEAR, MERGE = 0, 1, 2, 3
# Operations that depend on rows of other keys: the removal of a queue's head, and the sources and the target of merged
# namespaces. An ingest replaces them before it commits; no change set of a log has them.
POLL, MERGE_SOURCE, MERGE_TARGET = 4, 5, 6

_ARROW = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
}


def arrow_type(type_: str) -> pa.DataType:
    """Returns the Arrow type of a column's type."""
    return _arrow_type(parse_type(type_))


def _arrow_type(type_: Type) -> pa.DataType:
    if type_.element is not None:
        return pa.list_(_arrow_type(type_.element))
    return pa.decimal128(type_.precision, type_.scale) if type_.name == "decimal" else _ARROW[type_.name]


def order_columns(shape: TableSpec) -> tuple[str, ...]:
    """Returns the names of the order columns, most significant first."""
    return tuple(f"_o{i}" for i in range(shape.order_width))


def place_columns(shape: TableSpec) -> tuple[str, ...]:
    """Returns the columns that decide which of two changes of a key counts: the order, then the source position.

    The fold and `explain` both use this definition.
    """
    return (*order_columns(shape), "_partition", "_offset")


def table_schema(shape: TableSpec) -> pa.Schema:
    """Returns the schema of the log's table: key columns are not null."""
    key = shape.table_key
    return pa.schema([pa.field(c.name, arrow_type(c.type), nullable=c.name not in key) for c in shape.table_columns])


def change_schema(shape: TableSpec) -> pa.Schema:
    """Returns the schema of a change set of this log."""
    system = [pa.field("_op", pa.int8()), pa.field("_kg", pa.uint16())]
    system += [pa.field(name, pa.int64()) for name in order_columns(shape)]
    system += [
        pa.field("_partition", pa.int32()),
        pa.field("_offset", pa.int64()),
        pa.field("_ts", pa.int64()),
        pa.field("_absent", pa.list_(pa.string())),
    ]
    return pa.schema(system + [pa.field(c.name, arrow_type(c.type)) for c in shape.columns])


def count_changes(changes: pa.Table) -> int:
    """Counts changes. A clear of everything has one row for each key group, and only the first counts."""
    rows = changes.filter(pc.equal(changes.column("_op"), CLEAR))
    if not rows.num_rows:
        return int(changes.num_rows)
    given = [pc.is_valid(rows.column(name)) for name in rows.column_names if not name.startswith("_")]
    whole = pc.invert(reduce(pc.or_, given))
    again = pc.sum(pc.and_(whole, pc.not_equal(rows.column("_kg"), 0))).as_py()
    return int(changes.num_rows) - int(again or 0)


def has_absent(changes: pa.Table) -> bool:
    """Whether some change lacks some column."""
    column = changes.column("_absent")
    return bool(column.null_count < len(column))


def sidecar_schema(shape: TableSpec) -> pa.Schema:
    """Returns the schema of the sidecar of a key or, for partial updates, of one of its columns.

    `_order`: the order of its delete (`_column` is empty) or of its value. A history also has `_at`, the instant.
    """
    fields = [pa.field(c.name, arrow_type(c.type)) for name in shape.key for c in shape.columns if c.name == name]
    fields += [pa.field("_column", pa.string()), pa.field("_order", pa.list_(pa.int64()))]
    if shape.merge.engine is Engine.HISTORY:
        fields.append(pa.field("_at", arrow_type(next(c.type for c in shape.table_columns if c.name == VALID_FROM))))
    return pa.schema(fields)
