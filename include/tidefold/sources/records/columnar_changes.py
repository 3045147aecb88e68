"""Makes changes from Arrow tables of rows: operation, order, offset, and refusals.

The offset of a row without one is its number in the file. Values are converted to the column's type exactly, or
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.schema import BEFORE_INSERTS, DELETE, MERGE, UPSERT, change_schema, order_columns
from tidefold.domain.log_state import Column, TableSpec
from tidefold.domain.table.table_spec import Deletes, Engine
from tidefold.domain.table.types import parse_value
from tidefold.sources.feed import PLACEHOLDER
from tidefold.sources.records.accounting import late_change
from tidefold.sources.records.columnar_values import explain_misfit, find_day_order
from tidefold.sources.records.errors import RefusedRecordError
from tidefold.sources.records.record_types import own_names
from tidefold.sources.records.text_forms import PLAIN, Spelling
from tidefold.sources.records.unavailable_values import placeholder_of

# Instead of words for deletes: every value is one.
ANY = "any"
# What rows are whose operation is missing, if they are not refused.
UPSERTS = "upsert"
# Converts a column to its type: returns the values (null if there is none) and the rows whose value does not fit.
Cast = Callable[[pa.Array, Column], tuple[pa.Array, Sequence[int]]]


class OpColumn(msgspec.Struct, frozen=True):
    """The column with the operation of a row.

    upsert, delete: its words for them. `any`: every value that no other list has; with deletes, null is an upsert.
    ignore: its words for rows that do not count.
    missing: `upsert`: so are rows without the column, or with null in it. `refuse`: they are refused.
    pairs: an update is a delete and an upsert of one order, in any rows of a file.
    """

    column: str
    upsert: tuple[str, ...] | str
    delete: tuple[str, ...] | str
    ignore: tuple[str, ...] = ()
    missing: str = "refuse"
    pairs: bool = False


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The columns that describe a row, beside the user's columns.

    op: the operation; None: all rows are upserts.
    order: the order, if the source has one.
    time: the commit time in microseconds since 1970.
    placeholder: what the source writes for a value that it did not send.
    time_zone: of times without one.
    folder_columns: columns whose values are in the names of folders, as in `dt=2026-01-31`.
    """

    op: OpColumn | None = None
    time_zone: str | None = None
    folder_columns: tuple[str, ...] = ()
    offset: str | None = None
    order: tuple[str, ...] = ()
    time: str | None = None
    placeholder: str = PLACEHOLDER

    @property
    def beside(self) -> tuple[str, ...]:
        """Columns of the input that need not be columns of the table."""
        return tuple(filter(None, (self.op.column if self.op else None, self.offset, *self.order, self.time)))

    def beside_in(self, names: Sequence[str]) -> tuple[str, ...]:
        """Returns those that a file with these columns must have."""
        free = self.op.column if self.op and self.op.missing == UPSERTS else None
        return tuple(name for name in self.beside if name != free or name in names)


@dataclass(slots=True)
class ColumnarBatch:
    """The changes of a table of rows.

    table: a row for each change.
    refused: by number of the row, 0 first.
    ignored: how many rows do not count.
    without: those whose operation says so, by number.
    """

    table: pa.Table
    refused: dict[int, RefusedRecordError] = field(default_factory=dict)
    ignored: int = 0
    without: list[int] = field(default_factory=list)


