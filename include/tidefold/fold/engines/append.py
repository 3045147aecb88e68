"""Tables without a key: every change is a row, and stays one."""

from __future__ import annotations

from tidefold.changelog.columns import place_columns
from tidefold.changelog.key_group import quoted
from tidefold.fold.engines.statements import Statements
from tidefold.lifecycle.shape import Shape


def append(shape: Shape) -> Statements:
    columns = ", ".join(quoted(column.name) for column in shape.columns)
    newest = ", ".join(place_columns(shape))
    rows = f"SELECT {columns} FROM base UNION ALL SELECT {columns} FROM (SELECT * FROM live ORDER BY {newest})"
    return Statements((), "SELECT count(*), 0 FROM live", rows)
