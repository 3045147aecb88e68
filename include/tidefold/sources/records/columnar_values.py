"""Converts columns to the types of a table, all rows at once, and finds the rows that do not fit."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.schema import arrow_type
from tidefold.domain.log_state import Column
from tidefold.domain.table.types import UNITS, parse_type
from tidefold.sources.records.text_forms import (
    NUMBER_MARKS,
    PLAIN,
    Spelling,
    find_first,
    find_formats,
    find_unit,
    in_normal_form,
    is_as,
    swap_day_month,
)

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
_EXAMPLE = datetime(2026, 1, 31, 12, tzinfo=UTC)


def find_day_order(values: pa.Array, column: Column, spelling: Spelling) -> str:
    """Whether formats or values of a column of times have the day (`d`) or the month (`m`) first; empty: not known."""
    if parse_type(column.type).name not in _TIMES or values.type != pa.binary():
        return ""
    chosen = {format_[1] for format_ in spelling.formats if re.match("%[dm][/-]%[dm]", format_)}
    texts = (value.decode(errors="replace") for value in values.unique().to_pylist() if value)
    return chosen.pop() if len(chosen) == 1 else find_first(texts)


def explain_misfit(value: Any, column: Column, spelling: Spelling, first: str = "") -> str:
    """Describes what is wrong with a value, with an example of a valid one.

    first: see `find_day_order`.
    """
    text = value.decode("utf-8", errors="backslashreplace") if isinstance(value, bytes) else str(value)
    shown = f"`{column.name}` is '{text[:80]}'"
    if isinstance(value, bytes) and column.type != "binary" and not _is_utf8(value):
        return f"{shown}, which is not UTF-8 text: set `encoding` under `source`, such as `encoding: cp1252`."
    name = parse_type(column.type).name
    right = _RIGHT.get(name)
    if right and name in ("float", "double", "decimal"):
        right = right.replace(".", spelling.decimal).replace("1284", f"1{spelling.thousands}284")
    if right and name in _TIMES:
        own = [_EXAMPLE.strftime(f) for f in spelling.formats if ("%M" in f) == (name == "timestamp")]
        right = f"{right.rpartition(' ')[0]} {' or '.join(own)}" if own else right
    what = f"{shown}, not a valid {column.type}.{f' Expected: {right}.' if right else ''}"
    if not isinstance(value, bytes):
        return what
    if column.encoding:
        return f"{shown}, not a whole number of {column.encoding} since 1970."
    if name == "timestamp" and re.fullmatch("[0-9]{1,18}", text) and (unit := find_unit(int(text), int(text))):
        return f"{what} To read it, set `{column.name}: {{type: timestamp, encoding: {unit}}}` under `columns`."
    if name == "timestamp" and " in no hour of " in in_normal_form(pa.array([text]), name, spelling)[0].as_py():
        return f"{shown}, in an hour that the clocks of {spelling.time_zone} skipped."
    formats = find_formats(text, column.type, first) if name in _TIMES else []
    if against := _find_contradicted(text, spelling.formats, formats):
        return f"{shown}, {_explain_swapped(against)}"
    if formats:
        ways = " or ".join(f"`timestamp_formats: {json.dumps([*spelling.formats, f])}`" for f in formats)
        unclear = " The values do not decide whether the day or the month comes first." if len(formats) > 1 else ""
        return f"{what}{unclear} To read it, set {ways} under `source`{', as the source writes it' * bool(unclear)}."
    marks = " or ".join(_find_marks(text, name, spelling))
    return f"{what} To read it, set {marks} under `source`." if marks else what


def _find_contradicted(text: str, used: Sequence[str], fitting: Sequence[str]) -> str:
    """Returns the configured format whose order of day and month a text contradicts; empty: there is none."""
    begins = {format_[:5] for format_ in fitting}
    both = [] if any(is_as(text, f) for f in used) else [(f, swap_day_month(f)) for f in used]
    return next((f for f, g in both if f != g and (is_as(text, g) or begins == {g[:5]})), "")


def _explain_swapped(used: str) -> str:
    first, other = ("day", "month") if used.startswith("%d") else ("month", "day")
    return (
        f"with the {other} first. `timestamp_formats` has {json.dumps(used)}: other values of the file are read with "
        f"the {first} first. Look at the file. If it has the {other} first, its other dates are wrong, too. If no run "
        "took the file yet, correct it or name it in `leave_out` under `source`. Else change its rows once more at the "
        "source, then `tidefold quarantine settle` gives up the refused ones."
    )


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


def in_range(values: pa.Array, column: Column) -> pa.Array:
    """Whether values are in the range of every reader: dates and timestamps of the years 1 to 9999."""
    spans = {"date": (pa.int32(), -719_162, 2_932_896)}
    spans["timestamp"] = (pa.int64(), -62_135_596_800_000_000, 253_402_300_799_999_999)
    span = spans.get(parse_type(column.type).name)
    if span is None:
        return pa.repeat(pa.scalar(value=True), len(values))
    type_, low, high = span
    numbers = values.cast(type_)
    return pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))


def convert_texts(values: pa.Array, column: Column, spelling: Spelling = PLAIN) -> tuple[pa.Array, Sequence[int]]:
    """Converts texts (as bytes) to the column's type; also returns the rows whose text is not valid."""
    texts, unfit = _cast(values, pa.string())
    type_ = parse_type(column.type)
    if unit := UNITS.get(column.encoding):
        return _of_numbers(texts, {*unfit}, column, unit)
    texts = in_normal_form(texts, type_.name, spelling)
    matches = pc.match_substring_regex(texts, _TEXTS[type_.name]) if _TEXTS[type_.name] else pc.is_valid(texts)
    misfits = {*unfit, *_find_rows_not(matches, texts)}
    converted, unread = _cast(_without(texts, misfits), arrow_type(column.type))
    misfits |= {*unread, *_find_rows_not(in_range(converted, column), converted)}
    if type_.name in ("float", "double"):
        # A number that is too large for its type became infinite, one that is too small became zero.
        edges = pc.or_(pc.is_inf(converted), pc.equal(converted, 0))
        rows = pc.indices_nonzero(pc.fill_null(edges, fill_value=False))
        misfits |= {*rows.filter(pc.match_substring_regex(texts.take(rows), _NOT_ZERO)).to_pylist()}
    return _without(converted, misfits), sorted(misfits)


