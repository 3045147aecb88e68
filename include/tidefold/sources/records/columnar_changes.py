"""Makes changes from Arrow tables of rows: operation, order, offset, and refusals.

Rows without offsets get one from their content. So a row that comes twice counts once, and the result does not depend
on the files or on their order. Values are converted to the column's type exactly, or refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.duckdb_connection import connect
from tidefold.changelog.key_group_hash import quote_name
from tidefold.changelog.schema import DELETE, MERGE, UPSERT, arrow_type, change_schema, order_columns
from tidefold.domain.log_state import Column, TableSpec
from tidefold.domain.table.table_spec import COLUMNS, Deletes, Engine
from tidefold.domain.table.type_conversion import parse_value
from tidefold.domain.table.types import parse_type
from tidefold.sources.ingest.accounting import late_change
from tidefold.sources.records.errors import RefusedRecordError
from tidefold.sources.records.text_forms import find_format, in_normal_form

# Instead of words for deletes: every value is one.
ANY = "any"
# Converts a column to its type: returns the values (null if there is none) and the rows whose value does not fit.
Cast = Callable[[pa.Array, Column], tuple[pa.Array, Sequence[int]]]


class OpColumn(msgspec.Struct, frozen=True):
    """The column with the operation of a row.

    upsert, delete: its words for them. `any`: every value is a delete, and null an upsert.
    ignore: its words for rows that do not count.
    """

    column: str
    upsert: tuple[str, ...]
    delete: tuple[str, ...] | str
    ignore: tuple[str, ...] = ()


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The columns that describe a row, beside the user's columns.

    op: the operation; None: all rows are upserts.
    order: the order, if the source has one.
    time: the commit time in microseconds since 1970.
    """

    op: OpColumn | None = None
    offset: str | None = None
    order: tuple[str, ...] = ()
    time: str | None = None

    @property
    def beside(self) -> tuple[str, ...]:
        """Columns of the input that need not be columns of the table."""
        return tuple(filter(None, (self.op.column if self.op else None, self.offset, *self.order, self.time)))


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

    def __init__(self, shape: TableSpec, rules: Rules, cast: Cast, horizon: int | None = None) -> None:
        self._horizon = horizon
        # Opening one takes as long as a thousand rows.
        self._connection = connect()
        self._shape = shape
        self._rules = rules
        self._cast = cast
        self._order = shape.order_by if shape.order == COLUMNS else ()
        self._needed = {*shape.key, *self._order}

    def make(self, rows: pa.Table) -> ColumnarBatch:
        """Makes the changes. A column of the table that `rows` does not have is absent."""
        made = ColumnarBatch(rows)
        deletes = self._deletes(rows, made)
        absent = [c.name for c in self._shape.columns if c.name not in rows.column_names and not c.may_lack]
        columns = {c.name: self._column(rows, c, deletes, made) for c in self._shape.columns}
        offsets = self._read_offsets(rows, made)
        self._check_late(columns, made)
        keep = self._select_changes(rows.num_rows, deletes, made)
        given = {"_offset": offsets} if offsets is not None else {}
        given |= {"_ts": _combine(rows, self._rules.time)} if self._rules.time else {}
        given |= {f"_o{i}": _combine(rows, name) for i, name in enumerate(self._rules.order)}
        upsert = MERGE if self._shape.merge.engine is Engine.AGGREGATE else UPSERT
        ops = pc.if_else(deletes, pa.scalar(DELETE, pa.int8()), pa.scalar(upsert, pa.int8()))
        table = pa.table({"_op": ops, **columns, **given}).filter(keep)
        made.table = self._arrange(table, absent)
        return made

    def _deletes(self, rows: pa.Table, made: ColumnarBatch) -> pa.Array:
        op = self._rules.op
        if op is None:
            return pa.array([False] * rows.num_rows)
        if op.delete == ANY:
            return pc.is_valid(_combine(rows, op.column))
        said = pc.cast(_combine(rows, op.column), pa.string())
        made.without = _where(pc.is_in(said, pa.array(op.ignore, pa.string())))
        for row in _where(pc.invert(pc.is_in(said, pa.array([*op.upsert, *op.delete, *op.ignore], pa.string())))):
            value = said[row].as_py()
            known = ", ".join((*op.upsert, *op.delete))
            text = "null" if value is None else repr(value[:40])
            made.refused[row] = RefusedRecordError("OP_UNKNOWN", f"`{op.column}` is {text}, not one of {known}.")
        return pc.is_in(said, pa.array(op.delete, pa.string()))

    def _column(self, rows: pa.Table, column: Column, deletes: pa.Array, made: ColumnarBatch) -> pa.Array:
        """Values of the column's type. For deletes only key and order columns are read."""
        type_ = change_schema(self._shape).field(column.name).type
        if column.name not in rows.column_names:
            # Such rows are older than the column.
            value = None if column.default is None else parse_value(column.type, column.default)
            return pc.if_else(deletes, pa.scalar(None, type_), pa.scalar(value, type_))
        given = _combine(rows, column.name)
        if column.name not in self._needed:
            given = pc.if_else(deletes, pa.scalar(None, given.type), given)
        values, unfit = self._cast(given, column)
        for row in unfit:
            refusal = RefusedRecordError("VALUE_INVALID", _invalid(given[row].as_py(), column))
            made.refused.setdefault(row, refusal)
        for names, reason in ((self._shape.key, "KEY_NULL"), (self._order, "ORDER_MISSING")):
            if column.name in names:
                for row in _where(pc.is_null(values)):
                    made.refused.setdefault(row, RefusedRecordError(reason, f"`{column.name}` is null."))
        return values

    def _read_offsets(self, rows: pa.Table, made: ColumnarBatch) -> pa.Array | None:
        name = self._rules.offset
        if name is None:
            return None
        values, _ = self._cast(_combine(rows, name), Column(name, "long"))
        for row in _where(pc.invert(pc.fill_null(pc.greater_equal(values, 0), fill_value=False))):
            made.refused.setdefault(
                row, RefusedRecordError("OFFSET_MISSING", f"`{name}` is not a whole number of 0 or more.")
            )
        return values

    def _check_late(self, columns: dict[str, pa.Array], made: ColumnarBatch) -> None:
        if self._horizon is None or not self._order:
            return
        first = _whole_numbers(columns[self._order[0]])
        for row in _where(pc.less(first, self._horizon)):
            refused = late_change(first[row].as_py(), self._horizon)
            if refused:
                made.refused.setdefault(row, refused)

    def _select_changes(self, count: int, deletes: pa.Array, made: ColumnarBatch) -> pa.Array:
        """The rows that are changes: not refused ones, and not deletes if the log does not apply them."""
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
            return pa.repeat(pa.scalar(value=True), count)
        return pa.array([row not in left_out for row in range(count)], pa.bool_())

    def _arrange(self, table: pa.Table, absent: list[str]) -> pa.Table:
        """The table with the change set's own columns first; key groups are filled later."""
        count, schema = table.num_rows, change_schema(self._shape)
        upserts = pc.not_equal(table.column("_op"), pa.scalar(DELETE, pa.int8()))
        names = pa.scalar(absent or None, pa.list_(pa.string()))
        columns = {name: table.column(name) for name in table.column_names}
        columns |= {
            "_kg": pa.nulls(count, pa.uint16()),
            "_partition": pa.repeat(pa.scalar(0, pa.int32()), count),
            "_absent": pc.if_else(upserts, names, pa.scalar(None, names.type)),
        }
        columns.setdefault("_ts", pa.nulls(count, pa.int64()))
        if "_offset" not in columns:
            content = table.select(["_op", *(column.name for column in self._shape.columns)])
            columns["_offset"] = content_places(content, absent, self._connection)
        for name, by in zip(order_columns(self._shape), self._order, strict=False):
            columns[name] = _whole_numbers(table.column(by))
        return pa.table([columns[name] for name in schema.names], schema=schema)


