"""History: every change is a version of its row, valid until the next change of its key (slowly changing, type 2).

The versions and the deletes of a key are points on a line, and a version is valid until the next point. So a late
change splits the right interval, whenever it arrives.
"""

from __future__ import annotations

from tidefold.changelog.key_group_hash import quote_name
from tidefold.changelog.schema import DELETE, UPSERT
from tidefold.domain.table.table_spec import ORDER, VALID_FROM, VALID_TO, TableSpec
from tidefold.fold.merge.engines.statements import Statements, key_list, place, values


def history(shape: TableSpec, horizon: int | None) -> Statements:
    """Returns the statements. The sidecar keeps the deletes that end a version, and all others until the horizon."""
    key = key_list(shape)
    line = f"PARTITION BY {key} ORDER BY _place"
    points = (
        f"SELECT *, lead(_from) OVER ({line}) AS _until, lag(_op) OVER ({line}) AS _before "
        f"FROM (SELECT * REPLACE (max(_from) OVER ({line} ROWS UNBOUNDED PRECEDING) AS _from) FROM ({_points(shape)}))"
    )
    columns = ", ".join(quote_name(column.name) for column in shape.columns)
    rows = (
        f"SELECT {columns}, _place AS {ORDER}, _from AS {VALID_FROM}, _until AS {VALID_TO} FROM points "
        f"WHERE _op = {UPSERT} ORDER BY {key}, _place"
    )
    recent = "false" if shape.source_ordered else "true" if horizon is None else f"_place[1] >= {horizon}"
    hidden = (
        f"SELECT {key}, '' AS _column, _place AS _order, _from AS _at FROM points "
        f"WHERE _op = {DELETE} AND (_before = {UPSERT} OR {recent}) ORDER BY {key}, _place"
    )
    counts = f"SELECT count(*) FILTER (_op = {UPSERT}), count(*) FILTER (_op = {DELETE}) FROM live"
    return Statements((("points", points),), counts, rows, hidden)


def _points(shape: TableSpec) -> str:
    """Selects all points of all keys, each once. At equal order the later position counts. A clear deletes all keys."""
    key, rest = key_list(shape), [quote_name(column.name) for column in values(shape)]
    given = "".join(f", {name}" for name in rest)
    nothing = "".join(f", NULL AS {name}" for name in rest)
    every = (
        f"SELECT {key}, _op::TINYINT AS _op, {place(shape)} AS _place, {_instant(shape)} AS _from{given} FROM live "
        f"UNION ALL SELECT {key}, {UPSERT}, {ORDER}, {VALID_FROM}{given} FROM base "
        f"UNION ALL SELECT {key}, {DELETE}, _order, _at{nothing} FROM hidden"
    )
    begins = " AND ".join(
        f"(clears.{quote_name(n)} IS NULL OR clears.{quote_name(n)} = every.{quote_name(n)})" for n in shape.spread_key
    )
    cleared = (
        f"SELECT DISTINCT {key_list(shape, 'every.')}, {DELETE}, clears._place, {_instant(shape)}{nothing} "
        f"FROM every JOIN clears ON {begins}"
    )
    every = f"WITH every AS MATERIALIZED ({every}) SELECT * FROM every UNION ALL {cleared}"
    width = shape.order_width
    same = f"_place[1:{width}]" if width else "_place"
    return (
        f"SELECT * FROM ({every}) QUALIFY row_number() OVER (PARTITION BY {key}, {same} ORDER BY _place DESC, _op) = 1"
    )


def _instant(shape: TableSpec) -> str:
    """Returns the start of a version's validity: the one column that orders the log, else the commit time."""
    types = {column.name: column.type for column in shape.columns}
    if len(shape.order_by) != 1:
        return "make_timestamptz(_ts)"
    type_ = types[shape.order_by[0]]
    if type_ == "timestamp":
        return "make_timestamptz(_o0)"
    return (
        "(DATE '1970-01-01' + _o0::INTEGER)" if type_ == "date" else f"_o0::{ {'int': 'INTEGER'}.get(type_, 'BIGINT') }"
    )