def _of_numbers(texts: pa.Array, unfit: set[int], column: Column, unit: int) -> tuple[pa.Array, Sequence[int]]:
    """Converts numbers since 1970 to timestamps. unit: its microseconds."""
    wide = unfit | {*_find_rows_not(pc.match_substring_regex(texts, f"^-?[0-9]{{1,{19 - len(str(unit))}}}$"), texts)}
    moments = pc.multiply(_without(texts, wide).cast(pa.int64()), unit).cast(arrow_type(column.type))
    misfits = wide | {*_find_rows_not(in_range(moments, column), moments)}
    return _without(moments, misfits), sorted(misfits)


def convert_values(values: pa.Array, column: Column, spelling: Spelling = PLAIN) -> tuple[pa.Array, Sequence[int]]:
    """Converts values of a type that `fits` to the column's type; also returns the rows whose value would change."""
    is_named = pa.types.is_binary(values.type) and column.type != "binary"  # The name of a folder has it.
    if is_named or (_is_text(values.type) and parse_type(column.type).name in _TIMES):
        return convert_texts(values.cast(pa.binary()), column, spelling)
    if spelling.time_zone and pa.types.is_timestamp(values.type) and values.type.tz is None:
        return convert_texts(pc.strftime(values, "%Y-%m-%dT%H:%M:%S").cast(pa.binary()), column, spelling)
    converted, unfit = _cast(values, arrow_type(column.type))
    misfits = {*unfit, *_find_rows_not(in_range(converted, column), converted)}
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


def _find_rows_not(mask: pa.Array, values: pa.Array) -> Sequence[int]:
    """The rows with a value for which the mask is not true."""
    lacking = pc.and_(pc.is_valid(values), pc.invert(pc.fill_null(mask, fill_value=False)))
    rows: list[int] = pc.indices_nonzero(lacking).to_pylist()
    return rows


def _without(values: pa.Array, rows: set[int]) -> pa.Array:
    if not rows:
        return values
    keep = pa.array([row not in rows for row in range(len(values))], pa.bool_())
    return pc.if_else(keep, values, pa.scalar(None, values.type))
