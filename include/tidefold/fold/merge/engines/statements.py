"""The statements that each merge engine gives to DuckDB, and the expressions that the engines share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidefold.changelog.key_group_hash import quote_name
from tidefold.changelog.schema import DELETE, MERGE, UPSERT, order_columns, place_columns
from tidefold.domain.table.table_spec import ORDER, Column, TableSpec

# DuckDB's names of the types of columns.
_TYPES = {
    "boolean": "BOOLEAN", "int": "INTEGER", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE",
    "string": "VARCHAR", "date": "DATE", "timestamp": "TIMESTAMPTZ", "binary": "BLOB",
}  # fmt: skip
# The column next to a row with the names of columns whose value was not sent, and is in no former row; else null.
UNRESOLVED = "_unresolved"
# The order of a change and the row of the base that are equal in order and differ; else null. A marked row that is no
# part of the table has no ALIVE.
TIE, ALIVE = "_tie", "_alive"
# The place of a row without a place: below all others.
LOWEST = "[]::BIGINT[]"
# Whether the newest change of a key is an upsert.
IS_UPSERT = f"_op = {UPSERT}"
_COUNTS = f"SELECT count(*) FILTER (_op = {UPSERT}), count(*) FILTER (_op = {DELETE}) FROM touched"


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements of a fold.

    tables: name and query of tables to make first, in this order.
    counts: returns the rows that changes bring, and the keys that they delete.
    rows: returns the rows of the table, in the order of the key.
    hidden: returns the sidecar, if there is one.
    marks: the rows have columns with marks after those of the table.
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


def hash_values(shape: TableSpec, *more: str) -> str:
    """Returns a hash of the values of a row. Of an array its text: DuckDB's hash of `[]` is that of null."""
    names = [quote_name(c.name) + ("::VARCHAR" if c.type.startswith("array<") else "") for c in values(shape)]
    return f"hash({', '.join([*more, *names])})"


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


def value_of(column: Column, value: str) -> str:
    return f"({value}.v){exact(column)[1]}"


def literal(text: str) -> str:
    """Returns a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def join_base(
    shape: TableSpec, expressions: Iterable[str], where: str, unresolved: str | None = None, tie: str | None = None
) -> str:
    """Returns the query of one pass over the base: every row of it, and every key of `touched`.

    expressions: one for each column other than the key.
    unresolved: comes after all columns.
    tie: whether the change and the row of the base have one order and differ; `touched._place` is the order.
    """
    key = [f"coalesce(base.{quote_name(n)}, touched.{quote_name(n)}) AS {quote_name(n)}" for n in shape.key]
    names = [c.name for c in shape.table_columns if c.name not in shape.key]
    rest = [f"{one} AS {quote_name(name)}" for name, one in zip(names, expressions, strict=True)]
    ordered = ", ".join(quote_name(column.name) for column in shape.table_columns)
    if unresolved:
        rest.append(f"{unresolved} AS {UNRESOLVED}")
        ordered = f"{ordered}, {UNRESOLVED}"
    if tie:
        tie = f"(touched._place IS NOT NULL AND {tie} AND {_is_untied(shape)})"
        rest += [f"CASE WHEN {tie} THEN touched._place END AS {TIE}", f"({where}) AS {ALIVE}"]
        ordered, where = f"{ordered}, {TIE}, {ALIVE}", f"({where}) OR {tie}"
    joined = f"SELECT {', '.join((*key, *rest))} FROM base FULL JOIN touched ON {same_key(shape)} WHERE {where}"
    return f"SELECT {ordered} FROM ({joined}) ORDER BY {key_list(shape)}"


def order_of(shape: TableSpec, place: str) -> str:
    """Returns the order in a place."""
    return f"{place}[1:{shape.order_width}]"


def _is_untied(shape: TableSpec) -> str:
    """Returns the condition that the key of `touched` has no tie that was counted already."""
    same = " AND ".join(f"tied.{quote_name(name)} = touched.{quote_name(name)}" for name in shape.key)
    return f"NOT EXISTS (SELECT 1 FROM tied WHERE {same})"


def differs(shape: TableSpec, pairs: Iterable[tuple[str, str]]) -> str:
    """Returns the condition that the order of a change is that of the base's row, and that some value differs."""
    unequal = " OR ".join(f"{one} IS DISTINCT FROM {other}" for one, other in pairs) or "false"
    return f"{order_of(shape, f'base.{ORDER}')} = {order_of(shape, 'touched._place')} AND ({unequal})"


def latest(shape: TableSpec, relation: str = "live") -> str:
    """Returns the query for the change with the highest position of each key."""
    newest = ", ".join(f"{name} DESC" for name in place_columns(shape))
    return f"SELECT * FROM {relation} QUALIFY row_number() OVER (PARTITION BY {key_list(shape)} ORDER BY {newest}) = 1"


def append(shape: TableSpec) -> Statements:
    columns = ", ".join(quote_name(column.name) for column in shape.columns)
    newest = ", ".join(place_columns(shape))
    rows = f"SELECT {columns} FROM base UNION ALL SELECT {columns} FROM (SELECT * FROM live ORDER BY {newest})"
    return Statements((), "SELECT count(*), 0 FROM live", rows)


