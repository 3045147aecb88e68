"""One Spark session for the tier, with the settings that every job of tidefold gets."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.pipelines import make_pipeline
from tidefold.spark.submit import job_env, spark_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    config = make_pipeline(tmp_path_factory.mktemp("spark")).config
    os.environ.update({**job_env(config), "TIDEFOLD_SPARK_C1": "1"})
    os.environ["PYTHONPATH"] += os.pathsep + str(Path(__file__).parents[1])
    builder = SparkSession.builder.master("local[2]").appName("tidefold tests")
    for key, value in spark_conf(config).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    # At the very end it speaks to a stream that pytest has closed.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEFOLD_SPARK_C1", "1")
