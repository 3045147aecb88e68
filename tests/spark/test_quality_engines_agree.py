"""Both engines of the gate give the same verdicts over hostile values: promise I8."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from support.hostile_rows import NAMES, all_checks, random_rows
from tidefold.quality.run.duckdb_rows import DuckDBEngine, DuckDBRows, can_judge, open_duckdb
from tidefold.quality.run.engine import JudgedRows
from tidefold.quality.run.expectations import evaluate
from tidefold.quality.run.spark_rows import SparkRows
from tidefold.quality.suite.check import Check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REFUSED = ("(?i)a", "(?=a)", "a(?!b)", r"\bA", r"\p{L}", "[a&&b]", "a*+", "(?<n>a)", r"(a)\1", "[[a]]", "(", "a)", "*a")


def on_spark(spark: SparkSession, rows: pa.Table) -> JudgedRows:
    return SparkRows(lambda: spark.createDataFrame(rows))


def on_duckdb(engine: DuckDBEngine, rows: pa.Table) -> JudgedRows:
    return engine.load("hostile", rows.to_reader())


@pytest.mark.parametrize("seed", range(3))
def test_hostile_values_are_judged_alike(spark: SparkSession, seed: int) -> None:
    rows, checks = random_rows(seed), list(all_checks(seed))
    assert all(can_judge(check) for check in checks)
    with open_duckdb() as engine:
        there, here = evaluate(on_spark(spark, rows), checks), evaluate(on_duckdb(engine, rows), checks)
    found = [(c.name, one.passed, one.unexpected) for c, one in zip(checks, there, strict=True)]
    assert [(c.name, one.passed, one.unexpected) for c, one in zip(checks, here, strict=True)] == found
    assert len({passed for _, passed, _ in found}) == 2


@pytest.mark.parametrize("seed", range(2))
def test_numbers_of_columns_are_alike(spark: SparkSession, seed: int) -> None:
    rows = random_rows(seed)
    asked = {NAMES[t]: (t, True) for t in ("int", "double", "float", "decimal(12,2)", "date", "timestamp")}
    asked[NAMES["long"]] = ("long", False)
    with open_duckdb() as engine:
        there, here = on_spark(spark, rows).aggregate(asked), on_duckdb(engine, rows).aggregate(asked)
        both = on_spark(spark, rows), DuckDBRows(engine, "hostile")
        counted = [sorted(one.count_values(NAMES["string"], 99)) for one in both]
    assert there[0] == here[0]
    assert counted[0] == counted[1]
    for name in asked:
        one, other = dict(there[1][name]), dict(here[1][name])
        steps, exact = one.pop("quantiles", ()), other.pop("quantiles", ())
        assert {k: _close(v) for k, v in one.items()} == {k: _close(v) for k, v in other.items()}
        # Which of two neighbours stands for a share is each engine's own.
        places = {place: number for number, place in enumerate(sorted({_place(v) for v in (*steps, *exact)}))}
        apart = [abs(places[_place(a)] - places[_place(b)]) for a, b in zip(steps, exact, strict=True)]
        assert max(apart, default=0) <= 1


def _place(value: float) -> tuple[bool, float]:
    """Where both engines sort a value: NaN is the greatest."""
    return (True, 0.0) if math.isnan(value) else (False, value + 0.0)


def _close(value: Any) -> Any:
    """Floating point sums differ in their last digits by the order of the rows."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else float(f"{value:.12e}")
    return value


@pytest.mark.parametrize("pattern", REFUSED)
def test_a_pattern_that_might_find_something_else_is_left_to_spark(pattern: str) -> None:
    assert not can_judge(Check("x", "expect_column_values_to_match_regex", {"column": "c", "regex": pattern}))


def test_instants_are_told_in_their_own_time(spark: SparkSession) -> None:
    """A bound with an offset is the same instant on both."""
    rows = random_rows(9)
    east = datetime(2026, 3, 29, 3, 30, tzinfo=UTC).astimezone() - timedelta(hours=2)
    arguments = {"column": NAMES["timestamp"], "max_value": east}
    checks = [Check("at", "expect_column_values_to_be_between", arguments)]
    with open_duckdb() as engine:
        found = [evaluate(r, checks)[0].unexpected for r in (on_spark(spark, rows), on_duckdb(engine, rows))]
    assert found[0] == found[1]
