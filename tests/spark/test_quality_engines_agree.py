"""Both engines of the gate give the same verdicts over hostile values: promise I8."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from support.effort import THOROUGH, rotate
from support.hostile_rows import NAMES, SHAPE, all_checks, random_rows
from tidefold.quality.run import expectations
from tidefold.quality.run.duckdb_rows import DuckDBEngine, open_duckdb
from tidefold.quality.run.engine import JudgedRows
from tidefold.quality.run.expectations import evaluate
from tidefold.quality.run.metrics import can_judge
from tidefold.quality.run.spark_rows import SparkRows
from tidefold.quality.run.statistics import collect
from tidefold.quality.suite.check import Check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REFUSED = ("(?i)a", "(?=a)", "a(?!b)", r"\bA", r"\p{L}", "[a&&b]", "a*+", "(?<n>a)", r"(a)\1", "[[a]]", "(", "a)", "*a")

# The checks whose bounds and values are drawn.
LIMITS = ("expect_column_values_to_be_between", "expect_column_values_to_be_in_set")


def on_spark(spark: SparkSession, rows: pa.Table) -> JudgedRows:
    return SparkRows(lambda: spark.createDataFrame(rows))


def on_duckdb(engine: DuckDBEngine, rows: pa.Table) -> JudgedRows:
    return engine.load("hostile", rows.to_reader())


def considered_checks() -> Iterator[Check]:
    """Checks of some rows: each form of a condition."""
    text, number = NAMES["string"], NAMES["double"]
    for condition in (
        f'col("{text}") == "a"',
        f'col("{number}").notNull()',
        f'col("{number}") > 0.5',
        'col("id") != 7',
    ):
        some = {"row_condition": condition, "condition_parser": "great_expectations"}
        yield Check("some", "expect_column_values_to_be_unique", {"column": NAMES["int"], "mostly": 0.5, **some})
        yield Check("some", "expect_column_values_to_be_null", {"column": NAMES["date"], **some})
    dear = {"column": NAMES["decimal(12,2)"], "value_set": [0, 0.1]}
    yield Check("dear", "expect_column_values_to_be_in_set", dear)
    yield Check("not dear", "expect_column_values_to_not_be_in_set", dear)


@pytest.mark.rotates(3)
@pytest.mark.parametrize("part", range(3))
def test_hostile_values_are_judged_alike(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    """Each third check, in one pass of each engine."""
    monkeypatch.setattr(expectations, "_SAMPLED", 0)  # Samples are shown elsewhere.
    rows = random_rows(0, 180)
    # A bound with an offset is the same instant on both.
    east = datetime(2026, 3, 29, 3, 30, tzinfo=UTC).astimezone() - timedelta(hours=2)
    arguments = {"column": NAMES["timestamp"], "max_value": east}
    checks = [Check("at", "expect_column_values_to_be_between", arguments)]
    checks += all_checks(0, 180)
    for seed in (1, 2):
        checks += [replace(c, name=f"{c.name} {seed}") for c in all_checks(seed) if c.type in LIMITS]
    checks += considered_checks()
    checks = checks[part::3]
    assert all(can_judge(check, SHAPE.types) for check in checks)
    with open_duckdb() as engine:
        there, here = evaluate(on_spark(spark, rows), checks), evaluate(on_duckdb(engine, rows), checks)
    apart = [
        (check, one, other)
        for check, one, other in zip(checks, there, here, strict=True)
        if (one.passed, one.unexpected) != (other.passed, other.unexpected)
    ]
    assert apart == []
    assert len({one.passed for one in there}) == 2


@pytest.mark.parametrize("seed", range(2) if THOROUGH else [rotate(2)])
def test_numbers_of_columns_are_alike(spark: SparkSession, seed: int) -> None:
    rows = random_rows(seed)
    types = {NAMES[t]: t for t in ("int", "double", "float", "decimal(12,2)", "date", "timestamp", "long", "string")}
    wanted = {name: type_ != "long" for name, type_ in types.items()}
    with open_duckdb() as engine:
        there, here = collect(on_spark(spark, rows), wanted, types), collect(on_duckdb(engine, rows), wanted, types)
    assert there.rows == here.rows
    for one, other in zip(there.columns, here.columns, strict=True):
        exact = {name: _close(value) for name, value in asdict(other).items() if name != "quantiles"}
        assert {name: _close(value) for name, value in asdict(one).items() if name != "quantiles"} == exact
        # Which of two neighbours stands for a share is each engine's own.
        places = {place: number for number, place in enumerate(sorted({*one.quantiles, *other.quantiles}))}
        apart = [abs(places[a] - places[b]) for a, b in zip(one.quantiles, other.quantiles, strict=True)]
        assert max(apart, default=0) <= 1


def _close(value: Any) -> Any:
    """Floating point sums differ in their last digits by the order of the rows."""
    if isinstance(value, float):
        return float(f"{value:.12e}")
    try:
        return f"{float(value):.12e}" if isinstance(value, str) and "." in value else value
    except ValueError:
        return value


@pytest.mark.parametrize("pattern", REFUSED)
def test_a_pattern_that_might_find_something_else_is_left_to_spark(pattern: str) -> None:
    check = Check("x", "expect_column_values_to_match_regex", {"column": "c", "regex": pattern})
    assert not can_judge(check, {"c": "string"})
