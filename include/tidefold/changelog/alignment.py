"""Rows, changes, and what is kept beside rows, as a newer schema of the log has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.columns import UPSERT, change_schema, hidden_schema, table_schema
from tidefold.changelog.conversion import brought
from tidefold.lifecycle.schemas import Former, Schema, formers, must_rewrite
from tidefold.lifecycle.shape import Engine, Shape

# What is kept of whole rows is about no column.
_MARKS = ("", "+")


@dataclass(frozen=True, slots=True)
class Aligner:
    """Brings what was made with any schema of a log to `shape`, which has `schema`. `schemas`: all of the log; none:
    its columns never changed.
    """

    shape: Shape
    schema: int
    schemas: tuple[Schema, ...] = ()

    def must_rewrite(self, schema: int) -> bool:
        """Whether files of that schema cannot stay as they are."""
        return must_rewrite(self.schemas, schema, self.schema)

    def changes(self, changes: pa.Table, schema: int) -> pa.Table:
        """A change set of that schema as one of this. Raises RefusedError when a value does not fit."""
        wanted = change_schema(self.shape)
        known = formers(self.schemas, schema, self.schema)
        if not known and changes.schema.equals(wanted):
            return changes
        table = pa.table([_changed(changes, field, known.get(field.name)) for field in wanted], schema=wanted)
        if not known:
            return table
        at = wanted.get_field_index("_absent")
        return table.set_column(at, wanted.field(at), self._absent(table, known))

    def names(self, schema: int) -> list[str]:
        """What the columns of the table are called in files of that schema, as far as they are there."""
        known = formers(self.schemas, schema, self.schema)
        found = (known[c.name].name if c.name in known else c.name for c in self.shape.table_columns)
        return [name for name in found if name is not None]

    def rows(self, batches: Iterable[pa.RecordBatch], schema: int) -> Iterator[pa.RecordBatch]:
        """Rows of a file of that schema as rows of this. Raises RefusedError when a value does not fit."""
        wanted, known = table_schema(self.shape), formers(self.schemas, schema, self.schema)
        same = {c.name: Former(c.name, (c.type,)) for c in self.shape.table_columns}
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            if known or rows.column_names != wanted.names:
                columns = [brought(rows, name, known.get(name) or same[name]) for name in wanted.names]
                rows = pa.table(columns, names=wanted.names)
            yield from rows.cast(wanted).to_batches()

    def hidden(self, kept: pa.Table, schema: int) -> pa.Table:
        """What was kept beside rows of that schema: keys, and by name the columns that it is about."""
        wanted, known = hidden_schema(self.shape), formers(self.schemas, schema, self.schema)
        if not known:
            return kept.cast(wanted)
        columns = [brought(kept, f.name, known[f.name]) if f.name in known else kept.column(f.name) for f in wanted]
        return _renamed(pa.table(columns, schema=wanted), known)

    def _absent(self, changes: pa.Table, known: Mapping[str, Former]) -> pa.ChunkedArray:
        """A change says nothing about columns that came after it, where that is not the same as null."""
        names = {former.name: name for name, former in known.items() if former.name is not None}
        silent: list[str] = []
        if self.shape.merge.engine in (Engine.PARTIAL, Engine.AGGREGATE):
            silent = [name for name, former in known.items() if former.name is None]
        given = changes.column("_absent").to_pylist()
        if not silent and not any(given):
            return changes.column("_absent")
        told = [[*(names[n] for n in absent or () if n in names), *silent] or None for absent in given]
        return pa.chunked_array([pa.array(told, pa.list_(pa.string()))])


def _changed(changes: pa.Table, field: pa.Field, former: Former | None) -> pa.ChunkedArray:
    if former is None:
        # Older programs wrote fewer system columns.
        there = field.name in changes.column_names or not field.name.startswith("_")
        return changes.column(field.name).cast(field.type) if there else pa.nulls(changes.num_rows, field.type)
    values = brought(changes, field.name, former)
    if former.name is None and former.default is not None:
        # What a delete or a clear says of other columns than the key is nothing.
        return pc.if_else(pc.equal(changes.column("_op"), UPSERT), values, pa.scalar(None, field.type))
    return values


def _renamed(kept: pa.Table, known: Mapping[str, Former]) -> pa.Table:
    """The same under the names of today; what was kept of a column that is gone goes too."""
    names = {former.name: name for name, former in known.items() if former.name is not None}
    told = [names.get(n, n if n in _MARKS else None) for n in kept.column("_column").to_pylist()]
    at = kept.schema.get_field_index("_column")
    renamed = kept.set_column(at, kept.schema.field(at), pa.array(told, pa.string()))
    return renamed.filter(pc.is_valid(renamed.column("_column")))
