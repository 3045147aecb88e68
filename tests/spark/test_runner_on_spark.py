"""Spark's runner passes the suite of all runners."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.runner_contract import RunnerContract
from tidefold.compute.runners import Runner, on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TestOnSpark(RunnerContract):
    @pytest.fixture
    def runner(self, spark: SparkSession) -> Runner:
        return on_spark(spark)