def content_places(table: pa.Table, absent: Sequence[str], connection: duckdb.DuckDBPyConnection) -> pa.ChunkedArray:
    """For each row a number from 0 to 2**63 - 1 that depends only on its content.

    Deletes have the higher numbers. So a delete that brings the row as it was, with the order of its last upsert, is
    the later one of the two.
    """
    texts = [_content_sql(f, f.name in absent) for f in table.schema]
    connection.register("rows", table)
    half = f"CASE WHEN _op = {DELETE} THEN {1 << 62} ELSE 0 END"
    sql = f"(md5_number({' || '.join(texts)}) >> 66::UHUGEINT)::BIGINT + {half}"
    found = connection.sql(f"SELECT {sql} AS n FROM rows").to_arrow_table().column("n")
    connection.unregister("rows")
    return found


def _content_sql(column: pa.Field, is_absent: bool) -> str:
    """An SQL expression with a different text for each value; null and absent differ too."""
    if is_absent:
        return "'a'"
    name = quote_name(column.name)
    if pa.types.is_binary(column.type):
        text = f"hex({name})"
    elif pa.types.is_list(column.type):
        text = f"to_json({name})::VARCHAR"
    else:
        text = f"{name}::VARCHAR"
    return f"CASE WHEN {name} IS NULL THEN 'n' ELSE length({text}) || ':' || {text} END"


