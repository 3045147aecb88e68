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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidefold.domain.log_state import TableSpec
from tidefold.domain.table.table_spec import ARRIVAL as ARRIVAL
from tidefold.domain.table.table_spec import VALID_FROM, Engine
from tidefold.domain.table.types import (
    MAX_PRECISION,
    ColumnOrigin,
    Schema,
    Type,
    column_origins,
    must_rewrite,
    parse_type,
    parse_value,
    steps,
)
from tidefold.errors import RefusedError

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
# A delete that is half of an update has the number of its row, less this: so it is before the insert.
BEFORE_INSERTS = 1 << 40
_SHOWN = 40
# Sidecar entries of whole rows belong to no column: a delete, the row's existence, a version that equals the one before
# it, and a key that is left out.
GONE, THERE, SAME, LEFT_OUT = "", "+", "=", "?"
# Bytes of changes that a sort copies at once. Of one key group it copies nothing.
SORTED_AT_ONCE = 64 << 20


def arrow_type(type_: str) -> pa.DataType:
    """Returns the Arrow type of a column's type."""
    return _arrow_type(parse_type(type_))


def _arrow_type(type_: Type) -> pa.DataType:
    if type_.element is not None:
        return pa.list_(_arrow_type(type_.element))
    return pa.decimal128(type_.precision, type_.scale) if type_.name == "decimal" else _ARROW[type_.name]


def find_column_type(type_: pa.DataType) -> str | None:
    """Returns the type of a column that holds all values of an Arrow type; None: there is none."""
    if pa.types.is_timestamp(type_):
        return "timestamp"
    if pa.types.is_decimal(type_) and type_.precision <= MAX_PRECISION:
        return f"decimal({type_.precision},{type_.scale})"
    if type_ in (pa.uint64(), pa.null()):
        return "long" if type_ == pa.uint64() else "string"
    wider = {pa.int8(): "int", pa.int16(): "int", pa.large_string(): "string", pa.large_binary(): "binary"}
    wider |= {pa.uint8(): "int", pa.uint16(): "int", pa.uint32(): "long"}
    names = {**{kind: name for name, kind in _ARROW.items()}, **wider}
    if pa.types.is_list(type_):
        return f"array<{names[type_.value_type]}>" if type_.value_type in names else None
    return names.get(type_)


def number_of(offset: int) -> int:
    """Returns the number of the row, or the offset, of a change."""
    return offset + BEFORE_INSERTS if offset < -1 else offset


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
    masks = [pc.is_valid(rows.column(name)) for name in rows.column_names if not name.startswith("_")]
    whole = pc.invert(reduce(pc.or_, masks))
    again = pc.sum(pc.and_(whole, pc.not_equal(rows.column("_kg"), 0))).as_py()
    return int(changes.num_rows) - int(again or 0)


def has_absent(changes: pa.Table) -> bool:
    """Whether some change lacks some column."""
    column = changes.column("_absent")
    return bool(column.null_count < len(column))


def sidecar_schema(shape: TableSpec) -> pa.Schema:
    """Returns the schema of the sidecar of a key or, for partial updates, of one of its columns.

    `_order`: the order of its delete (`_column` is empty) or of its value. A history also has `_at`, the instant.
    `_column` of a key that is left out begins with LEFT_OUT, and names the columns whose values were not sent.
    """
    fields = [pa.field(c.name, arrow_type(c.type)) for name in shape.key for c in shape.columns if c.name == name]
    fields += [pa.field("_column", pa.string()), pa.field("_order", pa.list_(pa.int64()))]
    if shape.merge.engine is Engine.HISTORY:
        fields.append(pa.field("_at", arrow_type(next(c.type for c in shape.table_columns if c.name == VALID_FROM))))
    return pa.schema(fields)


def align_column(table: pa.Table, name: str, former: ColumnOrigin) -> pa.ChunkedArray:
    """Returns the values of column `name`, from rows of an older schema. Raises RefusedError if one does not fit."""
    if former.name is not None and former.name in table.column_names:
        return convert_column(table.column(former.name), name, former.types)
    # A file that lacks a column was written before that was added.
    default = None if former.name is not None else former.default
    first = arrow_type(former.types[0])
    value = None if default is None else parse_value(former.types[0], default)
    filled = pa.chunked_array([pa.repeat(pa.scalar(value, first), table.num_rows)], first)
    return convert_column(filled, name, former.types)


# The conversion is strict: no value becomes null or another value.
def convert_column(values: pa.ChunkedArray, name: str, types: tuple[str, ...]) -> pa.ChunkedArray:
    """Returns values of the first of these types in the last of them. Raises RefusedError."""
    line = steps(types)
    for before, after in pairwise(line):
        values = _convert_step(values, name, before, after)
    return values


