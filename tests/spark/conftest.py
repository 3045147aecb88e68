"""One JVM for the tier, with the settings that every job of tidefold gets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.pipelines import make_pipeline
from support.spark_jvm import SparkJvm
from tidefold.spark.submit import job_env

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark_jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkJvm]:
    config = make_pipeline(tmp_path_factory.mktemp("spark")).config
    os.environ.update({**job_env(config), "TIDEFOLD_SPARK_C1": "1"})
    os.environ["PYTHONPATH"] += os.pathsep + str(Path(__file__).parents[1])
    jvm = SparkJvm(config)
    yield jvm
    jvm.stop()


@pytest.fixture
def spark(spark_jvm: SparkJvm) -> SparkSession:
    return spark_jvm.open_session()


@pytest.fixture(scope="session")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Settings of a Hive metastore on Derby, which pyspark's jars contain."""
    folder = tmp_path_factory.mktemp("metastore")
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/derby;create=true",
    }


@pytest.fixture
def analyst(spark_jvm: SparkJvm, metastore: dict[str, str]) -> SparkSession:
    """A session with that metastore."""
    return spark_jvm.open_session(more=metastore)


@pytest.fixture(autouse=True)
def _loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEFOLD_SPARK_C1", "1")
