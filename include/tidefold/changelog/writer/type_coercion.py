"""Converts values to the type of their column without loss, or refuses them. Rows and tables follow the same rules.

Whole numbers fit whole-number columns with enough range, and columns of fractions up to 2**24 (`float`) or 2**53
(`double`). A fraction is rounded to the nearest `float`, never to infinity or to zero. Text, booleans, dates and
instants fit only their own kind. An instant without a zone is UTC, and none is rounded to microseconds.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from tidefold.errors import InvalidInputError

_SHOWN = 40
_FAILURES = (pa.ArrowException, OverflowError, TypeError, ValueError)


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


def _is_column_of_kind(given: pa.DataType, type_: pa.DataType) -> bool:
    if kinds.is_integer(type_):
        return bool(kinds.is_integer(given))
    if kinds.is_floating(type_):
        return bool(kinds.is_integer(given) or kinds.is_floating(given))
    if kinds.is_string(type_):
        return bool(kinds.is_string(given) or kinds.is_large_string(given) or kinds.is_string_view(given))
    if kinds.is_date(type_):
        return bool(kinds.is_date(given))
    if kinds.is_decimal(type_):
        return bool(kinds.is_integer(given) or kinds.is_decimal(given))
    if kinds.is_binary(type_):
        fixed = kinds.is_fixed_size_binary(given)
        return bool(fixed or kinds.is_binary(given) or kinds.is_large_binary(given) or kinds.is_binary_view(given))
    if kinds.is_list(type_):
        lists = kinds.is_list(given) or kinds.is_large_list(given)
        return bool(
            lists and (given.value_type == type_.value_type or _is_column_of_kind(given.value_type, type_.value_type))
        )
    return bool(kinds.is_boolean(given) if kinds.is_boolean(type_) else kinds.is_timestamp(given))


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


_WORDS = {
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


def _describe_type(type_: pa.DataType) -> tuple[str, str]:
    if kinds.is_list(type_):
        word, what = _describe_type(type_.value_type)
        return f"array<{word}>", f"lists of {what}"
    if kinds.is_decimal(type_):
        room = f"up to {type_.precision} digits, {type_.scale} of them behind the point"
        return f"decimal({type_.precision},{type_.scale})", f"decimals or whole numbers of {room}"
    return _WORDS[type_]


def _word(type_: pa.DataType) -> str:
    return _describe_type(type_)[0]


def _hint(type_: pa.DataType) -> str:
    return f"Give {_describe_type(type_)[1]}. Changes of an append are counted from 0."
