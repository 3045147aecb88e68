"""Last wins: the change with the highest position decides whether the key has a row, and which."""

from __future__ import annotations

from tidefold.changelog.key_group_hash import quote_name
from tidefold.changelog.schema import DELETE, UPSERT
from tidefold.domain.table.table_spec import ORDER, TableSpec
from tidefold.fold.merge.engines.statements import IS_UPSERT, Statements, join_base, key_list, latest, place, values

_COUNTS = f"SELECT count(*) FILTER (_op = {UPSERT}), count(*) FILTER (_op = {DELETE}) FROM touched"


def last(shape: TableSpec) -> Statements:
    """Returns the statements. In a log's own order every change is newer than the existing row."""
    columns, key = ", ".join(quote_name(column.name) for column in shape.columns), key_list(shape)
    # Keys are never null (ingest refuses them), so a plain anti join compares them rightly.
    rows = (
        f"SELECT {columns} FROM base ANTI JOIN touched USING ({key}) "
        f"UNION ALL SELECT {columns} FROM touched WHERE {IS_UPSERT} ORDER BY {key}"
    )
    return Statements((("touched", latest(shape)),), _COUNTS, rows)


def last_by_columns(shape: TableSpec, horizon: int | None) -> Statements:
    """Returns the statements. For late changes, the sidecar keeps each row's order and each deleted key's tombstone."""
    columns, key = ", ".join(quote_name(column.name) for column in values(shape)), key_list(shape)
    rest = f", {columns}" if columns else ""
    nothing = "".join(f", NULL AS {quote_name(column.name)}" for column in values(shape))
    candidates = (
        f"SELECT {key}, _op, {place(shape)} AS _place{rest} FROM live "
        f"UNION ALL SELECT {key}, {DELETE}, _order{nothing} FROM hidden SEMI JOIN live USING ({key})"
    )
    touched = (
        f"SELECT * FROM ({candidates}) QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY _place DESC, _op) = 1"
    )
    stays = f"coalesce(base.{ORDER} >= touched._place, touched._place IS NULL)"
    chosen = [
        f"CASE WHEN {stays} THEN base.{n} ELSE touched.{n} END" for n in (quote_name(c.name) for c in values(shape))
    ]
    chosen.append(f"CASE WHEN {stays} THEN base.{ORDER} ELSE touched._place END")
    rows = join_base(shape, chosen, f"{stays} OR touched.{IS_UPSERT}")
    recent = "" if horizon is None else f" WHERE _order[1] >= {horizon}"
    hidden = (
        f"SELECT * FROM (SELECT {key}, '' AS _column, _order FROM hidden ANTI JOIN touched USING ({key}) "
        f"UNION ALL SELECT {key}, '', _place FROM touched WHERE _op = {DELETE}){recent} ORDER BY {key}"
    )
    return Statements((("touched", touched),), _COUNTS, rows, hidden)
