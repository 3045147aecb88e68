"""How the type of a column may change without changing a value, and values that a configuration gives as text. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import Any

from tidefold.domain.table.types import Type, parse_type

# Digits before the point that every value of the type fits in.
_DIGITS = {"int": 10, "long": 19}
_WIDER = {("int", "long"), ("float", "double"), ("date", "timestamp")}
# Types whose values have no one text.
_NO_TEXT = ("binary", "array")


def widens(old: str, new: str) -> bool:
    """Whether every value of the old type is, unchanged, one of the new type."""
    return _widens(parse_type(old), parse_type(new))


def _widens(old: Type, new: Type) -> bool:
    if old.element and new.element:
        return _widens(old.element, new.element)
    if new.name == "decimal":
        if old.name == "decimal":
            return old != new and new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
        return old.name in _DIGITS and new.precision - new.scale >= _DIGITS[old.name]
    return (old.name, new.name) in _WIDER


def keeps_values(old: str, new: str) -> bool:
    """Whether a value that fits both types is the same in both: true of what was widened or narrowed."""
    return old == new or widens(old, new) or widens(new, old)


def has_text(type_: str) -> bool:
    """Whether a column of the type can become one of type string."""
    return parse_type(type_).name not in _NO_TEXT


def steps(types: Sequence[str]) -> tuple[str, ...]:
    """The conversions that remain of a row of types: the first one, then each that a value must go through.

    A type that a column had for a while only matters where its text was taken: a value that fits the last one is not
    asked whether it would have fitted those between.
    """
    kept = list(types[:1])
    for before, after in pairwise(types):
        if not keeps_values(before, after):
            kept += [before, after]
    kept += types[-1:]
    return tuple(t for t, last in zip(kept, [None, *kept], strict=False) if t != last)


def parse_value(type_: str, text: str) -> Any:
    """Parses a value of the type. Raises ValueError if the text is not one, or the type has no text form."""
    parsed = parse_type(type_)
    if parsed.name not in _PARSE:
        raise ValueError(f"a column of type {type_} cannot have a default")
    try:
        return _PARSE[parsed.name](text, parsed)
    except (ValueError, InvalidOperation, OverflowError) as error:
        raise ValueError(f"{text!r} is not a value of type {type_}") from error


def _whole(bits: int) -> Callable[[str, Type], int]:
    def parse(text: str, _: Type) -> int:
        number = int(text)
        if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
            raise ValueError(text)
        return number

    return parse


def _decimal(text: str, type_: Type) -> Decimal:
    number = Decimal(text)
    exact = number.quantize(Decimal(1).scaleb(-type_.scale)) if number.is_finite() else number
    if exact != number or len(exact.as_tuple().digits) > type_.precision:
        raise ValueError(text)
    return exact


def _float(text: str, _: Type) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _boolean(text: str, _: Type) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _timestamp(text: str, _: Type) -> datetime:
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError(text)
    return instant.astimezone(UTC)


_PARSE: dict[str, Callable[[str, Type], Any]] = {
    "boolean": _boolean,
    "int": _whole(32),
    "long": _whole(64),
    "float": _float,
    "double": _float,
    "decimal": _decimal,
    "string": lambda text, _: text,
    "date": lambda text, _: date.fromisoformat(text),
    "timestamp": _timestamp,
}
