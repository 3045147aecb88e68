"""Tables without a key: every change is a row."""

from __future__ import annotations

from tidefold.changelog.key_group_hash import quote_name
from tidefold.changelog.schema import place_columns
from tidefold.domain.table.table_spec import TableSpec
from tidefold.fold.merge.engines.statements import Statements


def append(shape: TableSpec) -> Statements:
    columns = ", ".join(quote_name(column.name) for column in shape.columns)
    newest = ", ".join(place_columns(shape))
    rows = f"SELECT {columns} FROM base UNION ALL SELECT {columns} FROM (SELECT * FROM live ORDER BY {newest})"
    return Statements((), "SELECT count(*), 0 FROM live", rows)
