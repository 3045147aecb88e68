"""The statements that each merge engine gives to DuckDB, and the expressions that the engines share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidefold.changelog.key_group_hash import quote_name
from tidefold.changelog.schema import UPSERT, order_columns, place_columns
from tidefold.domain.table.table_spec import Column, TableSpec

# DuckDB's names of the types of columns.
_TYPES = {
    "boolean": "BOOLEAN", "int": "INTEGER", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE",
    "string": "VARCHAR", "date": "DATE", "timestamp": "TIMESTAMPTZ", "binary": "BLOB",
}  # fmt: skip
# The column next to a row with the names of columns whose value was not sent, and is in no former row; else null.
UNRESOLVED = "_unresolved"
# The place of a row without a place: below all others.
LOWEST = "[]::BIGINT[]"


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements of a fold.

    tables: name and query of tables to make first, in this order.
    counts: returns the rows that changes bring, and the keys that they delete.
    rows: returns the rows of the table, in the order of the key.
    hidden: returns the sidecar, if there is one.
    marks: the rows have the column UNRESOLVED after those of the table.
    """

    tables: tuple[tuple[str, str], ...]
    counts: str
    rows: str
    hidden: str | None = None
    marks: bool = False


def duck_type(type_: str) -> str:
    """Returns DuckDB's name of a column type."""
    if type_.startswith("array<"):
        return f"{duck_type(type_[6:-1])}[]"
    return _TYPES.get(type_, type_.upper())


def place(shape: TableSpec) -> str:
    """Returns the position of a change as a list of whole numbers: order, partition, offset."""
    return f"[{', '.join(f'{name}::BIGINT' for name in place_columns(shape))}]"


def order(shape: TableSpec) -> str:
    """Returns the order alone; the position if the log has no order."""
    names = order_columns(shape)
    return f"[{', '.join(names)}]" if names else place(shape)


def key_list(shape: TableSpec, of: str = "") -> str:
    return ", ".join(of + quote_name(name) for name in shape.key)


def same_key(shape: TableSpec) -> str:
    """Returns the condition that a row of the base has the key of `touched`. Keys are never null."""
    return " AND ".join(f"base.{quote_name(name)} = touched.{quote_name(name)}" for name in shape.key)


def values(shape: TableSpec) -> list[Column]:
    """Returns the user's columns without the key."""
    return [column for column in shape.columns if column.name not in shape.key]


def is_said(column: Column) -> str:
    """Returns the condition that a change has a value for a column."""
    return f"NOT coalesce(list_contains(_absent, {literal(column.name)}), false)"


def exact(column: Column) -> tuple[str, str]:
    """Returns the casts of a value before and after arg_max and arg_min.

    With an order of several numbers DuckDB changes -0.0 to 0.0. The text of a floating point number is exact.
    """
    if column.type.removeprefix("array<").rstrip(">") not in ("float", "double"):
        return "", ""
    text = "VARCHAR[]" if column.type.startswith("array") else "VARCHAR"
    return f"::{text}", f"::{duck_type(column.type)}"


def newest(column: Column, rank: str) -> str:
    """Returns the aggregate of a column's value with the highest rank, null or not; `value_of` reads it."""
    return f"arg_max({{'v': {quote_name(column.name)}{exact(column)[0]}}}, {rank})"


def oldest(column: Column, rank: str) -> str:
    """Returns the same with the lowest rank."""
    return f"arg_min({{'v': {quote_name(column.name)}{exact(column)[0]}}}, {rank})"


def value_of(column: Column, found: str) -> str:
    return f"({found}.v){exact(column)[1]}"


def literal(text: str) -> str:
    """Returns a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def join_base(shape: TableSpec, expressions: Iterable[str], where: str, unresolved: str | None = None) -> str:
    """Returns the query of one pass over the base: every row of it, and every key of `touched`.

    expressions: one for each column other than the key.
    unresolved: comes after all columns.
    """
    key = [f"coalesce(base.{quote_name(n)}, touched.{quote_name(n)}) AS {quote_name(n)}" for n in shape.key]
    names = [c.name for c in shape.table_columns if c.name not in shape.key]
    rest = [f"{one} AS {quote_name(name)}" for name, one in zip(names, expressions, strict=True)]
    ordered = ", ".join(quote_name(column.name) for column in shape.table_columns)
    if unresolved:
        rest.append(f"{unresolved} AS {UNRESOLVED}")
        ordered = f"{ordered}, {UNRESOLVED}"
    found = f"SELECT {', '.join((*key, *rest))} FROM base FULL JOIN touched ON {same_key(shape)} WHERE {where}"
    return f"SELECT {ordered} FROM ({found}) ORDER BY {key_list(shape)}"


def latest(shape: TableSpec, relation: str = "live", columns: str = "*") -> str:
    """Returns the query for the change with the highest position of each key."""
    newest = ", ".join(f"{name} DESC" for name in place_columns(shape))
    return (
        f"SELECT {columns} FROM {relation} "
        f"QUALIFY row_number() OVER (PARTITION BY {key_list(shape)} ORDER BY {newest}) = 1"
    )


# Whether the newest change of a key is an upsert.
IS_UPSERT = f"_op = {UPSERT}"
