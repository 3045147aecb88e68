"""Brings columns from the types of an older schema to those of a newer one: strictly, so that no value becomes null,
and none another one. The one function for rows, changes and whatever is kept beside them.
"""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.columns import arrow_type
from tidefold.lifecycle.conversions import parse_value, steps
from tidefold.lifecycle.errors import RefusedError
from tidefold.lifecycle.schemas import Former
from tidefold.lifecycle.types import parse_type

_SHOWN = 40


def brought(table: pa.Table, name: str, former: Former) -> pa.ChunkedArray:
    """The values of column `name`, from rows of an older schema. Raises RefusedError when one does not fit."""
    if former.name is not None and former.name in table.column_names:
        return converted(table.column(former.name), name, former.types)
    # A file that lacks a column was written before that was added.
    default = None if former.name is not None else former.default
    first = arrow_type(former.types[0])
    value = None if default is None else parse_value(former.types[0], default)
    filled = pa.chunked_array([pa.repeat(pa.scalar(value, first), table.num_rows)], first)
    return converted(filled, name, former.types)


def converted(values: pa.ChunkedArray, name: str, types: tuple[str, ...]) -> pa.ChunkedArray:
    """The same values in the last of these types, if they are of the first. Raises RefusedError."""
    line = steps(types)
    for before, after in pairwise(line):
        values = _converted(values, name, before, after)
    return values


def _converted(values: pa.ChunkedArray, name: str, before: str, after: str) -> pa.ChunkedArray:
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
        # Arrow asks for room for every number of the type, not for those that are there.
        values = values.cast(pa.decimal128(19, 0))
    return values.cast(type_)


def _equal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    if one.type != other.type or not pa.types.is_floating(one.type):
        return bool(one.equals(other))
    same = pc.or_(pc.equal(one, other), pc.and_(pc.is_nan(one), pc.is_nan(other)))
    return bool(pc.all(same).as_py() is not False)


def _text(values: pa.ChunkedArray, type_: str) -> pa.ChunkedArray:
    """One text a value: 5, 1.50, true, 2026-01-31, 2026-01-31T12:00:00.000000Z."""
    name = parse_type(type_).name
    if name == "decimal":
        # Arrow writes small ones with an exponent.
        return pa.chunked_array([[None if v is None else f"{v:f}" for v in values.to_pylist()]], pa.string())
    found = values.cast(pa.string())
    return pc.replace_substring(found, " ", "T", max_replacements=1) if name == "timestamp" else found


def _unfit(values: pa.ChunkedArray, name: str, before: str, after: str) -> RefusedError:
    bad = next((v for v in values.drop_null() if not _fits(v, before, after)), None)
    shown = "" if bad is None else f", as {str(bad.as_py())[:_SHOWN]}"
    return RefusedError(
        "VALUE_UNFIT",
        f"Column `{name}` has values of type {before} that are none of {after}{shown}. Nothing was changed.",
        hint=f"Put the type {before} of `{name}` back in the configuration; the next run goes on with it.",
    )


def _fits(value: pa.Scalar, before: str, after: str) -> bool:
    one = pa.chunked_array([pa.array([value.as_py()], arrow_type(before))])
    try:
        return _equal(_cast(one, arrow_type(after)).cast(one.type, safe=False), one)
    except pa.ArrowInvalid:
        return False
