"""Partial updates: each column has its last given value since the row was last deleted.

A column that a change lacks stays as it was: absent is not null.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidefold.changelog.key_group_hash import quote_name
from tidefold.changelog.schema import DELETE
from tidefold.domain.table.table_spec import Column, Group, TableSpec
from tidefold.fold.merge.engines.statements import (
    LOWEST,
    Statements,
    is_said,
    join_base,
    key_list,
    literal,
    newest,
    place,
    value_of,
    values,
)

# Two names in the sidecar besides those of columns: for the row's deletion, and for its existence.
_GONE, _THERE = "", "+"


def partial(shape: TableSpec, *, required: bool = False) -> Statements:
    """Returns the statements. In a log's own order every change is newer than the existing row.

    required: an absent value must have a former one (the source did not repeat it), or the row is marked as unresolved.
    Otherwise an absent value is null.
    """
    key, here = key_list(shape), place(shape)
    counted = f"_op <> {DELETE} AND (_deleted IS NULL OR {here} > _deleted)"
    taken = "".join(
        f", {newest(c, here)} FILTER ({counted} AND {is_said(c)}) AS _v{i}" for i, c in enumerate(values(shape))
    )
    deleted = f"max(CASE WHEN _op = {DELETE} THEN {here} END) OVER (PARTITION BY {key})"
    touched = (
        f"SELECT {key}, any_value(_deleted) IS NOT NULL AS _gone, count(*) FILTER ({counted}) AS _given{taken} "
        f"FROM (SELECT *, {deleted} AS _deleted FROM live) GROUP BY {key}"
    )
    there = f"base.{quote_name(shape.key[0])} IS NOT NULL"
    chosen = [_choose_value(i, column, there) for i, column in enumerate(values(shape))]
    missing = [
        f"CASE WHEN touched._given > 0 AND touched._v{i} IS NULL AND (touched._gone OR NOT {there}) "
        f"THEN {literal(column.name)} END"
        for i, column in enumerate(values(shape))
    ]
    unresolved = f"nullif(concat_ws(', ', {', '.join(missing)}), '')" if required and missing else None
    alive = f"touched._given IS NULL OR touched._given > 0 OR (NOT touched._gone AND {there})"
    counts = "SELECT count(*) FILTER (_given > 0), count(*) FILTER (_given = 0) FROM touched"
    rows = join_base(shape, chosen, alive, unresolved)
    return Statements((("touched", touched),), counts, rows, marks=unresolved is not None)


def _choose_value(index: int, column: Column, there: str) -> str:
    return (
        f"CASE WHEN touched._given IS NULL THEN base.{quote_name(column.name)} "
        f"WHEN touched._v{index} IS NOT NULL THEN {value_of(column, f'touched._v{index}')} "
        f"WHEN NOT touched._gone AND {there} THEN base.{quote_name(column.name)} "
        "ELSE NULL END"
    )


def partial_by_columns(shape: TableSpec, horizon: int | None) -> Statements:
    """Returns the statements. The sidecar keeps deletes, and for each column the order of the change that set it."""
    key, own = key_list(shape), {name: group for group in shape.merge.groups for name in group.columns}
    columns = values(shape)
    ranks = {c.name: _rank(shape, own.get(c.name)) for c in columns}
    tables = (
        ("kept", _select_kept(shape)),
        ("given", _select_given(shape, ranks)),
        ("touched", _select_merged(shape)),
    )
    chosen = [
        f"CASE WHEN touched._there IS NULL THEN base.{quote_name(c.name)} "
        f"WHEN touched._n{i} THEN {value_of(c, f'touched._v{i}')} "
        f"WHEN touched._k{i} THEN base.{quote_name(c.name)} END"
        for i, c in enumerate(columns)
    ]
    rows = join_base(shape, chosen, "touched._there IS NULL OR touched._there")
    counts = "SELECT count(*) FILTER (_there), count(*) FILTER (NOT _there) FROM touched"
    recent = "" if horizon is None else f" AND (_column <> '{_GONE}' OR _order[1] >= {horizon})"
    marks = [(_GONE, "_d", "true"), (_THERE, "_p", "_there")]
    marks += [(c.name, f"_o{i}", f"(_n{i} OR _k{i})") for i, c in enumerate(columns)]
    parts = [
        f"SELECT {key}, {literal(name)} AS _column, {at} AS _order FROM touched WHERE {when} AND {at} IS NOT NULL"
        for name, at, when in marks
    ]
    hidden = (
        f"SELECT * FROM (SELECT {key}, _column, _order FROM hidden ANTI JOIN touched USING ({key}) "
        f"UNION ALL {' UNION ALL '.join(parts)}) WHERE true{recent} ORDER BY {key}, _column"
    )
    return Statements(tables, counts, rows, hidden)


def _rank(shape: TableSpec, group: Group | None) -> str:
    """Returns the expression that orders the values of a column; null if the change does not count for it."""
    if group is None or not group.order:
        return place(shape)
    types = {column.name: column.type for column in shape.columns}
    numbers = [as_number(quote_name(name), types[name]) for name in group.order]
    given = " AND ".join(f"{quote_name(name)} IS NOT NULL" for name in group.order)
    return f"CASE WHEN {given} THEN list_concat([{', '.join(numbers)}], {place(shape)}) END"


def as_number(expression: str, type_: str) -> str:
    """Returns an order column as a whole number to compare."""
    if type_ == "date":
        return f"({expression} - DATE '1970-01-01')::BIGINT"
    return f"epoch_us({expression})" if type_ == "timestamp" else f"{expression}::BIGINT"


def _select_kept(shape: TableSpec) -> str:
    """Selects the sidecar of the keys that have changes, one row for each key."""
    key = key_list(shape)
    kept = "".join(f", max(_order) FILTER (_column = {literal(c.name)}) AS _h{i}" for i, c in enumerate(values(shape)))
    marks = f"max(_order) FILTER (_column = '{_GONE}') AS _d, max(_order) FILTER (_column = '{_THERE}') AS _p"
    return f"SELECT {key}, {marks}{kept} FROM hidden SEMI JOIN live USING ({key}) GROUP BY {key}"


def _select_given(shape: TableSpec, ranks: Mapping[str, str]) -> str:
    """Selects the values of the changes, one row for each key."""
    key = key_list(shape)
    taken = ""
    for i, column in enumerate(values(shape)):
        rank = ranks[column.name]
        when = f"FILTER (_op <> {DELETE} AND {is_said(column)} AND {rank} IS NOT NULL)"
        taken += f", {newest(column, rank)} {when} AS _v{i}, max({rank}) {when} AS _o{i}"
    marks = f"max({place(shape)}) FILTER (_op = {DELETE}) AS _d, max({place(shape)}) FILTER (_op <> {DELETE}) AS _p"
    return f"SELECT {key}, {marks}{taken} FROM live GROUP BY {key}"


def _select_merged(shape: TableSpec) -> str:
    """Selects for each column whether the new value (`_n`) or the existing one (`_k`) counts, and its order."""
    key = key_list(shape)
    gone = f"coalesce(greatest(given._d, kept._d), {LOWEST})"
    own = {name for group in shape.merge.groups if group.order for name in group.columns}
    parts = ""
    for i, column in enumerate(values(shape)):
        # Deletes do not count for a group with its own order, because they have no place in that order.
        floor = LOWEST if column.name in own else "_gone"
        new = f"coalesce(given._o{i} > {floor} AND given._o{i} >= coalesce(kept._h{i}, {LOWEST}), false)"
        parts += f", {new} AS _n{i}, NOT {new} AND coalesce(kept._h{i} > {floor}, false) AS _k{i}"
        parts += f", greatest(given._o{i}, kept._h{i}) AS _o{i}, given._v{i} AS _v{i}"
    seen = "greatest(given._p, kept._p)"
    return (
        f"SELECT {key_list(shape, 'given.')}, greatest(given._d, kept._d) AS _d, {seen} AS _p, {gone} AS _gone, "
        f"coalesce({seen} > _gone, false) AS _there{parts} FROM given LEFT JOIN kept USING ({key})"
    )