class Changes:
    """Makes changes of the rows of one log."""

    def __init__(
        self, shape: TableSpec, rules: Rules, cast: Cast, horizon: int | None = None, time: int | None = None
    ) -> None:
        """`time`: the time in the name of the file."""
        self._horizon = horizon
        self._time = time
        self._shape = shape
        self._rules = rules
        self._cast = cast
        self._spelling: Spelling = getattr(rules, "spelling", PLAIN)
        self._order = shape.column_order
        self._needed = {*shape.key, *self._order}
        # What orders rows, and the name of a folder, is a number even with leading zeros.
        self._padded = {*self._order, *own_names(shape, rules.folder_columns)}

    def make(self, rows: pa.Table, numbers: Sequence[int]) -> ColumnarBatch:
        """Makes the changes. A column of the table that `rows` does not have is absent.

        numbers: of the rows in their file.
        """
        made = ColumnarBatch(rows)
        deletes = self._deletes(rows, made)
        keeps = self._shape.merge.engine is Engine.PARTIAL
        missing = [c for c in self._shape.columns if c.name not in rows.column_names]
        absent = [c.name for c in missing if keeps or not c.may_lack]
        columns = {c.name: self._column(rows, c, deletes, made) for c in self._shape.columns}
        name = self._rules.offset
        offsets = pa.array(numbers, pa.int64()) if name is None else _combine(rows, name)
        if self._rules.op and self._rules.op.pairs and name is None:
            offsets = pc.if_else(deletes, pc.subtract(offsets, BEFORE_INSERTS), offsets)
        self._check_late(columns, made)
        keep = self._select_changes(rows.num_rows, deletes, made)
        parts = {"_offset": offsets}
        parts |= {"_ts": _combine(rows, self._rules.time)} if self._rules.time else {}
        parts |= {f"_o{i}": _combine(rows, name) for i, name in enumerate(self._rules.order)}
        upsert = MERGE if self._shape.merge.engine is Engine.AGGREGATE else UPSERT
        ops = pc.if_else(deletes, pa.scalar(DELETE, pa.int8()), pa.scalar(upsert, pa.int8()))
        table = pa.table({"_op": ops, **columns, **parts})
        made.table = self._arrange(table if keep is None else table.filter(keep), absent)
        return made

    def _deletes(self, rows: pa.Table, made: ColumnarBatch) -> pa.Array:
        op = self._rules.op
        if op is None or op.column not in rows.column_names:
            return pa.repeat(pa.scalar(value=False), rows.num_rows)
        if op.delete == ANY:
            return pc.is_valid(_combine(rows, op.column))
        texts = pc.cast(_combine(rows, op.column), pa.string())
        made.without = _where(pc.is_in(texts, pa.array(op.ignore, pa.string())))
        listed = [*op.upsert, *op.delete, *op.ignore, *([None] if op.missing == UPSERTS else [])]
        for row in [] if op.upsert == ANY else _where(pc.invert(pc.is_in(texts, pa.array(listed, pa.string())))):
            value = texts[row].as_py()
            expected = ", ".join((*op.upsert, *op.delete))
            text = "null" if value is None else repr(value[:40])
            made.refused[row] = RefusedRecordError("OP_UNKNOWN", f"`{op.column}` is {text}, not one of {expected}.")
        return pc.is_in(texts, pa.array(op.delete, pa.string()))

    def _column(self, rows: pa.Table, column: Column, deletes: pa.Array, made: ColumnarBatch) -> pa.Array:
        """Values of the column's type. For deletes only key and order columns are read."""
        type_ = change_schema(self._shape).field(column.name).type
        if column.name not in rows.column_names:
            # Such rows are older than the column.
            value = None if column.default is None else parse_value(column.type, column.default)
            return pc.if_else(deletes, pa.scalar(None, type_), pa.scalar(value, type_))
        combined = _combine(rows, column.name)
        if column.name not in self._needed and deletes.true_count:
            combined = pc.if_else(deletes, pa.scalar(None, combined.type), combined)
        for row in placeholder_of(self._rules.placeholder).find_rows(combined):
            made.refused[row] = RefusedRecordError("UNAVAILABLE_VALUE", f"The source did not send `{column.name}`.")
        values, unfit = self._cast(combined, column)
        first = find_day_order(combined, column, self._spelling) if unfit else ""
        for row in unfit:
            why = explain_misfit(combined[row].as_py(), column, self._spelling, first)
            made.refused.setdefault(row, RefusedRecordError("VALUE_INVALID", why))
        if column.type in ("int", "long") and combined.type == pa.binary() and column.name not in self._padded:
            for row in _where(pc.match_substring_regex(combined, "^-?0[0-9]+-?$")):
                text = f"`{column.name}` is '{combined[row].as_py()[:80].decode()}'. A {column.type} has no leading "
                text += "zeros: make the column a `string`, or a `decimal(19,0)` to drop them."
                made.refused.setdefault(row, RefusedRecordError("VALUE_INVALID", text))
        for names, reason in ((self._shape.key, "KEY_NULL"), (self._order, "ORDER_MISSING")):
            if column.name in names:
                for row in _where(pc.is_null(values)):
                    made.refused.setdefault(row, RefusedRecordError(reason, f"`{column.name}` is null."))
        return values

    def _check_late(self, columns: dict[str, pa.Array], made: ColumnarBatch) -> None:
        if self._horizon is None or not self._order:
            return
        first = _whole_numbers(columns[self._order[0]])
        for row in _where(pc.less(first, self._horizon)):
            refused = late_change(first[row].as_py(), self._horizon)
            if refused:
                made.refused.setdefault(row, refused)

    def _select_changes(self, count: int, deletes: pa.Array, made: ColumnarBatch) -> pa.Array | None:
        """The rows that are changes: not refused ones, and not deletes if the log does not apply them. None: all."""
        merge = self._shape.merge
        for row in made.without:
            made.refused.pop(row, None)  # Nothing of such a row is looked at.
        left_out = {*made.refused, *made.without}
        if merge.engine is Engine.APPEND or merge.deletes is not Deletes.APPLY:
            for row in _where(deletes):
                left_out.add(row)
                if merge.engine is Engine.APPEND:
                    refusal = RefusedRecordError("KEYLESS_CHANGE", "A log without a key accepts only inserts.")
                    made.refused.setdefault(row, refusal)
                elif merge.deletes is Deletes.QUARANTINE:
                    made.refused.setdefault(row, RefusedRecordError("DELETE_REFUSED", "This log accepts no deletes."))
        made.ignored = len(left_out) - len(made.refused)
        if not left_out:
            return None
        return pa.array([row not in left_out for row in range(count)], pa.bool_())

    def _arrange(self, table: pa.Table, absent: list[str]) -> pa.Table:
        """The table with the change set's own columns first; key groups are filled later."""
        count, schema = table.num_rows, change_schema(self._shape)
        names = pa.nulls(count, pa.list_(pa.string()))
        if absent:  # A list is written row by row.
            upserts = pc.not_equal(table.column("_op"), pa.scalar(DELETE, pa.int8()))
            names = pc.if_else(upserts, pa.scalar(absent, names.type), pa.scalar(None, names.type))
        columns = {name: table.column(name) for name in table.column_names}
        columns |= {
            "_kg": pa.nulls(count, pa.uint16()),
            "_partition": pa.repeat(pa.scalar(0, pa.int32()), count),
            "_absent": names,
        }
        columns.setdefault("_ts", pa.nulls(count, pa.int64()))
        orders = order_columns(self._shape)
        for name, by in zip(orders, self._order, strict=False):
            columns[name] = _whole_numbers(table.column(by))
        if self._shape.orders_by_file:
            # Without a time in names, the ledger gives the file its order.
            columns[orders[-1]] = pa.repeat(pa.scalar(self._time or 0, pa.int64()), count)
            columns["_ts"] = pa.repeat(pa.scalar(self._time, pa.int64()), count)
        return pa.table([columns[name] for name in schema.names], schema=schema)


def _whole_numbers(values: Any) -> Any:
    """Order values as numbers: dates as days, timestamps as microseconds since 1970."""
    if pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    return values.cast(pa.int64())


def _combine(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name).combine_chunks()
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _where(mask: pa.Array) -> list[int]:
    """The numbers of the rows for which the mask is true."""
    rows: list[int] = pc.indices_nonzero(pc.fill_null(mask, fill_value=False)).to_pylist()
    return rows