_RIGHT = {
    "boolean": "true or false",
    "int": "a whole number such as 1284, from -2147483648 to 2147483647",
    "long": "a whole number such as 1284",
    "float": "a number such as 1284.6",
    "double": "a number such as 1284.6",
    "decimal": "a number such as 1284.60, with no more digits than the type has",
    "date": "a date such as 2026-01-31",
    "timestamp": "an instant such as 2026-01-31T12:00:00Z",
}


def _invalid(value: Any, column: Column) -> str:
    """Describes what is wrong with a value, with an example of a valid one."""
    text = value.decode("utf-8", errors="backslashreplace") if isinstance(value, bytes) else str(value)
    shown = f"`{column.name}` is '{text[:80]}'"
    if isinstance(value, bytes) and column.type != "binary" and not _is_utf8(value):
        return f"{shown}, which is not UTF-8 text: set `encoding` under `source`, such as `encoding: cp1252`."
    right = _RIGHT.get(parse_type(column.type).name)
    said = f"{shown}, not a valid {column.type}.{f' Expected: {right}.' if right else ''}"
    fitting = find_format(text, column.type) if isinstance(value, bytes) else ""
    return f"{said} To read it, set `timestamp_formats: [{json.dumps(fitting)}]` under `source`." if fitting else said


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


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


def in_range(values: pa.Array, column: Column) -> pa.Array:
    """Whether values are in the range of every reader: dates and timestamps of the years 1 to 9999."""
    spans = {"date": (pa.int32(), -719_162, 2_932_896)}
    spans["timestamp"] = (pa.int64(), -62_135_596_800_000_000, 253_402_300_799_999_999)
    found = spans.get(parse_type(column.type).name)
    if found is None:
        return pa.array([True] * len(values))
    type_, low, high = found
    numbers = values.cast(type_)
    return pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))


