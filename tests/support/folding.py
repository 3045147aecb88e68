"""Folds lists of changes one after the other, as snapshots do: rows, sidecar and the highest clear."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from tidefold.changelog.schema import change_schema, table_schema
from tidefold.domain.table.table_spec import TableSpec
from tidefold.fold.merge.merge import MergeState, has_clears, merge_bucket


def folded(
    shape: TableSpec,
    folds: Iterable[Sequence[dict[str, Any]]],
    horizon: int | None = None,
    *,
    marks: bool = False,
) -> list[dict[str, Any]]:
    """Returns the rows of the table after these folds, in the order in which they are stored.

    marks: the merge gets only the rows whose key has a change, as with deletion vectors.
    """
    base, before = table_schema(shape).empty_table(), MergeState(horizon=horizon)
    for changes in folds:
        table = pa.Table.from_pylist(list(changes), schema=change_schema(shape))
        keys = {tuple(row[name] for name in shape.key) for row in changes}
        is_touched = [
            not marks or has_clears(table) or tuple(r[n] for n in shape.key) in keys for r in base.to_pylist()
        ]
        touched, rest = (base.filter(pa.array(mask, pa.bool_())) for mask in (is_touched, [not t for t in is_touched]))
        with (
            tempfile.TemporaryDirectory() as scratch,
            merge_bucket(touched.to_reader(), table, shape, before, memory=100_000_000, scratch=scratch) as done,
        ):
            rows = pa.concat_tables([rest, done.rows.read_all().cast(table_schema(shape))])
            base = rows.sort_by([(name, "ascending") for name in shape.key]) if marks else rows
            before = MergeState(done.hidden, done.cleared, horizon)
    return base.to_pylist()
