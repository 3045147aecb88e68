"""The engines whose rows depend on more than the newest change: partial updates by column, and history.

A column that a change lacks stays as it was: absent is not null.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidefold.changelog.key_group_hash import quote_name
from tidefold.changelog.schema import DELETE, GONE, SAME, THERE, UPSERT
from tidefold.domain.table.table_spec import ORDER, VALID_FROM, VALID_TO, Column, Group, TableSpec
from tidefold.fold.merge.engines.statements import (
    LOWEST,
    TIE,
    Statements,
    hash_values,
    is_said,
    join_base,
    key_list,
    literal,
    newest,
    order_of,
    place,
    select_untouched,
    value_of,
    values,
)


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
    has_base = f"base.{quote_name(shape.key[0])} IS NOT NULL"
    chosen = [_choose_value(i, column, has_base) for i, column in enumerate(values(shape))]
    missing = [
        f"CASE WHEN touched._given > 0 AND touched._v{i} IS NULL AND (touched._gone OR NOT {has_base}) "
        f"THEN {literal(column.name)} END"
        for i, column in enumerate(values(shape))
    ]
    unresolved = f"nullif(concat_ws(', ', {', '.join(missing)}), '')" if required and missing else None
    alive = f"touched._given IS NULL OR touched._given > 0 OR (NOT touched._gone AND {has_base})"
    counts = "SELECT count(*) FILTER (_given > 0), count(*) FILTER (_given = 0) FROM touched"
    rows = join_base(shape, chosen, alive, unresolved)
    hidden = select_untouched(shape) if required else None
    return Statements((("touched", touched),), counts, rows, hidden, marks=unresolved is not None)


def _choose_value(index: int, column: Column, has_base: str) -> str:
    return (
        f"CASE WHEN touched._given IS NULL THEN base.{quote_name(column.name)} "
        f"WHEN touched._v{index} IS NOT NULL THEN {value_of(column, f'touched._v{index}')} "
        f"WHEN NOT touched._gone AND {has_base} THEN base.{quote_name(column.name)} "
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
    changed = (
        f"{value_of(c, f'touched._v{i}')} IS DISTINCT FROM base.{quote_name(c.name)}" for i, c in enumerate(columns)
    )
    tied = " OR ".join([*(f"(touched._t{i} AND {one})" for i, one in enumerate(changed)), "touched._t"])
    tie = None if shape.source_ordered else f"({tied})"
    rows = join_base(shape, chosen, "touched._there IS NULL OR touched._there", tie=tie)
    counts = "SELECT count(*) FILTER (_there), count(*) FILTER (NOT _there) FROM touched"
    recent = "" if horizon is None else f" AND (_column <> '{GONE}' OR _order[1] >= {horizon})"
    marks = [(GONE, "_d", "true"), (THERE, "_p", "_there")]
    marks += [(c.name, f"_o{i}", f"(_n{i} OR _k{i})") for i, c in enumerate(columns)]
    parts = [
        f"SELECT {key}, {literal(name)} AS _column, {at} AS _order FROM touched WHERE {when} AND {at} IS NOT NULL"
        for name, at, when in marks
    ]
    hidden = (
        f"SELECT * FROM (SELECT {key}, _column, _order FROM hidden ANTI JOIN touched USING ({key}) "
        f"UNION ALL {' UNION ALL '.join(parts)}) WHERE true{recent} ORDER BY {key}, _column"
    )
    return Statements(tables, counts, rows, hidden, marks=tie is not None)


def _rank(shape: TableSpec, group: Group | None) -> str:
    """Returns the expression that orders the values of a column; null if the change does not count for it."""
    if group is None or not group.order:
        return place(shape)
    types = {column.name: column.type for column in shape.columns}
    numbers = [as_number(quote_name(name), types[name]) for name in group.order]
    ordered = " AND ".join(f"{quote_name(name)} IS NOT NULL" for name in group.order)
    return f"CASE WHEN {ordered} THEN list_concat([{', '.join(numbers)}], {place(shape)}) END"


def as_number(expression: str, type_: str) -> str:
    """Returns an order column as a whole number to compare."""
    if type_ == "date":
        return f"({expression} - DATE '1970-01-01')::BIGINT"
    return f"epoch_us({expression})" if type_ == "timestamp" else f"{expression}::BIGINT"


def _select_kept(shape: TableSpec) -> str:
    """Selects the sidecar of the keys that have changes, one row for each key."""
    key = key_list(shape)
    kept = "".join(f", max(_order) FILTER (_column = {literal(c.name)}) AS _h{i}" for i, c in enumerate(values(shape)))
    marks = f"max(_order) FILTER (_column = '{GONE}') AS _d, max(_order) FILTER (_column = '{THERE}') AS _p"
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
        parts += f", {_same_order(f'given._o{i}', f'kept._h{i}')} AS _t{i}"
    seen = "greatest(given._p, kept._p)"
    # A delete at the order of the newest value.
    tie = _same_order("given._d", "kept._p")
    parts += f", {tie} AS _t, coalesce(given._p, given._d) AS _place"
    return (
        f"SELECT {key_list(shape, 'given.')}, greatest(given._d, kept._d) AS _d, {seen} AS _p, {gone} AS _gone, "
        f"coalesce({seen} > _gone, false) AS _there{parts} FROM given LEFT JOIN kept USING ({key})"
    )


def _same_order(one: str, other: str) -> str:
    """Returns the condition that two places have the same order: they differ at most in their last two numbers."""
    return f"coalesce({one}[1:len({one}) - 2] = {other}[1:len({other}) - 2], false)"


# The versions and the deletes of a key are points on a line, and a version is valid until the next point. So a late
# change splits the right interval, whenever it arrives.


def history(shape: TableSpec, horizon: int | None) -> Statements:
    """Returns the statements. The sidecar keeps the deletes that end a version, and all others until the horizon."""
    key = key_list(shape)
    line = f"PARTITION BY {key} ORDER BY _place"
    source, tables = _select_versions(shape), list[tuple[str, str]]()
    if shape.orders_by_file:
        tables.append(("versions", f"SELECT *, {_is_same(shape, line)} AS _same FROM ({source})"))
        source = "SELECT * FROM versions WHERE NOT _same"
    points = (
        f"SELECT *, lead(_from) OVER ({line}) AS _until, lag(_op) OVER ({line}) AS _before "
        f"FROM (SELECT * REPLACE (max(_from) OVER ({line} ROWS UNBOUNDED PRECEDING) AS _from) FROM ({source}))"
    )
    tables.append(("points", points))
    columns = ", ".join(quote_name(column.name) for column in shape.columns)
    rows = (
        f"SELECT {columns}, _place AS {ORDER}, _from AS {VALID_FROM}, _until AS {VALID_TO} FROM points "
        f"WHERE _op = {UPSERT} ORDER BY {key}, _place"
    )
    recent = "false" if shape.source_ordered else "true" if horizon is None else f"_place[1] >= {horizon}"
    hidden = (
        f"SELECT {key}, '' AS _column, _place AS _order, _from AS _at FROM points "
        f"WHERE _op = {DELETE} AND (_before = {UPSERT} OR {recent}) "
    )
    if shape.orders_by_file:
        hidden += f"UNION ALL SELECT {key}, '{SAME}', _place, _from FROM versions WHERE _same AND {recent} "
    counts = f"SELECT count(*) FILTER (_op = {UPSERT}), count(*) FILTER (_op = {DELETE}) FROM live"
    return Statements(tuple(tables), counts, rows, f"{hidden} ORDER BY {key}, _order")


def _select_versions(shape: TableSpec) -> str:
    """Selects each point once. At equal order the later place counts."""
    line = f"PARTITION BY {key_list(shape)}, {order_of(shape, '_place') if shape.order_width else '_place'}"
    line += " ORDER BY _place DESC, _op"
    tie = "false"
    if not shape.source_ordered:
        content = f"CASE _op WHEN {DELETE} THEN hash(_op) ELSE {hash_values(shape, '_op')} END"
        every = f"OVER ({line} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"
        tie = f"min({content}) {every} <> max({content}) {every}"
    return f"SELECT *, {tie} AS {TIE} FROM ({_select_all(shape)}) QUALIFY row_number() OVER ({line}) = 1"


def _is_same(shape: TableSpec, line: str) -> str:
    """Returns whether a version equals the one before. A file may bring each row again, with an order of its own."""
    both = [f"lag({name}) OVER ({line}) IS NOT DISTINCT FROM {name}" for name in _list_values(shape)]
    return " AND ".join([f"_op = {UPSERT} AND coalesce(lag(_op) OVER ({line}) = {UPSERT}, false)", *both])


def _list_values(shape: TableSpec) -> list[str]:
    return [quote_name(column.name) for column in values(shape)]


def _select_all(shape: TableSpec) -> str:
    """Selects all points of all keys. A clear deletes all keys."""
    key, rest = key_list(shape), _list_values(shape)
    listed = "".join(f", {name}" for name in rest)
    nothing = "".join(f", NULL AS {name}" for name in rest)
    every = (
        f"SELECT {key}, _op::TINYINT AS _op, {place(shape)} AS _place, {_instant(shape)} AS _from{listed} FROM live "
        f"UNION ALL {_select_stored(shape)}"
    )
    begins = " AND ".join(
        f"(clears.{quote_name(n)} IS NULL OR clears.{quote_name(n)} = every.{quote_name(n)})" for n in shape.spread_key
    )
    cleared = (
        f"SELECT DISTINCT {key_list(shape, 'every.')}, {DELETE}, clears._place, {_instant(shape)}{nothing} "
        f"FROM every JOIN clears ON {begins}"
    )
    return f"WITH every AS MATERIALIZED ({every}) SELECT * FROM every UNION ALL {cleared}"


def _select_stored(shape: TableSpec) -> str:
    """Selects the versions and the deletes of the base, with the values of versions that equal the one before."""
    key, rest = key_list(shape), _list_values(shape)
    listed = "".join(f", {name}" for name in rest)
    nothing = "".join(f", NULL AS {name}" for name in rest)
    rows = f"SELECT {key}, {UPSERT} AS _op, {ORDER} AS _place, {VALID_FROM} AS _from{listed}"
    if not shape.orders_by_file:
        return f"{rows} FROM base UNION ALL SELECT {key}, {DELETE}, _order, _at{nothing} FROM hidden"
    before = f"OVER (PARTITION BY {key} ORDER BY _place ROWS UNBOUNDED PRECEDING)"
    same = "".join(f", CASE WHEN _again THEN (_values).v{i} ELSE {name} END AS {name}" for i, name in enumerate(rest))
    content = ", ".join([f"'v': {UPSERT}", *(f"'v{i}': {name}" for i, name in enumerate(rest))])
    stored = (
        f"{rows}, false AS _again FROM base UNION ALL SELECT {key}, CASE WHEN _column = '{SAME}' THEN {UPSERT} "
        f"ELSE {DELETE} END, _order, _at{nothing}, _column = '{SAME}' FROM hidden"
    )
    kept = f"CASE WHEN _op = {UPSERT} AND NOT _again THEN {{{content}}} END"
    filled = f"SELECT *, last_value({kept} IGNORE NULLS) {before} AS _values FROM ({stored})"
    return f"SELECT {key}, _op, _place, _from{same} FROM ({filled}) WHERE NOT _again OR _values IS NOT NULL"


def _instant(shape: TableSpec) -> str:
    """Returns the start of a version's validity: the one column that orders the log, else the commit time."""
    types = {column.name: column.type for column in shape.columns}
    if len(shape.column_order) != 1:
        return "make_timestamptz(_ts)"
    type_ = types[shape.column_order[0]]
    if type_ == "timestamp":
        return "make_timestamptz(_o0)"
    return (
        "(DATE '1970-01-01' + _o0::INTEGER)" if type_ == "date" else f"_o0::{ {'int': 'INTEGER'}.get(type_, 'BIGINT') }"
    )
