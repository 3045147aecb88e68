"""Makes changes from Arrow tables of rows: operation, order, offset, and refusals.

The offset of a row without one is its number in the file. Values are converted to the column's type exactly, or
refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.schema import BEFORE_INSERTS, DELETE, MERGE, UPSERT, arrow_type, change_schema, order_columns
from tidefold.domain.log_state import Column, TableSpec
from tidefold.domain.table.table_spec import Deletes, Engine
from tidefold.domain.table.types import UNITS, parse_type, parse_value
from tidefold.sources.feed import PLACEHOLDER
from tidefold.sources.records.accounting import late_change
from tidefold.sources.records.errors import RefusedRecordError
from tidefold.sources.records.record_types import own_names
from tidefold.sources.records.text_forms import (
    NUMBER_MARKS,
    PLAIN,
    Spelling,
    find_format,
    find_unit,
    in_normal_form,
)
from tidefold.sources.records.unavailable_values import placeholder_of

# Instead of words for deletes: every value is one.
ANY = "any"
# What rows are whose operation is missing, if they are not refused.
UPSERTS = "upsert"
# Converts a column to its type: returns the values (null if there is none) and the rows whose value does not fit.
Cast = Callable[[pa.Array, Column], tuple[pa.Array, Sequence[int]]]
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
# Digits that are no zero, before an exponent.
_NOT_ZERO = r"^-?[0-9.]*[1-9]"
# Types that convert without changing any value. A value that does not fit, as one of 2**63, is refused.
_WIDER: dict[str, tuple[pa.DataType, ...]] = {
    "int": (pa.int8(), pa.int16(), pa.uint8(), pa.uint16()),
    "long": (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    "double": (pa.float32(),),
    "string": (pa.large_string(),),
    "binary": (pa.large_binary(),),
}
_TIMES = ("date", "timestamp")


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
        table = pa.table({"_op": ops, **columns, **parts}).filter(keep)
        made.table = self._arrange(table, absent)
        return made

    def _deletes(self, rows: pa.Table, made: ColumnarBatch) -> pa.Array:
        op = self._rules.op
        if op is None or op.column not in rows.column_names:
            return pa.array([False] * rows.num_rows)
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
        if column.name not in self._needed:
            combined = pc.if_else(deletes, pa.scalar(None, combined.type), combined)
        for row in placeholder_of(self._rules.placeholder).find_rows(combined):
            made.refused[row] = RefusedRecordError("UNAVAILABLE_VALUE", f"The source did not send `{column.name}`.")
        values, unfit = self._cast(combined, column)
        for row in unfit:
            refusal = RefusedRecordError("VALUE_INVALID", _invalid(combined[row].as_py(), column, self._spelling))
            made.refused.setdefault(row, refusal)
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
        orders = order_columns(self._shape)
        for name, by in zip(orders, self._order, strict=False):
            columns[name] = _whole_numbers(table.column(by))
        if self._shape.orders_by_file:
            # Without a time in names, the ledger gives the file its order.
            columns[orders[-1]] = pa.repeat(pa.scalar(self._time or 0, pa.int64()), count)
            columns["_ts"] = pa.repeat(pa.scalar(self._time, pa.int64()), count)
        return pa.table([columns[name] for name in schema.names], schema=schema)


def _invalid(value: Any, column: Column, spelling: Spelling) -> str:
    """Describes what is wrong with a value, with an example of a valid one."""
    text = value.decode("utf-8", errors="backslashreplace") if isinstance(value, bytes) else str(value)
    shown = f"`{column.name}` is '{text[:80]}'"
    if isinstance(value, bytes) and column.type != "binary" and not _is_utf8(value):
        return f"{shown}, which is not UTF-8 text: set `encoding` under `source`, such as `encoding: cp1252`."
    name = parse_type(column.type).name
    right = _RIGHT.get(name)
    if right and name in ("float", "double", "decimal"):
        right = right.replace(".", spelling.decimal).replace("1284", f"1{spelling.thousands}284")
    what = f"{shown}, not a valid {column.type}.{f' Expected: {right}.' if right else ''}"
    if not isinstance(value, bytes):
        return what
    if column.encoding:
        return f"{shown}, not a whole number of {column.encoding} since 1970."
    if name == "timestamp" and re.fullmatch("[0-9]{1,18}", text) and (unit := find_unit(int(text), int(text))):
        return f"{what} To read it, set `{column.name}: {{type: timestamp, encoding: {unit}}}` under `columns`."
    if format_ := find_format(text, column.type):
        return f"{what} To read it, set `timestamp_formats: [{json.dumps(format_)}]` under `source`."
    marks = " or ".join(_find_marks(text, name, spelling))
    return f"{what} To read it, set {marks} under `source`." if marks else what


def _find_marks(text: str, type_: str, used: Spelling) -> list[str]:
    """Returns the settings that make a number of a text: without a mark between thousands if that is enough."""
    if type_ not in _RIGHT or type_ in (*_TIMES, "boolean"):
        return []
    fitting = []
    for decimal, thousands in NUMBER_MARKS:
        plain = in_normal_form(pa.array([text]), type_, Spelling((), decimal, thousands))[0].as_py()
        if re.match(_TEXTS[type_], plain):
            settings = {"decimal": decimal} if decimal != used.decimal else {}
            settings |= {"thousands": thousands} if thousands != used.thousands else {}
            if not settings:
                return []  # It is a number, out of range.
            named = " and ".join(f"`{name}: {json.dumps(mark)}`" for name, mark in settings.items())
            fitting.append((bool(thousands), named))
    fewest = min((has for has, _ in fitting), default=False)
    return [setting for has, setting in fitting if has == fewest]


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
    span = spans.get(parse_type(column.type).name)
    if span is None:
        return pa.array([True] * len(values))
    type_, low, high = span
    numbers = values.cast(type_)
    return pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))


def of_text(values: pa.Array, column: Column, spelling: Spelling = PLAIN) -> tuple[pa.Array, Sequence[int]]:
    """Converts texts (as bytes) to the column's type; also returns the rows whose text is not valid."""
    texts, unfit = _cast(values, pa.string())
    type_ = parse_type(column.type)
    if unit := UNITS.get(column.encoding):
        return _of_numbers(texts, {*unfit}, column, unit)
    texts = in_normal_form(texts, type_.name, spelling)
    matches = pc.match_substring_regex(texts, _TEXTS[type_.name]) if _TEXTS[type_.name] else pc.is_valid(texts)
    misfits = {*unfit, *_not(matches, texts)}
    converted, unread = _cast(_without(texts, misfits), arrow_type(column.type))
    misfits |= {*unread, *_not(in_range(converted, column), converted)}
    if type_.name in ("float", "double"):
        # A number that is too large for its type became infinite, one that is too small became zero.
        edges = pc.or_(pc.is_inf(converted), pc.equal(converted, 0))
        rows = pc.indices_nonzero(pc.fill_null(edges, fill_value=False))
        misfits |= {*rows.filter(pc.match_substring_regex(texts.take(rows), _NOT_ZERO)).to_pylist()}
    return _without(converted, misfits), sorted(misfits)


