"""Values that another table must have: each value of a column is looked for in a snapshot of that table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidefold.quality.report.result import SAMPLES, CheckResult, clipped, result
from tidefold.quality.run.samples import as_text, key_text
from tidefold.quality.run.statistics import named
from tidefold.quality.suite.check import Check

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Target:
    """The rows of a snapshot that is referred to, and what it is called."""

    name: str
    rows: DataFrame


def judge_references(check: Check, rows: DataFrame, target: Target | None, key: tuple[str, ...]) -> CheckResult:
    """Counts the rows whose value (nulls refer to nothing) is missing there. No snapshot to look in: not passed."""
    from pyspark.sql import functions as f

    log, value = check.kwargs["log"], named(check.kwargs["column"])
    if target is None:
        return result(check, False, detail=f"`{log}` has no completed snapshot")
    there = target.rows.select(named(check.kwargs["log_column"]).alias("there")).distinct()
    counted = rows.where(value.isNotNull()).groupBy(value.alias("here")).agg(f.count("*").alias("rows"))
    lost = counted.join(there, f.col("here") == f.col("there"), "left_anti")
    [found] = lost.agg(f.sum("rows").alias("rows"), f.count("*").alias("different")).collect()
    missing = int(found["rows"] or 0)
    if not missing:
        return _with(result(check, True, compared=target.name), 0)
    detail = f"{_counted(missing, 'row')} with {_counted(found['different'], 'missing value')}"
    sample, keys = _sample(rows.where(value.isNotNull()), check.kwargs["column"], there, key)
    return _with(result(check, False, detail=detail, compared=target.name), missing, sample, keys)


def _sample(
    rows: DataFrame, column: str, there: DataFrame, key: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    from pyspark.sql import functions as f

    columns = [named(column).alias("tidefold value"), *(named(name) for name in key)]
    lost = rows.select(*columns).join(there, f.col("`tidefold value`") == f.col("there"), "left_anti")
    seen = lost.limit(SAMPLES).collect()
    keys = tuple(key_text(dict(zip(key, row[1:], strict=True))) for row in seen) if key else ()
    return tuple(clipped(as_text(row[0])) for row in seen), keys


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _with(
    judged: CheckResult, unexpected: int, sample: tuple[str, ...] = (), keys: tuple[str, ...] = ()
) -> CheckResult:
    return replace(judged, unexpected=unexpected, sample=sample, keys=keys)
