"""The merge engines, as SQL for DuckDB: one module for each way in which several changes of one key become rows.

Every statement reads three relations: `base` (the existing rows, read once as a stream), `hidden` (the sidecar) and
`live` (the changes that count). All engines but `append` and `history` make a table `touched` with one row for each
key of the changes, and join it to the base in one pass.
"""

from __future__ import annotations

from tidefold.domain.table.table_spec import Engine, TableSpec
from tidefold.fold.merge.engines.partial import history, partial, partial_by_columns
from tidefold.fold.merge.engines.statements import Statements as Statements
from tidefold.fold.merge.engines.statements import aggregate, append, first, last, last_by_columns


def statements(shape: TableSpec, *, with_absent: bool, horizon: int | None) -> Statements:
    """Returns the statements of a fold.

    with_absent: some change lacks a value of some column.
    horizon: deletes before it need not be remembered.
    """
    engine = shape.merge.engine
    if engine is Engine.APPEND:
        return append(shape)
    if engine is Engine.FIRST:
        return first(shape)
    if engine is Engine.AGGREGATE:
        return aggregate(shape)
    if engine is Engine.HISTORY:
        return history(shape, horizon)
    if engine is Engine.PARTIAL:
        return partial_by_columns(shape, horizon) if shape.needs_sidecar else partial(shape)
    if not shape.source_ordered:
        return last_by_columns(shape, horizon)
    return partial(shape, required=True) if with_absent else last(shape)
