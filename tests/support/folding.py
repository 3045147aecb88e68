"""Folds lists of changes one after the other, as snapshots do: rows, sidecar and the highest clear."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from tidefold.changelog.schema import change_schema, table_schema
from tidefold.domain.table.table_spec import TableSpec
from tidefold.fold.merge.merge import MergeState, merge_bucket


def folded(
    shape: TableSpec, folds: Iterable[Sequence[dict[str, Any]]], horizon: int | None = None
) -> list[dict[str, Any]]:
    """Returns the rows of the table after these folds, in the order in which they are stored."""
    base, before = table_schema(shape).empty_table(), MergeState(horizon=horizon)
    for changes in folds:
        table = pa.Table.from_pylist(list(changes), schema=change_schema(shape))
        with (
            tempfile.TemporaryDirectory() as scratch,
            merge_bucket(base.to_reader(), table, shape, before, memory=100_000_000, scratch=scratch) as done,
        ):
            base = done.rows.read_all().cast(table_schema(shape))
            before = MergeState(done.hidden, done.cleared, horizon)
    return base.to_pylist()
