"""What the shape of a log must fulfil, whether a configuration describes it or a program."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeAlias

from tidefold.lifecycle.errors import InvalidInputError
from tidefold.lifecycle.types import encodings_of, parse_type
from tidefold.lifecycle.values import Column, Shape

MAX_KEY_GROUPS = 32768

_COLUMN = re.compile(r"[^\W_]\w{0,127}")
# Code, place within the description of the log, what is wrong there, hint.
Mistake: TypeAlias = tuple[str, tuple[str | int, ...], str, str]


def check(shape: Shape, orders: Collection[str]) -> None:
    """Raises InvalidInputError with the first mistake of a shape. `orders` are the kinds of order that there are."""
    for code, place, message, hint in _mistakes(shape, orders):
        raise InvalidInputError(code, f"Shape: {_dotted(place)} {message}", hint=hint)


def column_mistakes(names: Sequence[str]) -> Iterator[Mistake]:
    """Names of columns that no table can have, and those that meet."""
    seen: dict[str, str] = {}
    for name in names:
        at = ("columns", name)
        if name.startswith("_"):
            hint = "Rename it in the source."
            yield "COLUMN_RESERVED", at, "begins with `_`, which is kept for system columns.", hint
        elif not _COLUMN.fullmatch(name):
            hint = "Column names are up to 128 letters, digits and underscores in this version."
            yield "COLUMN_INVALID", at, "cannot name a column.", hint
        if name.casefold() in seen:
            other = seen[name.casefold()]
            differs = f"differs from `{other}` only by case, which Spark cannot tell apart."
            yield "COLUMN_TWICE", at, "is there twice." if name == other else differs, "Keep one of them."
        seen.setdefault(name.casefold(), name)


def key_mistakes(key: Sequence[str], types: dict[str, str]) -> Iterator[Mistake]:
    """Parts of a key that are no column, come twice, or cannot tell rows apart. `types`: column -> type."""
    for i, name in enumerate(key):
        at = ("key", i)
        if name in key[:i]:
            yield "KEY_COLUMN_TWICE", at, f"names `{name}` a second time.", "Keep one of them."
        if name not in types:
            hint = f"Columns are: {', '.join(types)}."
            yield "KEY_COLUMN_UNKNOWN", at, f"names `{name}`, which is no column of the log.", hint
        elif not _can_be_key(types[name]):
            message = f"names `{name}` of type {types[name]}, by which rows cannot be told apart."
            yield "KEY_TYPE", at, message, "Use a key of whole numbers, decimals, text, dates or timestamps."


def _can_be_key(text: str) -> bool:
    try:
        return parse_type(text).can_be_key
    except ValueError:
        return True  # A mistake of its own.


def type_mistakes(columns: Iterable[Column]) -> Iterator[Mistake]:
    """Types that no column can have, and encodings that do not fit the type."""
    for column in columns:
        at = ("columns", column.name)
        try:
            type_ = parse_type(column.type)
        except ValueError as error:
            yield "COLUMN_TYPE", at, f"has the unknown type {column.type!r}.", f"{_sentence(str(error))}."
            continue
        known = encodings_of(type_)
        if column.encoding and column.encoding not in known:
            hint = f"Values of {column.type} can be: {', '.join(known)}." if known else "Leave `encoding` out."
            yield "COLUMN_ENCODING", at, f"cannot have the encoding {column.encoding!r}.", hint


def _sentence(said: str) -> str:
    return said[:1].upper() + said[1:]


def _mistakes(shape: Shape, orders: Collection[str]) -> Iterator[Mistake]:
    yield from _malformed(shape)
    yield from column_mistakes([column.name for column in shape.columns])
    yield from type_mistakes(shape.columns)
    yield from key_mistakes(shape.key, {column.name: column.type for column in shape.columns})
    if shape.order not in orders:
        hint = f"Orders are: {', '.join(sorted(orders))}."
        yield "ORDER_INVALID", ("order",), f"cannot be {shape.order!r}.", hint
    yield from _spread(shape)


def _malformed(shape: Shape) -> Iterator[Mistake]:
    """What has to be a tuple of at least one. A list would never equal what the ledger has."""
    for name, given, kind in (("key", shape.key, str), ("columns", shape.columns, Column)):
        if not isinstance(given, tuple) or not all(isinstance(one, kind) for one in given):
            hint = 'As an example `key=("id",)`, `columns=(Column("id", "long"),)`.'
            yield f"{name.upper()}_INVALID", (name,), f"is not a tuple of {kind.__name__}.", hint
        elif not given:
            yield f"{name.upper()}_INVALID", (name,), "is empty.", "Name at least one column."


def _spread(shape: Shape) -> Iterator[Mistake]:
    if type(shape.key_groups) is not int or not 1 <= shape.key_groups <= MAX_KEY_GROUPS:
        hint = f"Use a whole number from 1 to {MAX_KEY_GROUPS}."
        yield "KEY_GROUPS_INVALID", ("key_groups",), f"cannot be {shape.key_groups!r}.", hint
    elif type(shape.buckets) is not int or not 1 <= shape.buckets <= shape.key_groups:
        hint = f"Use a whole number from 1 to key_groups ({shape.key_groups})."
        yield "BUCKETS_INVALID", ("buckets",), f"cannot be {shape.buckets!r}.", hint


def _dotted(place: tuple[str | int, ...]) -> str:
    first, *rest = place
    return str(first) + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)