def _convert_step(values: pa.ChunkedArray, name: str, before: str, after: str) -> pa.ChunkedArray:
    try:
        converted = _text(values, before) if after == "string" else _cast(values, arrow_type(after))
        same = after == "string" or _equal(converted.cast(values.type, safe=False), values)
    except pa.ArrowInvalid:
        same = False
    if not same or converted.null_count != values.null_count:
        raise _unfit(values, name, before, after)
    return converted


def _cast(values: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_decimal(type_) and pa.types.is_integer(values.type):
        # Arrow requires room for every number of the type, not only for the existing ones.
        values = values.cast(pa.decimal128(19, 0))
    return values.cast(type_)


def _equal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    if one.type != other.type or not pa.types.is_floating(one.type):
        return bool(one.equals(other))
    same = pc.or_(pc.equal(one, other), pc.and_(pc.is_nan(one), pc.is_nan(other)))
    return bool(pc.all(same).as_py() is not False)


def _text(values: pa.ChunkedArray, type_: str) -> pa.ChunkedArray:
    """Formats each value as text: 5, 1.50, true, 2026-01-31, 2026-01-31T12:00:00.000000Z."""
    name = parse_type(type_).name
    if name == "decimal":
        # Arrow writes small ones with an exponent.
        return pa.chunked_array([[None if v is None else f"{v:f}" for v in values.to_pylist()]], pa.string())
    texts = values.cast(pa.string())
    return pc.replace_substring(texts, " ", "T", max_replacements=1) if name == "timestamp" else texts


def _unfit(values: pa.ChunkedArray, name: str, before: str, after: str) -> RefusedError:
    bad = next((v for v in values.drop_null() if not _fits(v, before, after)), None)
    shown = "" if bad is None else f", such as {str(bad.as_py())[:_SHOWN]}"
    return RefusedError(
        "VALUE_UNFIT",
        f"Column `{name}` has values of type {before} that do not fit {after}{shown}. Nothing was changed.",
        hint=f"Set the type of `{name}` back to {before} in the configuration; the next run continues.",
    )


def _fits(value: pa.Scalar, before: str, after: str) -> bool:
    one = pa.chunked_array([pa.array([value.as_py()], arrow_type(before))])
    try:
        return _equal(_cast(one, arrow_type(after)).cast(one.type, safe=False), one)
    except pa.ArrowInvalid:
        return False


@dataclass(frozen=True, slots=True)
class Aligner:
    """Converts data of any schema of a log to `shape`, which has `schema`.

    schemas: all schemas of the log; empty: its columns never changed.
    """

    shape: TableSpec
    schema: int
    schemas: tuple[Schema, ...] = ()

    def must_rewrite(self, schema: int) -> bool:
        """Whether files of that schema cannot stay as they are."""
        return must_rewrite(self.schemas, schema, self.schema)

    def changes(self, changes: pa.Table, schema: int) -> pa.Table:
        """Converts a change set of that schema to this schema. Raises RefusedError if a value does not fit."""
        wanted = change_schema(self.shape)
        origins = column_origins(self.schemas, schema, self.schema)
        if not origins and changes.schema.equals(wanted):
            return changes
        table = pa.table([_align_changes(changes, field, origins.get(field.name)) for field in wanted], schema=wanted)
        if not origins:
            return table
        at = wanted.get_field_index("_absent")
        return table.set_column(at, wanted.field(at), self._absent(table, origins))

    def names(self, schema: int) -> list[str]:
        """Returns the names of the table's columns in files of that schema, without those that they lack."""
        origins = column_origins(self.schemas, schema, self.schema)
        names = (origins[c.name].name if c.name in origins else c.name for c in self.shape.table_columns)
        return [name for name in names if name is not None]

    def rows(self, batches: Iterable[pa.RecordBatch], schema: int) -> Iterator[pa.RecordBatch]:
        """Converts rows of a file of that schema to this schema. Raises RefusedError if a value does not fit."""
        wanted, origins = table_schema(self.shape), column_origins(self.schemas, schema, self.schema)
        same = {c.name: ColumnOrigin(c.name, (c.type,)) for c in self.shape.table_columns}
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            if origins or rows.column_names != wanted.names:
                columns = [align_column(rows, name, origins.get(name) or same[name]) for name in wanted.names]
                rows = pa.table(columns, names=wanted.names)
            yield from rows.cast(wanted).to_batches()

    def align_sidecar(self, kept: pa.Table, schema: int) -> pa.Table:
        """Converts the sidecar of rows of that schema: keys, and the names of its columns."""
        wanted, origins = sidecar_schema(self.shape), column_origins(self.schemas, schema, self.schema)
        if not origins:
            return kept.cast(wanted)
        columns = [
            align_column(kept, f.name, origins[f.name]) if f.name in origins else kept.column(f.name) for f in wanted
        ]
        return _rename_columns(pa.table(columns, schema=wanted), origins)

    def _absent(self, changes: pa.Table, origins: Mapping[str, ColumnOrigin]) -> pa.ChunkedArray:
        """Marks columns that are newer than a change as absent from it, if absent differs from null."""
        names = {former.name: name for name, former in origins.items() if former.name is not None}
        silent: list[str] = []
        if self.shape.merge.engine in (Engine.PARTIAL, Engine.AGGREGATE):
            silent = [name for name, former in origins.items() if former.name is None]
        listed = changes.column("_absent").to_pylist()
        if not silent and not any(listed):
            return changes.column("_absent")
        told = [[*(names[n] for n in absent or () if n in names), *silent] or None for absent in listed]
        return pa.chunked_array([pa.array(told, pa.list_(pa.string()))])


def _align_changes(changes: pa.Table, field: pa.Field, former: ColumnOrigin | None) -> pa.ChunkedArray:
    if former is None:
        return changes.column(field.name).cast(field.type)
    values = align_column(changes, field.name, former)
    if former.name is None and former.default is not None:
        # A delete or a clear has no values except the key.
        return pc.if_else(pc.equal(changes.column("_op"), UPSERT), values, pa.scalar(None, field.type))
    return values


def _rename_columns(kept: pa.Table, origins: Mapping[str, ColumnOrigin]) -> pa.Table:
    """Renames the columns of a sidecar to their current names, and drops those of columns that no longer exist."""
    names = {former.name: name for name, former in origins.items() if former.name is not None}
    told = [names.get(n, n if n[:1] in (GONE, THERE, SAME, LEFT_OUT) else None) for n in kept["_column"].to_pylist()]
    at = kept.schema.get_field_index("_column")
    renamed = kept.set_column(at, kept.schema.field(at), pa.array(told, pa.string()))
    return renamed.filter(pc.is_valid(renamed.column("_column")))


def sort_by_key_group(table: pa.Table, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Returns the changes as batches of at most `batch_rows` rows, the lowest key group first, else in their order.

    It takes a range of key groups at a time, so memory follows SORTED_AT_ONCE, and not the table.
    """
    batches = [_Grouped(batch) for batch in table.to_batches() if batch.num_rows]
    for first, end in _cut_ranges(batches):
        parts = [part for one in batches if (part := one.select(first, end)).num_rows]
        if parts and end - first > 1:
            # `pa.concat_batches` is newer than pyarrow 18.
            [whole] = pa.Table.from_batches(parts).combine_chunks().to_batches()
            parts = [whole.take(pa.array(np.argsort(whole.column("_kg").to_numpy(), kind="stable")))]
        for part in parts:
            step = min(batch_rows, max(1, SORTED_AT_ONCE * part.num_rows // max(1, part.nbytes)))
            yield from (part.slice(start, step) for start in range(0, part.num_rows, step))


def _cut_ranges(batches: Sequence[_Grouped]) -> Iterator[tuple[int, int]]:
    """Yields ranges of key groups: as many as fit, by the average size of changes in each batch; at least one."""
    sizes = np.zeros(1 << 16)
    for one in batches:
        sizes += np.bincount(one.groups, minlength=len(sizes)) * (one.batch.nbytes / len(one.groups))
    begins, first = np.append(0, np.cumsum(sizes)), 0
    while begins[first] < begins[-1]:
        end = max(first + 1, int(np.searchsorted(begins, begins[first] + SORTED_AT_ONCE, "right")) - 1)
        yield first, end
        first = end


class _Grouped:
    """A batch of changes with their key groups."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch, self.groups = batch, batch.column("_kg").to_numpy()
        self._is_sorted = bool(np.all(self.groups[1:] >= self.groups[:-1]))
        self._low, self._high = self.groups.min(), self.groups.max()

    def select(self, first: int, end: int) -> pa.RecordBatch:
        """Returns the changes of a range of key groups: of a sorted batch a slice, which copies and reads no others."""
        if self._is_sorted or self._low >= end or self._high < first:
            start, stop = np.searchsorted(self.groups, [first, end]) if self._is_sorted else (0, 0)
            return self.batch.slice(start, stop - start)
        return self.batch.filter(pa.array((self.groups >= first) & (self.groups < end)))
