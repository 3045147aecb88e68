"""Aggregates: a named function for each column merges the values of the changes into the row (requirement S3).

A set or a delete (in a log's own order) starts the row again, and later values count from there.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidefold.changelog.key_group_hash import quote_name
from tidefold.changelog.schema import MERGE, UPSERT
from tidefold.domain.table.table_spec import Column, TableSpec
from tidefold.fold.merge.engines.statements import (
    Statements,
    duck_type,
    exact,
    is_said,
    join_base,
    key_list,
    newest,
    place,
    value_of,
    values,
)


@dataclass(frozen=True, slots=True)
class _Function:
    """One function as SQL.

    gather: an aggregate of `{x}` over the changes that `{kept}` chooses, by their position `{p}`.
    add: merges that (`{b}`) and the value before (`{a}`), neither null.
    """

    gather: str
    add: str


_FUNCTIONS = {
    "sum": _Function("sum({x}) {kept}", "{a} + {b}"),
    "product": _Function("product({x}) {kept}", "{a} * {b}"),
    "min": _Function("min({x}) {kept}", "least({a}, {b})"),
    "max": _Function("max({x}) {kept}", "greatest({a}, {b})"),
    "count": _Function("nullif(count({x}) {kept}, 0)", "{a} + {b}"),
    "bool_and": _Function("bool_and({x}) {kept}", "{a} AND {b}"),
    "bool_or": _Function("bool_or({x}) {kept}", "{a} OR {b}"),
    "first": _Function("arg_min({x}, {p}) {kept}", "{a}"),
    "last": _Function("arg_max({x}, {p}) {kept}", "{b}"),
    "list": _Function("flatten(list({x} ORDER BY {p}) {kept})", "list_concat({a}, {b})"),
}


def aggregate(shape: TableSpec) -> Statements:
    """Returns the statements. A null is never added. A column without a function has its last given value."""
    key, here, functions = key_list(shape), place(shape), dict(shape.merge.aggregates)
    added = f"_op = {MERGE} AND (_begun IS NULL OR {here} > _begun)"
    parts = ""
    for i, column in enumerate(values(shape)):
        parts += f", {newest(column, here)} FILTER (_op = {UPSERT} AND {here} = _begun) AS _s{i}"
        parts += f", {_gather_value(column, functions, here, added)} AS _v{i}"
    begun = f"max(CASE WHEN _op <> {MERGE} THEN {here} END) OVER (PARTITION BY {key})"
    touched = (
        f"SELECT {key}, any_value(_begun) IS NOT NULL AS _anew, count(*) FILTER ({added}) "
        f"+ count(*) FILTER (_op = {UPSERT} AND {here} = _begun) AS _given{parts} "
        f"FROM (SELECT *, {begun} AS _begun FROM live) GROUP BY {key}"
    )
    chosen = [_choose_value(i, column, functions) for i, column in enumerate(values(shape))]
    counts = "SELECT count(*) FILTER (_given > 0), count(*) FILTER (_given = 0) FROM touched"
    alive = "touched._given IS NULL OR touched._given > 0"
    return Statements((("touched", touched),), counts, join_base(shape, chosen, alive))


def _gather_value(column: Column, functions: dict[str, str], here: str, added: str) -> str:
    name, counted = quote_name(column.name), f"{added} AND {is_said(column)}"
    if column.name not in functions:
        return f"{newest(column, here)} FILTER ({counted})"
    kept = f"FILTER ({counted} AND {name} IS NOT NULL)"
    gather = _FUNCTIONS[functions[column.name]].gather
    text, back = exact(column) if functions[column.name] in ("first", "last") else ("", "")
    return f"({gather.format(x=f'{name}{text}', p=here, kept=kept)}){back}"


def _choose_value(index: int, column: Column, functions: dict[str, str]) -> str:
    base, gathered = f"base.{quote_name(column.name)}", f"touched._v{index}"
    before = f"CASE WHEN touched._anew THEN {value_of(column, f'touched._s{index}')} ELSE {base} END"
    if column.name not in functions:
        value = f"CASE WHEN {gathered} IS NOT NULL THEN {value_of(column, gathered)} ELSE {before} END"
    else:
        both = _FUNCTIONS[functions[column.name]].add.format(a=f"({before})", b=gathered)
        value = f"CASE WHEN {gathered} IS NULL THEN {before} WHEN ({before}) IS NULL THEN {gathered} ELSE {both} END"
    return f"CASE WHEN touched._given IS NULL THEN {base} ELSE ({value})::{duck_type(column.type)} END"
