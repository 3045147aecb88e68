"""Checks across the tables of a set, on exactly the rows that would be published together."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from decimal import Decimal

import pyarrow.compute as pc

from tidefold.config import SetConfig
from tidefold.operations.inspect.read import ReadRequest, read_rows
from tidefold.operations.pipeline import Pipeline


def find_unequal_sums(pipeline: Pipeline, chosen: SetConfig, snapshots: Mapping[str, int]) -> str:
    """Returns which configured sums differ; empty: all are equal. A log without rows has the sum 0."""
    for columns in chosen.equal_sums:
        sums = {f"{log}.{column}": _add_up(pipeline, log, column, snapshots.get(log)) for log, column in columns}
        if len(set(sums.values())) > 1:
            return "the sums differ: " + ", ".join(f"{name} is {value:,}" for name, value in sums.items())
    return ""


def _add_up(pipeline: Pipeline, log: str, column: str, snapshot: int | None) -> Decimal:
    if snapshot is None:
        return Decimal(0)
    _, batches = read_rows(pipeline, log, ReadRequest(snapshot=snapshot))
    with closing(batches):
        return sum((Decimal(pc.sum(batch.column(column)).as_py() or 0) for batch in batches), Decimal(0))
