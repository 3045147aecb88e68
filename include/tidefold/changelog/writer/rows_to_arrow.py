"""Converts appended rows to changes of the log: checks and converts every column, fills the system columns."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from tidefold.changelog.schema import ARRIVAL, DELETE, UPSERT, change_schema, order_columns
from tidefold.domain.log_state import TableSpec
from tidefold.errors import InvalidInputError

# Whole numbers fit whole-number columns with enough range, and columns of fractions up to 2**24 (`float`) or 2**53
# (`double`). A fraction is rounded to the nearest `float`, never to infinity or to zero. Text, booleans, dates and
# instants fit only their own kind. An instant without a zone is UTC, and none is rounded to microseconds.
_SHOWN = 40
_FAILURES = (pa.ArrowException, OverflowError, TypeError, ValueError)
_NAMES_OF_TYPES = {
    pa.bool_(): ("boolean", "True or False"),
    pa.int32(): ("int", "whole numbers from -2**31 to 2**31 - 1, no fractions (2.0 is one too)"),
    pa.int64(): ("long", "whole numbers from -2**63 to 2**63 - 1, no fractions (2.0 is one too)"),
    pa.float32(): ("float", "numbers within the range of `float`; whole ones up to 2**24"),
    pa.float64(): ("double", "numbers; whole ones up to 2**53"),
    pa.string(): ("string", "text that is valid Unicode"),
    pa.binary(): ("binary", "bytes"),
    pa.date32(): ("date", "dates without a time"),
    pa.timestamp("us", tz="UTC"): ("timestamp", "instants with a date and a time, of microseconds"),
}
Changes: TypeAlias = pa.Table | Iterable[Mapping[str, Any]] | Mapping[str, Any]
_WORDS = {"upsert": UPSERT, "delete": DELETE}


def wrong(what: str, hint: str) -> InvalidInputError:
    """Returns the error of refused changes, always with the same code."""
    return InvalidInputError("CHANGES_INVALID", f"{what}; nothing was appended.", hint=hint)


def format_value(value: object) -> str:
    """Returns a value for people: short, and with printable characters only."""
    try:
        text = ascii(value) if isinstance(value, str) and not _is_text(value) else repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def fit_values(name: str, values: Sequence[Any], type_: pa.DataType) -> pa.ChunkedArray:
    """Returns values of rows as a column. Raises InvalidInputError with the first that does not fit."""
    if kinds.is_list(type_):
        return _fit_lists(name, values, type_)
    of_kind = _kind_of_value(type_)
    whole = {kind: of_kind(kind) for kind in set(map(type, values)) - {type(None)}}
    try:
        if all(whole.values()) and (not any(map(_may_hide, whole)) or all(map(_is_exact, values))):
            return fit_column(name, pa.chunked_array([pa.array(values, _natural(values, type_))]), type_)
    except InvalidInputError:
        raise
    except _FAILURES:
        pass
    for number, value in enumerate(values):
        if value is not None and not (whole[type(value)] and _is_alone(value, type_)):
            raise _misfit(name, number, format_value(value), type(value).__name__, type_)
    raise wrong(f"`{name}` does not fit {_word(type_)}", "Give values of one kind.")


def fit_column(name: str, column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Returns a column in the type of its log. Raises InvalidInputError with the first value that does not fit."""
    if kinds.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.type == type_:
        return column
    if not kinds.is_null(column.type) and not _is_column_of_kind(column.type, type_):
        raise _error_of_value(name, column, int(pc.index(column.is_valid(), True).as_py()), type_)
    try:
        cast = _widen(column, type_).cast(type_)
    except pa.ArrowException:
        raise _error_of_value(name, column, _first_failing(column, type_), type_) from None
    if kinds.is_float32(type_) and (lost := _first_lost(column, cast)) >= 0:
        raise _error_of_value(name, column, lost, type_)
    return cast