def first(shape: TableSpec) -> Statements:
    """Returns the statements. In a log's own order the existing row came first.

    In a log that columns order, the sidecar keeps the order of rows, and nothing is deleted.
    """
    key, here = key_list(shape), place(shape)
    deleted = f"max(CASE WHEN _op = {DELETE} THEN {here} END) OVER (PARTITION BY {key})"
    counted = f"_op = {UPSERT} AND (_deleted IS NULL OR {here} > _deleted)"
    taken = "".join(f", {oldest(c, here)} FILTER ({counted}) AS _v{i}" for i, c in enumerate(values(shape)))
    touched = (
        f"SELECT {key}, any_value(_deleted) IS NOT NULL AS _gone, min({here}) FILTER ({counted}) AS _place{taken} "
        f"FROM (SELECT *, {deleted} AS _deleted FROM live) GROUP BY {key}"
    )
    has_base = f"base.{quote_name(shape.key[0])} IS NOT NULL"
    stays = f"({has_base} AND (touched._gone IS NULL OR (NOT touched._gone AND {_came_first(shape)})))"
    chosen = [
        f"CASE WHEN {stays} THEN base.{quote_name(c.name)} ELSE {value_of(c, f'touched._v{i}')} END"
        for i, c in enumerate(values(shape))
    ]
    counts = "SELECT count(*) FILTER (_place IS NOT NULL), count(*) FILTER (_place IS NULL) FROM touched"
    tie = None
    if shape.stores_order:
        chosen.append(f"CASE WHEN {stays} THEN base.{ORDER} ELSE touched._place END")
        pairs = [(value_of(c, f"touched._v{i}"), f"base.{quote_name(c.name)}") for i, c in enumerate(values(shape))]
        tie = differs(shape, pairs)
    rows = join_base(shape, chosen, f"{stays} OR touched._place IS NOT NULL", tie=tie)
    return Statements((("touched", touched),), counts, rows, marks=tie is not None)


def _came_first(shape: TableSpec) -> str:
    return "true" if shape.source_ordered else f"base.{ORDER} <= touched._place"


def last(shape: TableSpec) -> Statements:
    """Returns the statements. In a log's own order every change is newer than the existing row."""
    columns, key = ", ".join(quote_name(column.name) for column in shape.columns), key_list(shape)
    # Keys are never null (ingest refuses them), so a plain anti join compares them rightly.
    rows = (
        f"SELECT {columns} FROM base ANTI JOIN touched USING ({key}) "
        f"UNION ALL SELECT {columns} FROM touched WHERE {IS_UPSERT} ORDER BY {key}"
    )
    return Statements((("touched", latest(shape)),), _COUNTS, rows, select_untouched(shape))


def select_untouched(shape: TableSpec) -> str:
    """Returns the query for the keys that were left out and have no change now."""
    return f"SELECT * FROM hidden ANTI JOIN touched USING ({key_list(shape)}) ORDER BY {key_list(shape)}"


def last_by_columns(shape: TableSpec, horizon: int | None) -> Statements:
    """Returns the statements. For late changes, the sidecar keeps each row's order and each deleted key's tombstone."""
    columns, key = ", ".join(quote_name(column.name) for column in values(shape)), key_list(shape)
    rest = f", {columns}" if columns else ""
    nothing = "".join(f", NULL AS {quote_name(column.name)}" for column in values(shape))
    candidates = (
        f"SELECT {key}, _op, {place(shape)} AS _place, true AS _is_change{rest} FROM live "
        f"UNION ALL SELECT {key}, {DELETE}, _order, false{nothing} FROM hidden SEMI JOIN live USING ({key})"
    )
    touched = (
        f"SELECT * FROM ({candidates}) QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY _place DESC, _op) = 1"
    )
    stays = f"coalesce(base.{ORDER} >= touched._place, touched._place IS NULL)"
    chosen = [
        f"CASE WHEN {stays} THEN base.{n} ELSE touched.{n} END" for n in (quote_name(c.name) for c in values(shape))
    ]
    chosen.append(f"CASE WHEN {stays} THEN base.{ORDER} ELSE touched._place END")
    named = [quote_name(column.name) for column in values(shape)]
    tie = differs(shape, [(f"touched.{IS_UPSERT}", "true"), *((f"touched.{n}", f"base.{n}") for n in named)])
    # A tombstone may be older than the row: the fold that brought the delete counted that tie.
    rows = join_base(shape, chosen, f"{stays} OR touched.{IS_UPSERT}", tie=f"touched._is_change AND {tie}")
    recent = "" if horizon is None else f" WHERE _order[1] >= {horizon}"
    hidden = (
        f"SELECT * FROM (SELECT {key}, '' AS _column, _order FROM hidden ANTI JOIN touched USING ({key}) "
        f"UNION ALL SELECT {key}, '', _place FROM touched WHERE _op = {DELETE}){recent} ORDER BY {key}"
    )
    return Statements((("touched", touched),), _COUNTS, rows, hidden, marks=True)


# A set or a delete (in a log's own order) starts the row again, and later values count from there.
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
