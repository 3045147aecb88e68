"""Gives values of text, or of another type, the type of a column: exactly, or not at all."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.columns import arrow_type
from tidefold.lifecycle.types import parse_type
from tidefold.lifecycle.values import Column
from tidefold.sources.columnar import in_range

# What Arrow reads as a value and we do too. (It would also read hexadecimal numbers, `1` as true, and more.)
_TEXTS = {
    "boolean": r"^(true|false)$",
    "int": r"^-?[0-9]+$",
    "long": r"^-?[0-9]+$",
    "float": r"^(-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|NaN|-?Infinity)$",
    "double": r"^(-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|NaN|-?Infinity)$",
    "decimal": r"^-?[0-9]+(\.[0-9]+)?$",
    "date": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    "timestamp": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+(Z|[+-][0-9]{2}:?[0-9]{2})$",
    "string": r"",
}
_INFINITE = r"^-?Infinity$"
# What may become what without any value changing; the rest is compared value by value.
_WIDER: dict[str, tuple[pa.DataType, ...]] = {
    "int": (pa.int8(), pa.int16(), pa.uint8(), pa.uint16()),
    "long": (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32()),
    "double": (pa.float32(),),
    "string": (pa.large_string(),),
    "binary": (pa.large_binary(),),
}


def of_text(values: pa.Array, column: Column) -> tuple[pa.Array, Sequence[int]]:
    """A column of text, as bytes, as values of the column's type, and the rows whose text is none."""
    texts, unfit = _cast(values, pa.string())
    type_ = parse_type(column.type)
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
    """A column of a type that `fits`, as values of the column's type, and the rows whose value would change."""
    found, unfit = _cast(values, arrow_type(column.type))
    misfits = {*unfit, *_not(in_range(found, column), found)}
    return _without(found, misfits), sorted(misfits)


def fits(given: pa.DataType, column: Column) -> bool:
    """Whether values of a type can be values of the column: the same type, or a narrower one; times in every unit."""
    if pa.types.is_dictionary(given):
        given = given.value_type
    type_ = parse_type(column.type)
    if type_.element is not None:
        is_list = pa.types.is_list(given) or pa.types.is_large_list(given)
        return bool(is_list) and fits(given.value_type, Column(column.name, _element(column.type)))
    if type_.name == "timestamp":
        return bool(pa.types.is_timestamp(given)) and given.tz is not None
    if type_.name == "decimal":
        if not pa.types.is_decimal(given) or given.scale > type_.scale:
            return False
        return bool(given.precision - given.scale <= type_.precision - type_.scale)
    return bool(given == arrow_type(column.type)) or given in _WIDER.get(type_.name, ())


def _cast(values: pa.Array, type_: pa.DataType) -> tuple[pa.Array, Sequence[int]]:
    """All at once; if one does not fit, one by one, to find which."""
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
    """The rows that have a value for which it does not hold."""
    lacking = pc.and_(pc.is_valid(values), pc.invert(pc.fill_null(mask, fill_value=False)))
    rows: list[int] = pc.indices_nonzero(lacking).to_pylist()
    return rows


def _without(values: pa.Array, rows: set[int]) -> pa.Array:
    if not rows:
        return values
    keep = pa.array([row not in rows for row in range(len(values))], pa.bool_())
    return pc.if_else(keep, values, pa.scalar(None, values.type))


def _element(array: str) -> str:
    return array.removeprefix("array<").removesuffix(">")
