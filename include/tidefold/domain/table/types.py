"""The types of columns as text (`long`, `decimal(12,2)`), conversions between them, and schemas of them. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import Any

from tidefold.domain.table.table_spec import Column, TableSpec

# Types without parameters.
PLAIN = ("boolean", "int", "long", "float", "double", "string", "date", "timestamp", "binary")
MAX_PRECISION = 38
# Encodings of a timestamp as a whole number since 1970: microseconds in each unit.
UNITS = {"seconds": 1_000_000, "millis": 1000, "micros": 1}
# What other systems call them.
_SQL = {"long": "bigint int8 int64", "int": "integer smallint tinyint int4 int32", "boolean": "bool bit"}
_SQL |= {"string": "varchar char text nvarchar varchar2 str uuid", "timestamp": "datetime datetime2 timestamptz"}
_SQL |= {"decimal(18,2)": "numeric number", "double": "float8 float64", "float": "real", "binary": "bytea blob bytes"}
SQL_NAMES = {name: type_ for type_, names in _SQL.items() for name in names.split()}
# How the types are described to people.
DESCRIBED = f"{', '.join(PLAIN)}, decimal(p,s), array<type>"

_DECIMAL = re.compile(r"decimal\(([1-9]\d?),(\d\d?)\)", re.ASCII)
_ARRAY = re.compile(r"array<(.+)>")
# Equal values of these have several texts or none, or none that people can type.
_NO_KEY = ("float", "double", "binary", "array")
# How a source may write values of a type; the first is what Debezium does when nothing else is configured.
_ENCODINGS = {
    "boolean": ("boolean", "number", "any"),
    "int": ("number", "any"),
    "long": ("number", "any"),
    "float": ("number", "any"),
    "double": ("number", "any"),
    "decimal": ("base64", "string", "number", "any"),
    "string": ("text", "json", "decimal", "days", "micros", "millis", "nanos"),
    "date": ("days", "iso", "any"),
    "timestamp": ("micros", "millis", "seconds", "nanos", "iso", "any"),
    "binary": ("base64", "base64url", "hex"),
}
# A decimal in base64 has no scale: the configuration promises the one of the source's column.
_PROMISE = re.compile(r"base64\((\d\d?)\)", re.ASCII)
# Digits before the point that every value of the type fits in.
_DIGITS = {"int": 10, "long": 19}
_WIDER = {("int", "long"), ("float", "double"), ("date", "timestamp")}
# Types whose values have no one text.
_NO_TEXT = ("binary", "array")
# The schema of a log whose columns never changed.
FIRST = 1


@dataclass(frozen=True, slots=True)
class Type:
    """A parsed type. `precision` and `scale` are of a decimal, `element` of an array."""

    name: str
    precision: int = 0
    scale: int = 0
    element: Type | None = None

    @property
    def can_be_key(self) -> bool:
        """Whether values of the type can identify rows."""
        return self.name not in _NO_KEY


def parse_type(text: str) -> Type:
    """Parses a type. Raises ValueError with the reason if the text is not a type."""
    if text in PLAIN:
        return Type(text)
    if array := _ARRAY.fullmatch(text):
        element = parse_type(array[1])
        if element.element is not None:
            raise ValueError("an array of arrays is not supported in this version")
        return Type("array", element=element)
    if decimal := _DECIMAL.fullmatch(text):
        precision, scale = int(decimal[1]), int(decimal[2])
        if precision > MAX_PRECISION or scale > precision:
            raise ValueError(f"a decimal has a precision of 1 to {MAX_PRECISION}, and a scale of 0 up to it")
        return Type("decimal", precision, scale)
    raise ValueError(f"types are: {DESCRIBED}")


def canonical(text: str) -> str:
    """The one way to write a type: `decimal(12, 2)` is `decimal(12,2)`."""
    return text.replace(" ", "")


def parse_promised_scale(encoding: str) -> int | None:
    """The scale that `base64(2)` promises for decimals; None: the encoding promises none."""
    promise = _PROMISE.fullmatch(encoding)
    return int(promise[1]) if promise else None


def encodings_of(type_: Type) -> tuple[str, ...]:
    """The names of the encodings that values of a type can have; those of an array are its elements'."""
    return encodings_of(type_.element) if type_.element else _ENCODINGS.get(type_.name, ())


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


