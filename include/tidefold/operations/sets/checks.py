"""Checks across the tables of a set, on exactly the rows that are published together, and the drill of a set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain

import pyarrow.compute as pc

from tidefold.config import SetConfig
from tidefold.domain.sets.set_state import SetVersion
from tidefold.domain.wording import count_noun
from tidefold.errors import CorruptError
from tidefold.operations.ground.outcome import Outcome, Status, for_each_log
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, read_rows
from tidefold.operations.restore.export import Trial, drill
from tidefold.operations.sets.read import find_set


@dataclass(frozen=True, slots=True)
class UnequalSums:
    """Sums that differ. logs: those of their columns. message: names each sum."""

    logs: tuple[str, ...]
    message: str


def find_unequal_sums(pipeline: Pipeline, chosen: SetConfig, snapshots: Mapping[str, int]) -> UnequalSums | None:
    """Returns the first configured sums that differ; None: all are equal. A log without rows has the sum 0."""
    wanted: dict[str, set[str]] = {}
    for log, column in chain.from_iterable(chosen.sums):
        wanted.setdefault(log, set()).add(column)
    totals = {log: _add_up(pipeline, log, columns, snapshots.get(log)) for log, columns in wanted.items()}
    for columns in chosen.sums:
        sums = {f"{log}.{column}": totals[log][column] for log, column in columns}
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


def drill_set(pipeline: Pipeline, name: str, version: SetVersion, trial: Callable[[str], Trial]) -> list[Outcome]:
    """Restores each table of a version into a scratch folder, checks and records it, and compares configured sums.

    trial: how the drill of a log runs. An outcome with an error names the table that cannot be restored.
    """
    tables = version.snapshots
    outcomes = for_each_log(list(tables), lambda log: drill(pipeline, log, tables[log], trial(log)))
    if any(outcome.error for outcome in outcomes):
        return outcomes
    chosen = find_set(pipeline, name)
    unequal = find_unequal_sums(pipeline, chosen, tables)
    if unequal:
        message = f"version {version.number} of set `{name}` is not consistent: {unequal.message}"
        return [*outcomes, Outcome.of_error(name, CorruptError("SET_SUMS", message))]
    sums = f", {count_noun(len(chosen.sums), 'sum')} compared" if chosen.sums else ""
    message = (
        f"version {version.number} at position {version.position}: {count_noun(len(outcomes), 'table')} restored{sums}"
    )
    return [*outcomes, Outcome(name, Status.PASSED, message)]
