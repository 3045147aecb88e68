"""Checks across the tables of a set, on exactly the rows that would be published together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain

import pyarrow.compute as pc

from tidefold.config import SetConfig
from tidefold.operations.inspect.read import ReadRequest, read_rows
from tidefold.operations.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class UnequalSums:
    """Sums that differ. logs: those of their columns. message: names each sum."""

    logs: tuple[str, ...]
    message: str


def find_unequal_sums(pipeline: Pipeline, chosen: SetConfig, snapshots: Mapping[str, int]) -> UnequalSums | None:
    """Returns the first configured sums that differ; None: all are equal. A log without rows has the sum 0."""
    wanted: dict[str, set[str]] = {}
    for log, column in chain.from_iterable(chosen.equal_sums):
        wanted.setdefault(log, set()).add(column)
    found = {log: _add_up(pipeline, log, columns, snapshots.get(log)) for log, columns in wanted.items()}
    for columns in chosen.equal_sums:
        sums = {f"{log}.{column}": found[log][column] for log, column in columns}
        if len(set(sums.values())) > 1:
            told = ", ".join(f"{name} is {value:,}" for name, value in sums.items())
            return UnequalSums(tuple(dict.fromkeys(log for log, _ in columns)), f"the sums differ: {told}")
    return None


def _add_up(pipeline: Pipeline, log: str, columns: Iterable[str], snapshot: int | None) -> Mapping[str, Decimal]:
    """Returns the sums of the columns, in one pass over the rows."""
    sums = dict.fromkeys(columns, Decimal(0))
    if snapshot is None:
        return sums
    _, batches = read_rows(pipeline, log, ReadRequest(snapshot=snapshot))
    with closing(batches):
        for batch in batches:
            for column in sums:
                sums[column] += Decimal(pc.sum(batch.column(column)).as_py() or 0)
    return sums