def join_decimal(old: str, new: str) -> str:
    """The narrowest decimal that holds each value of both types; "": there is none, or the new one is no decimal."""
    one, other = parse_type(old), parse_type(new)
    if other.name != "decimal" or one.name not in (*_DIGITS, "decimal"):
        return ""
    whole = max(_DIGITS.get(one.name, one.precision - one.scale), other.precision - other.scale)
    scale = max(one.scale, other.scale)
    return f"decimal({whole + scale},{scale})" if whole + scale <= MAX_PRECISION else ""


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


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a log from some time on.

    ids: a permanent number for each column. A renamed column keeps its number; one that is dropped and added again
        gets a new one.
    instant, run: when it began, and with which run, for people.
    found: the numbers of columns that came from the source and are not configured.
    """

    id: int
    columns: tuple[Column, ...]
    ids: tuple[int, ...]
    instant: str = ""
    run: str = ""
    found: tuple[int, ...] = ()

    @property
    def named(self) -> dict[str, int]:
        """The id of each column, by its name."""
        return {column.name: number for column, number in zip(self.columns, self.ids, strict=True)}


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The definition of a table, and all schemas that it had, oldest first; empty: its columns never changed."""

    shape: TableSpec
    schemas: tuple[Schema, ...]


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """Where the values of a column come from in rows of an older schema.

    name: its name in the older schema; None: it did not exist.
    types: its types since then, the current one last.
    default: its value in rows older than the column.
    """

    name: str | None
    types: tuple[str, ...]
    default: str | None = None

    def is_same(self, column: Column) -> bool:
        """Whether a file can stay as it is. A file without the column shows null for it, under any name."""
        if self.name is None:
            return self.default is None
        return self.name == column.name and len(set(self.types)) == 1


def first_schema(columns: tuple[Column, ...]) -> Schema:
    """Returns the schema that a log begins with."""
    return Schema(FIRST, tuple(map(without_source_details, columns)), tuple(range(1, len(columns) + 1)))


def without_source_details(column: Column) -> Column:
    """Returns a column without the settings of its source: only what concerns its values in the table."""
    return replace(column, encoding="", aliases=(), optional=False)


def schema_of(schemas: Sequence[Schema], schema: int) -> Schema:
    """Returns the schema of that id."""
    return next(s for s in schemas if s.id == schema)


def column_origins(schemas: Sequence[Schema], older: int, newer: int) -> dict[str, ColumnOrigin]:
    """Returns the origin of each column of the newer schema in rows of the older one; empty: both are the same."""
    if older == newer or not schemas:
        return {}
    line = [s for s in schemas if older <= s.id <= newer]
    return {name: _former(line, number) for name, number in line[-1].named.items()}


def _former(line: Sequence[Schema], number: int) -> ColumnOrigin:
    having = [s.columns[s.ids.index(number)] for s in line if number in s.ids]
    types = tuple(column.type for column in having)
    is_first = number in line[0].ids
    return ColumnOrigin(having[0].name, types) if is_first else ColumnOrigin(None, types, having[0].default)


def must_rewrite(schemas: Sequence[Schema], older: int, newer: int) -> bool:
    """Whether files with rows of the older schema would show wrong values under the newer one."""
    if older == newer or not schemas:
        return False
    before, after = schema_of(schemas, older), schema_of(schemas, newer)
    # A dropped column is removed from the files too, because a later column may have the same name.
    if set(before.ids) - set(after.ids):
        return True
    origins = column_origins(schemas, older, newer)
    return not all(origins[column.name].is_same(column) for column in after.columns)


def find_dropped_columns(schemas: Sequence[Schema], older: int, newer: int) -> tuple[str, ...]:
    """Returns the columns of the older schema that the newer one lacks."""
    if older == newer or not schemas:
        return ()
    kept = schema_of(schemas, newer).ids
    return tuple(name for name, number in schema_of(schemas, older).named.items() if number not in kept)
