"""Both engines of the gate give the same verdicts over hostile values: promise I8."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tidefold.changelog.schema import table_schema
from tidefold.domain.log_state import Column, TableSpec
from tidefold.quality.run.duckdb_rows import DuckDBEngine, DuckDBRows, can_judge, open_duckdb
from tidefold.quality.run.engine import JudgedRows
from tidefold.quality.run.expectations import evaluate
from tidefold.quality.run.spark_rows import SparkRows
from tidefold.quality.suite.check import Check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES: dict[str, list[Any]] = {
    "long": [0, 1, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)],
    "int": [0, 1, -1, 2**31 - 1, -(2**31)],
    "double": [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 1e308, 5e-324],
    "float": [0.0, -0.0, 0.5, math.nan, math.inf, -math.inf],
    "decimal(38,0)": [Decimal(0), Decimal(10**38 - 1), Decimal(-(10**38) + 1)],
    "decimal(38,38)": [Decimal(0), Decimal("0." + "9" * 38), Decimal("-0." + "9" * 38)],
    "decimal(12,2)": [Decimal("0.00"), Decimal("0.10"), Decimal("9999999999.99")],
    "string": ["", " ", "a", "A", "ab", "a\n", "a\r\n", "a\u2028", "\u00e4", "a\u0308", "\U0001f600", "a\x00b", "\t"],
    "boolean": [True, False],
    "date": [date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), date(1899, 12, 31), date(9999, 12, 31)],
    "timestamp": [
        datetime(1, 1, 1, tzinfo=UTC), datetime(1899, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime(2026, 3, 29, 1, 30, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
    ],
    "binary": [b"", b"\x00", b"a", b"\xff"],
}  # fmt: skip
SHAPE = TableSpec(
    ("id",), (Column("id", "long"), *(Column(f"c{n}", t) for n, t in enumerate(VALUES))), "arrival", 16, 4
)
NAMES = {type_: f"c{number}" for number, type_ in enumerate(VALUES)}
PATTERNS = (
    *(
        "^a$",
        "a.",
        "^.$",
        r"\s",
        r"^\S*$",
        r"^\w+$",
        r"\d",
        "^(a|A)b?$",
        "[a-z]{1,2}",
        "^[^a]*$",
        r"a\z",
        r"\.",
        "a+?b",
    ),
)
REFUSED = ("(?i)a", "(?=a)", "a(?!b)", r"\bA", r"\p{L}", "[a&&b]", "a*+", "(?<n>a)", r"(a)\1", "[[a]]", "(", "a)", "*a")


def random_rows(seed: int) -> pa.Table:
    chance = random.Random(seed)
    columns: dict[str, list[Any]] = {"id": list(range(60))}
    for type_, name in NAMES.items():
        columns[name] = [None if chance.random() < 0.1 else chance.choice(VALUES[type_]) for _ in range(60)]
    return pa.table(columns, pa.schema([field.with_nullable(True) for field in table_schema(SHAPE)]))


def all_checks(seed: int) -> Iterator[Check]:
    """Every expectation that the engine without a JVM judges, on every type for which it makes sense."""
    chance = random.Random(seed)
    for type_, name in NAMES.items():
        column = {"column": name}
        yield Check(f"null {type_}", "expect_column_values_to_not_be_null", column)
        yield Check(f"unique {type_}", "expect_column_values_to_be_unique", {**column, "mostly": 0.5})
        other = chance.choice(list(NAMES.values()))
        pair = {"column_list": [name, other] if other != name else [name, "id"]}
        yield Check(f"pair {type_}", "expect_compound_columns_to_be_unique", pair)
        usual = [v for v in VALUES[type_] if _is_bound(v)]
        if type_ not in ("string", "boolean", "binary"):
            low, high = sorted(chance.sample(usual, 2))
            bounds = {"min_value": _plain(low), "max_value": _plain(high)}
            yield Check(f"range {type_}", "expect_column_values_to_be_between", {**column, **bounds})
        if type_ in ("long", "int", "double", "string", "boolean", "date"):
            values = [_plain(v) for v in chance.sample(usual, min(2, len(usual)))]
            yield Check(f"set {type_}", "expect_column_values_to_be_in_set", {**column, "value_set": values})
    for pattern in PATTERNS:
        arguments = {"column": NAMES["string"], "regex": pattern}
        yield Check(f"matches {pattern}", "expect_column_values_to_match_regex", arguments)
    yield Check("rows", "expect_table_row_count_to_be_between", {"min_value": 60, "max_value": 60})
    yield Check("rows", "expect_table_row_count_to_equal", {"value": 61})


def _is_bound(value: Any) -> bool:
    """Whether Spark can compare with it: it raises for dates of year 1, and misses instants of it by some hours."""
    return value.year > 1 if isinstance(value, date) else not isinstance(value, float) or math.isfinite(value)


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value


def on_spark(spark: SparkSession, rows: pa.Table) -> JudgedRows:
    return SparkRows(spark.createDataFrame(rows))


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
