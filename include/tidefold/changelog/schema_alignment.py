"""Converts rows, changes and sidecars of an older schema to a newer schema of the log.

The conversion is strict: no value becomes null or another value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.schema import UPSERT, arrow_type, change_schema, sidecar_schema, table_schema
from tidefold.domain.table.schema import ColumnOrigin, Schema, column_origins, must_rewrite
from tidefold.domain.table.table_spec import Engine, TableSpec
from tidefold.domain.table.type_conversion import parse_value, steps
from tidefold.domain.table.types import parse_type
from tidefold.errors import RefusedError

_SHOWN = 40


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


def convert_column(values: pa.ChunkedArray, name: str, types: tuple[str, ...]) -> pa.ChunkedArray:
    """Returns values of the first of these types in the last of them. Raises RefusedError."""
    line = steps(types)
    for before, after in pairwise(line):
        values = _convert_step(values, name, before, after)
    return values


def _convert_step(values: pa.ChunkedArray, name: str, before: str, after: str) -> pa.ChunkedArray:
    try:
        found = _text(values, before) if after == "string" else _cast(values, arrow_type(after))
        same = after == "string" or _equal(found.cast(values.type, safe=False), values)
    except pa.ArrowInvalid:
        same = False
    if not same or found.null_count != values.null_count:
        raise _unfit(values, name, before, after)
    return found


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
    found = values.cast(pa.string())
    return pc.replace_substring(found, " ", "T", max_replacements=1) if name == "timestamp" else found


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


# Sidecar entries of whole rows: they belong to no column.
_MARKS = ("", "+")


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
        known = column_origins(self.schemas, schema, self.schema)
        if not known and changes.schema.equals(wanted):
            return changes
        table = pa.table([_align_changes(changes, field, known.get(field.name)) for field in wanted], schema=wanted)
        if not known:
            return table
        at = wanted.get_field_index("_absent")
        return table.set_column(at, wanted.field(at), self._absent(table, known))

    def names(self, schema: int) -> list[str]:
        """Returns the names of the table's columns in files of that schema, without those that they lack."""
        known = column_origins(self.schemas, schema, self.schema)
        found = (known[c.name].name if c.name in known else c.name for c in self.shape.table_columns)
        return [name for name in found if name is not None]

    def rows(self, batches: Iterable[pa.RecordBatch], schema: int) -> Iterator[pa.RecordBatch]:
        """Converts rows of a file of that schema to this schema. Raises RefusedError if a value does not fit."""
        wanted, known = table_schema(self.shape), column_origins(self.schemas, schema, self.schema)
        same = {c.name: ColumnOrigin(c.name, (c.type,)) for c in self.shape.table_columns}
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            if known or rows.column_names != wanted.names:
                columns = [align_column(rows, name, known.get(name) or same[name]) for name in wanted.names]
                rows = pa.table(columns, names=wanted.names)
            yield from rows.cast(wanted).to_batches()

    def align_sidecar(self, kept: pa.Table, schema: int) -> pa.Table:
        """Converts the sidecar of rows of that schema: keys, and the names of its columns."""
        wanted, known = sidecar_schema(self.shape), column_origins(self.schemas, schema, self.schema)
        if not known:
            return kept.cast(wanted)
        columns = [
            align_column(kept, f.name, known[f.name]) if f.name in known else kept.column(f.name) for f in wanted
        ]
        return _rename_columns(pa.table(columns, schema=wanted), known)

    def _absent(self, changes: pa.Table, known: Mapping[str, ColumnOrigin]) -> pa.ChunkedArray:
        """Marks columns that are newer than a change as absent from it, if absent differs from null."""
        names = {former.name: name for name, former in known.items() if former.name is not None}
        silent: list[str] = []
        if self.shape.merge.engine in (Engine.PARTIAL, Engine.AGGREGATE):
            silent = [name for name, former in known.items() if former.name is None]
        given = changes.column("_absent").to_pylist()
        if not silent and not any(given):
            return changes.column("_absent")
        told = [[*(names[n] for n in absent or () if n in names), *silent] or None for absent in given]
        return pa.chunked_array([pa.array(told, pa.list_(pa.string()))])


def _align_changes(changes: pa.Table, field: pa.Field, former: ColumnOrigin | None) -> pa.ChunkedArray:
    if former is None:
        # Older programs wrote fewer system columns.
        there = field.name in changes.column_names or not field.name.startswith("_")
        return changes.column(field.name).cast(field.type) if there else pa.nulls(changes.num_rows, field.type)
    values = align_column(changes, field.name, former)
    if former.name is None and former.default is not None:
        # A delete or a clear has no values except the key.
        return pc.if_else(pc.equal(changes.column("_op"), UPSERT), values, pa.scalar(None, field.type))
    return values


def _rename_columns(kept: pa.Table, known: Mapping[str, ColumnOrigin]) -> pa.Table:
    """Renames the columns of a sidecar to their current names, and drops those of columns that no longer exist."""
    names = {former.name: name for name, former in known.items() if former.name is not None}
    told = [names.get(n, n if n in _MARKS else None) for n in kept.column("_column").to_pylist()]
    at = kept.schema.get_field_index("_column")
    renamed = kept.set_column(at, kept.schema.field(at), pa.array(told, pa.string()))
    return renamed.filter(pc.is_valid(renamed.column("_column")))