def _of_numbers(texts: pa.Array, unfit: set[int], column: Column, unit: int) -> tuple[pa.Array, Sequence[int]]:
    """Converts numbers since 1970 to timestamps. unit: its microseconds."""
    wide = unfit | {*_not(pc.match_substring_regex(texts, f"^-?[0-9]{{1,{19 - len(str(unit))}}}$"), texts)}
    moments = pc.multiply(_without(texts, wide).cast(pa.int64()), unit).cast(arrow_type(column.type))
    misfits = wide | {*_not(in_range(moments, column), moments)}
    return _without(moments, misfits), sorted(misfits)


def of_values(values: pa.Array, column: Column, spelling: Spelling = PLAIN) -> tuple[pa.Array, Sequence[int]]:
    """Converts values of a type that `fits` to the column's type; also returns the rows whose value would change."""
    is_named = pa.types.is_binary(values.type) and column.type != "binary"  # The name of a folder has it.
    if is_named or (_is_text(values.type) and parse_type(column.type).name in _TIMES):
        return of_text(values.cast(pa.binary()), column, spelling)
    if spelling.time_zone and pa.types.is_timestamp(values.type) and values.type.tz is None:
        return of_text(pc.strftime(values, "%Y-%m-%dT%H:%M:%S").cast(pa.binary()), column, spelling)
    converted, unfit = _cast(values, arrow_type(column.type))
    misfits = {*unfit, *_not(in_range(converted, column), converted)}
    return _without(converted, misfits), sorted(misfits)


def fits(actual: pa.DataType, column: Column) -> bool:
    """Whether values of a type can be values of the column: the same type or a narrower one; times in any unit, or as
    text.
    """
    if pa.types.is_dictionary(actual):
        actual = actual.value_type
    if pa.types.is_null(actual):
        return True
    type_ = parse_type(column.type)
    if type_.element is not None:
        is_list = pa.types.is_list(actual) or pa.types.is_large_list(actual)
        element = column.type.removeprefix("array<").removesuffix(">")
        return bool(is_list) and fits(actual.value_type, Column(column.name, element))
    if type_.name in _TIMES and _is_text(actual):
        return True
    if type_.name == "timestamp":
        return bool(pa.types.is_timestamp(actual))  # One without a zone is UTC.
    if type_.name == "decimal":
        if not pa.types.is_decimal(actual) or actual.scale > type_.scale:
            return False
        return bool(actual.precision - actual.scale <= type_.precision - type_.scale)
    return bool(actual == arrow_type(column.type)) or actual in _WIDER.get(type_.name, ())


def _is_text(type_: pa.DataType) -> bool:
    return type_ in (pa.string(), pa.large_string())


def _cast(values: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Sequence[int]]:
    """Casts all values at once; if that fails, one by one, to find the misfits."""
    try:
        return values.cast(type_), ()
    except pa.ArrowInvalid:
        pass
    unfit, converted = [], []
    for row in range(len(values)):
        try:
            converted.append(values[row : row + 1].cast(type_))
        except pa.ArrowInvalid:
            unfit.append(row)
            converted.append(pa.nulls(1, type_))
    return pa.concat_arrays(converted), unfit


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