# The texts that are accepted. Arrow alone would also read hexadecimal numbers, `1` as true, and more.
_TEXTS = {
    "boolean": r"^(true|false)$",
    "int": r"^-?[0-9]+$",
    "long": r"^-?[0-9]+$",
    "float": r"^(-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|NaN|-?Infinity)$",
    "double": r"^(-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|NaN|-?Infinity)$",
    "decimal": r"^-?[0-9]+(\.[0-9]+)?$",
    "date": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    "timestamp": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+(Z|[+-][0-9]{2}(:?[0-9]{2})?)$",
    "string": r"",
}
_INFINITE = r"^-?Infinity$"
# Types that convert without changing any value. A value that does not fit, as one of 2**63, is refused.
_WIDER: dict[str, tuple[pa.DataType, ...]] = {
    "int": (pa.int8(), pa.int16(), pa.uint8(), pa.uint16()),
    "long": (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    "double": (pa.float32(),),
    "string": (pa.large_string(),),
    "binary": (pa.large_binary(),),
}


_TIMES = ("date", "timestamp")


def of_text(values: pa.Array, column: Column, formats: Sequence[str] = ()) -> tuple[pa.Array, Sequence[int]]:
    """Converts texts (as bytes) to the column's type; also returns the rows whose text is not valid."""
    texts, unfit = _cast(values, pa.string())
    type_ = parse_type(column.type)
    texts = in_normal_form(texts, type_.name, formats)
    matches = pc.match_substring_regex(texts, _TEXTS[type_.name]) if _TEXTS[type_.name] else pc.is_valid(texts)
    misfits = {*unfit, *_not(matches, texts)}
    found, unread = _cast(_without(texts, misfits), arrow_type(column.type))
    misfits |= {*unread, *_not(in_range(found, column), found)}
    if type_.name in ("float", "double"):
        # A number that is too large for its type became infinite.
        beyond = pc.and_(pc.is_inf(found), pc.invert(pc.match_substring_regex(texts, _INFINITE)))
        misfits |= set(_not(pc.invert(beyond), found))
    return _without(found, misfits), sorted(misfits)


def of_values(values: pa.Array, column: Column) -> tuple[pa.Array, Sequence[int]]:
    """Converts values of a type that `fits` to the column's type; also returns the rows whose value would change."""
    if _is_text(values.type) and parse_type(column.type).name in _TIMES:
        return of_text(values.cast(pa.binary()), column)
    found, unfit = _cast(values, arrow_type(column.type))
    misfits = {*unfit, *_not(in_range(found, column), found)}
    return _without(found, misfits), sorted(misfits)


def fits(given: pa.DataType, column: Column) -> bool:
    """Whether values of a type can be values of the column: the same type or a narrower one; times in any unit, or as
    text.
    """
    if pa.types.is_dictionary(given):
        given = given.value_type
    type_ = parse_type(column.type)
    if type_.element is not None:
        is_list = pa.types.is_list(given) or pa.types.is_large_list(given)
        element = column.type.removeprefix("array<").removesuffix(">")
        return bool(is_list) and fits(given.value_type, Column(column.name, element))
    if type_.name in _TIMES and _is_text(given):
        return True
    if type_.name == "timestamp":
        return bool(pa.types.is_timestamp(given))  # One without a zone is UTC.
    if type_.name == "decimal":
        if not pa.types.is_decimal(given) or given.scale > type_.scale:
            return False
        return bool(given.precision - given.scale <= type_.precision - type_.scale)
    return bool(given == arrow_type(column.type)) or given in _WIDER.get(type_.name, ())


def _is_text(type_: pa.DataType) -> bool:
    return type_ in (pa.string(), pa.large_string())


def _cast(values: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Sequence[int]]:
    """Casts all values at once; if that fails, one by one, to find the misfits."""
    try:
        return values.cast(type_), ()
    except pa.ArrowInvalid:
        pass
    unfit, found = [], []
    for row in range(len(values)):
        try:
            found.append(values[row : row + 1].cast(type_))
        except pa.ArrowInvalid:
            unfit.append(row)
            found.append(pa.nulls(1, type_))
    return pa.concat_arrays(found), unfit


def _not(mask: pa.Array, values: pa.Array) -> Sequence[int]:
    """The rows with a value for which the mask is not true."""
    lacking = pc.and_(pc.is_valid(values), pc.invert(pc.fill_null(mask, fill_value=False)))
    rows: list[int] = pc.indices_nonzero(lacking).to_pylist()
    return rows


def _without(values: pa.Array, rows: set[int]) -> pa.Array:
    if not rows:
        return values
    keep = pa.array([row not in rows for row in range(len(values))], pa.bool_())
    return pc.if_else(keep, values, pa.scalar(None, values.type))