def _fit_lists(name: str, values: Sequence[Any], type_: pa.ListType) -> pa.ChunkedArray:
    for number, value in enumerate(values):
        try:
            if value is not None and not isinstance(value, list | tuple):
                raise wrong("", "")
            fit_values(name, value or (), type_.value_type)
        except InvalidInputError:
            raise _misfit(name, number, format_value(value), type(value).__name__, type_) from None
    return pa.chunked_array([pa.array(values, type_)])


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind_of_value(type_: pa.DataType) -> Callable[[type], bool]:
    if kinds.is_integer(type_):
        return _is_whole
    if kinds.is_floating(type_):
        return lambda kind: issubclass(kind, Real) and not issubclass(kind, bool)
    if kinds.is_decimal(type_):
        return lambda kind: issubclass(kind, Decimal) or _is_whole(kind)
    if kinds.is_date(type_):
        return lambda kind: issubclass(kind, date) and not issubclass(kind, datetime)
    if kinds.is_binary(type_):
        return lambda kind: issubclass(kind, bytes)
    own = bool if kinds.is_boolean(type_) else str if kinds.is_string(type_) else datetime
    return lambda kind: issubclass(kind, own)


def _is_whole(kind: type) -> bool:
    return issubclass(kind, Integral) and not issubclass(kind, bool)


def _is_column_of_kind(actual: pa.DataType, type_: pa.DataType) -> bool:
    if kinds.is_integer(type_):
        return bool(kinds.is_integer(actual))
    if kinds.is_floating(type_):
        return bool(kinds.is_integer(actual) or kinds.is_floating(actual))
    if kinds.is_string(type_):
        return bool(kinds.is_string(actual) or kinds.is_large_string(actual) or kinds.is_string_view(actual))
    if kinds.is_date(type_):
        return bool(kinds.is_date(actual))
    if kinds.is_decimal(type_):
        return bool(kinds.is_integer(actual) or kinds.is_decimal(actual))
    if kinds.is_binary(type_):
        fixed = kinds.is_fixed_size_binary(actual)
        return bool(fixed or kinds.is_binary(actual) or kinds.is_large_binary(actual) or kinds.is_binary_view(actual))
    if kinds.is_list(type_):
        lists = kinds.is_list(actual) or kinds.is_large_list(actual)
        return bool(
            lists and (actual.value_type == type_.value_type or _is_column_of_kind(actual.value_type, type_.value_type))
        )
    return bool(kinds.is_boolean(actual) if kinds.is_boolean(type_) else kinds.is_timestamp(actual))


def _may_hide(kind: type) -> bool:
    """Whether values of this kind may have more precision than microseconds, or mean null (as in pandas)."""
    return issubclass(kind, datetime) and kind is not datetime


def _is_exact(value: Any) -> bool:
    return bool(value == value) and not getattr(value, "nanosecond", 0)


def _natural(values: Sequence[Any], type_: pa.DataType) -> pa.DataType:
    """Returns the widest type of the kind. A value that is too large for the column is then found as in a table."""
    if kinds.is_integer(type_):
        return pa.int64()
    if not kinds.is_floating(type_):
        return type_
    limit = 2**24 if kinds.is_float32(type_) else 2**53
    whole = {kind for kind in set(map(type, values)) if _is_whole(kind)}
    if whole and any(type(value) in whole and abs(int(value)) > limit for value in values):
        raise OverflowError
    return pa.float64()


def _is_alone(value: Any, type_: pa.DataType) -> bool:
    try:
        pa.array([value], _natural([value], type_))
    except _FAILURES:
        return False
    return not _may_hide(type(value)) or _is_exact(value)


def _first_failing(column: pa.ChunkedArray, type_: pa.DataType) -> int:
    """Finds the first value that fails, by halving: every prefix that contains it fails, and no shorter one."""

    def fails(count: int) -> bool:
        try:
            _widen(column.slice(0, count + 1), type_).cast(type_)
        except pa.ArrowException:
            return True
        return False

    return bisect.bisect_left(range(len(column)), True, key=fails)


