"""The catalogue on Spark: see tests/support/quality_suite.py. Promise I8."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from support.effort import THOROUGH, rotate
from support.quality_suite import (
    TYPES,
    Row,
    test_an_empty_table_has_no_bad_rows_and_is_not_fresh,  # noqa: F401
    test_checks_of_columns_say_what_a_naive_look_says,  # noqa: F401
    test_checks_of_single_rows_say_what_a_naive_look_says,  # noqa: F401
    test_what_cannot_be_computed_is_an_error_and_never_a_pass,  # noqa: F401
)
from tidefold.quality.run.engine import JudgedRows
from tidefold.quality.run.spark_rows import SparkRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.rotates(6, whole=True)


@dataclass
class SparkFrames:
    """Rows as DataFrames."""

    spark: SparkSession

    def table(self, rows: list[Row]) -> JudgedRows:
        return SparkRows(lambda: self._frame(rows))

    def numbers(self, values: Iterable[int]) -> JudgedRows:
        return SparkRows(lambda: self.spark.createDataFrame([(n,) for n in values], "number int"))

    def broken(self, rows: list[Row]) -> JudgedRows:
        whole = self._frame(rows)
        failing = {c: whole["id"].cast("string").substr(1, 0).cast(TYPES[c]) for c in ("price", "shop")}
        return SparkRows(lambda: whole.withColumns(failing))

    def _frame(self, rows: list[Row]) -> DataFrame:
        schema = ", ".join(f"{n} {t.replace('timestamp', 'timestamp_ltz')}" for n, t in TYPES.items())
        return self.spark.createDataFrame([tuple(row[n] for n in TYPES) for row in rows], schema)


@pytest.fixture
def frames(spark: SparkSession) -> SparkFrames:
    return SparkFrames(spark)


@pytest.fixture(params=range(2) if THOROUGH else [rotate(2)])
def number(request: pytest.FixtureRequest) -> int:
    return int(request.param)