def _widen(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Widens a column, because Arrow casts whole numbers only to decimals that can hold all of their type."""
    if not (kinds.is_decimal(type_) and kinds.is_integer(column.type)):
        return column
    return column.cast(pa.decimal256(20 + type_.scale, type_.scale))


def _first_lost(column: pa.ChunkedArray, cast: pa.ChunkedArray) -> int:
    """Returns where a finite number became infinite, or a number other than zero became zero; -1: nowhere."""
    infinite = pc.and_(pc.is_inf(cast), pc.is_finite(column))
    zero = pc.and_(pc.equal(cast, 0), pc.not_equal(column, 0))
    return int(pc.index(pc.or_(infinite, zero), True).as_py())


def _error_of_value(name: str, column: pa.ChunkedArray, number: int, type_: pa.DataType) -> InvalidInputError:
    if number < 0 or number >= len(column):
        return wrong(f"`{name}` is a column of {column.type}, not of {_word(type_)}", _hint(type_))
    try:
        text = format_value(column[number].as_py())
    except (ValueError, OverflowError):
        text = "a value that Python cannot hold"
    return _misfit(name, number, text, str(column.type), type_)


def _misfit(name: str, number: int, text: str, kind: str, type_: pa.DataType) -> InvalidInputError:
    return wrong(f"`{name}` of change {number} is {text} ({kind}), which does not fit {_word(type_)}", _hint(type_))


def _word(type_: pa.DataType) -> str:
    return _describe_type(type_)[0]


def _describe_type(type_: pa.DataType) -> tuple[str, str]:
    if kinds.is_list(type_):
        word, what = _describe_type(type_.value_type)
        return f"array<{word}>", f"lists of {what}"
    if kinds.is_decimal(type_):
        room = f"up to {type_.precision} digits, {type_.scale} of them behind the point"
        return f"decimal({type_.precision},{type_.scale})", f"decimals or whole numbers of {room}"
    return _NAMES_OF_TYPES[type_]


def _hint(type_: pa.DataType) -> str:
    return f"Give {_describe_type(type_)[1]}. Changes of an append are counted from 0."


class Buffer:
    """Collects appended tables until they become one."""

    def __init__(self) -> None:
        self.bytes = 0
        self._tables: list[pa.Table] = []

    def add(self, table: pa.Table) -> None:
        if table.num_rows:
            self._tables.append(table)
            self.bytes += table.nbytes

    def take(self) -> pa.Table | None:
        """Removes and returns everything as one table; None if it is empty."""
        tables, self._tables, self.bytes = self._tables, [], 0
        return pa.concat_tables(tables) if tables else None


def change_table(changes: Changes, shape: TableSpec, offset: int, now: int) -> pa.Table:
    """Returns the changes in the log's schema, with `_offset` counted from `offset`, and `_ts` = `now` if not given.

    `_kg` is filled later. `_op` is 0 or `upsert` (the default), 1 or `delete`. An upsert must have every column, with
    explicit nulls. A delete must have the key. Raises InvalidInputError, and accepts nothing then.
    """
    table = changes if isinstance(changes, pa.Table) else _from_rows(changes, shape)
    _check_names(table.column_names, shape)
    schema, count = change_schema(shape), table.num_rows
    if not count:
        return schema.empty_table()
    op = _operations(table, count)
    filled: dict[str, Any] = {
        "_op": op,
        "_kg": pa.repeat(pa.scalar(0, pa.uint16()), count),
        "_partition": pa.repeat(pa.scalar(0, pa.int32()), count),
        "_offset": pa.array(np.arange(offset, offset + count, dtype=np.int64)),
        "_ts": _instants(table, now),
        "_absent": pa.nulls(count, pa.list_(pa.string())),
    }
    for name in order_columns(shape):
        filled[name] = filled["_offset"] if shape.order == ARRIVAL else _require_column(table, name, pa.int64())
    for column in shape.columns:
        filled[column.name] = _user_column(table, column.name, schema.field(column.name).type, shape, op)
    return pa.table([filled[name] for name in schema.names], schema=schema)


def highest(table: pa.Table, shape: TableSpec) -> tuple[int, ...]:
    """Returns the highest order in a table of changes, compared number by number."""
    high: list[int] = []
    for name in order_columns(shape):
        top = pc.max(table.column(name)).as_py()
        table = table.filter(pc.field(name) == top)
        high.append(top)
    return tuple(high)


def _from_rows(changes: Iterable[Mapping[str, Any]] | Mapping[str, Any], shape: TableSpec) -> pa.Table:
    rows = _mappings(changes)
    names = dict.fromkeys(name for row in rows for name in row)
    _check_names(list(names), shape)
    needed = {column.name for column in shape.columns}
    ops = [_operation(row.get("_op", UPSERT), number) for number, row in enumerate(rows)]
    for number, (row, op) in enumerate(zip(rows, ops, strict=True)):
        missing = [] if op == DELETE else sorted(needed - row.keys())
        if missing:
            raise wrong(f"Change {number} has no `{missing[0]}`", "Give every column; None stands for null.")
    types = {field.name: field.type for field in change_schema(shape)}
    # What only deletes bring in is null there.
    others = [name for name in {**names, **dict.fromkeys(needed)} if name != "_op"]
    filled = {name: fit_values(name, [row.get(name) for row in rows], types[name]) for name in others}
    return pa.table({**filled, "_op": pa.array(ops, pa.int8())})


def _mappings(changes: object) -> list[Mapping[str, Any]]:
    hint = "Give a pyarrow.Table, rows as mappings of column to value, or one such row."
    if isinstance(changes, Mapping):
        return [changes]
    if not isinstance(changes, Iterable):
        raise wrong(f"{format_value(changes)} is no changes", hint)
    rows = list(changes)
    for number, row in enumerate(rows):
        if type(row) is not dict and not isinstance(row, Mapping):
            raise wrong(f"Change {number} is {format_value(row)} ({type(row).__name__}), no mapping", hint)
    return rows


def _operation(value: object, number: int) -> int:
    if type(value) is int and value in (UPSERT, DELETE):
        return value
    op = _WORDS.get(value) if isinstance(value, str) else value
    if isinstance(op, bool) or not isinstance(op, Integral) or op not in (UPSERT, DELETE):
        raise _no_operation(value, number)
    return int(op)


def _no_operation(value: object, number: int) -> InvalidInputError:
    return wrong(
        f"`_op` of change {number} is {format_value(value)}, which is none", "Use 0 or `upsert`, 1 or `delete`."
    )


def _check_names(names: list[str], shape: TableSpec) -> None:
    valid = {"_op", "_ts"} | {column.name for column in shape.columns}
    valid |= set() if shape.order == ARRIVAL else set(order_columns(shape))
    unknown = [name for name in names if name not in valid]
    if unknown:
        raise wrong(f"{format_value(unknown[0])} is no column of the log", f"Columns are {', '.join(sorted(valid))}.")
    if len(names) > len(set(names)):
        twice = next(name for name in names if names.count(name) > 1)
        raise wrong(f"`{twice}` is there twice", "Give every column once.")


def _operations(table: pa.Table, count: int) -> pa.Array | pa.ChunkedArray:
    if "_op" not in table.column_names:
        return pa.repeat(pa.scalar(UPSERT, pa.int8()), count)
    op = table.column("_op")
    if pa.types.is_integer(op.type):
        valid = pc.is_in(op, pa.array([UPSERT, DELETE], op.type))
    else:
        words = fit_column("_op", op, pa.string())
        op = pc.index_in(words, pa.array(list(_WORDS)))  # The words are in the order of their numbers.
        valid = op.is_valid()
    odd = pc.index(valid, False).as_py()
    if odd >= 0:
        raise _no_operation(table.column("_op")[odd].as_py(), odd)
    return op.cast(pa.int8())


def _instants(table: pa.Table, now: int) -> Any:
    if "_ts" not in table.column_names:
        return pa.repeat(pa.scalar(now, pa.int64()), table.num_rows)
    return pc.fill_null(fit_column("_ts", table.column("_ts"), pa.int64()), now)


def _user_column(table: pa.Table, name: str, type_: pa.DataType, shape: TableSpec, op: Any) -> Any:
    if name in shape.key:
        return _require_column(table, name, type_)
    deleted = pc.equal(op, DELETE)
    if name not in table.column_names:
        if not pc.all(deleted, min_count=0).as_py():
            raise wrong(f"`{name}` is missing", "Give every column; null where there is no value.")
        return pa.nulls(table.num_rows, type_)
    column = fit_column(name, table.column(name), type_)
    return pc.if_else(deleted, pa.scalar(None, type_), column) if pc.any(deleted, min_count=0).as_py() else column


def _require_column(table: pa.Table, name: str, type_: pa.DataType) -> Any:
    hint = "Every change needs the key, and its order if the log has one."
    if name not in table.column_names:
        raise wrong(f"`{name}` is missing", hint)
    column = fit_column(name, table.column(name), type_)
    if column.null_count:
        raise wrong(f"`{name}` of change {pc.index(column.is_null(), True).as_py()} is null", hint)
    return column
