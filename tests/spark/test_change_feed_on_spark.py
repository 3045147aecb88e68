"""`change_feed` as Spark users read it: delta-spark's `readChangeFeed` returns the naive difference of two versions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.change_data_feed import FEED, LOG, VECTORS, find_differences, open_table, publish, rows_at, text_of
from support.pipelines import make_pipeline, put, with_log_shape
from tidefold.changelog.schema import CLEAR, DELETE
from tidefold.domain.log_state import Column
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.claim import KindPolicy, RestoreMode, RestorePoint
from tidefold.domain.table.schema_evolution import Policies, Policy
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.schema_update import apply_configured_schema
from tidefold.operations.requests import Fold, Restore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.rotates(4, whole=True)

_ADDED = ["_change_type", "_commit_version", "_commit_timestamp"]


def read_feed(spark: SparkSession, pipeline: Pipeline, version: int) -> Counter[str]:
    """The rows of a version's feed. An open range of versions would have the columns of the newest."""
    options = {"readChangeFeed": "true", "startingVersion": str(version), "endingVersion": str(version)}
    found = spark.read.format("delta").options(**options).load(pipeline.store.uri(LogPaths(LOG).table))
    names = [field.name for field in open_table(pipeline, version).schema().fields]
    assert set(_ADDED) <= set(found.columns)
    return Counter(text_of(row.asDict()) for row in found.select(*names, "_change_type").collect())


def assert_exact(spark: SparkSession, pipeline: Pipeline, version: int) -> None:
    names = [field.name for field in open_table(pipeline, version).schema().fields]
    before = rows_at(pipeline, version - 1) if version else []
    assert read_feed(spark, pipeline, version) == find_differences(before, rows_at(pipeline, version), names, "id")


@pytest.mark.parametrize("config", [FEED, VECTORS], ids=["rewritten", "vectors"])
def test_spark_reads_the_exact_changes(spark: SparkSession, tmp_path: Path, config: str) -> None:
    pipeline = make_pipeline(tmp_path, config)
    put(pipeline, [{"id": i, "text": "a"} for i in range(40)])
    publish(pipeline, Fold("run-0", kind=KindPolicy.INCREMENTAL))
    put(pipeline, [{"id": 3, "text": "b"}, {"id": 4, "_op": DELETE}, {"id": 50, "text": None}])
    publish(pipeline, Fold("run-1", kind=KindPolicy.INCREMENTAL))
    put(pipeline, [{"id": 50, "text": None}])
    publish(pipeline, Fold("run-2", kind=KindPolicy.FULL))
    put(pipeline, [{"_op": CLEAR}, {"id": 7, "text": "after"}])
    publish(pipeline, Fold("run-3", kind=KindPolicy.INCREMENTAL))
    publish(pipeline, Restore("run-4", RestorePoint(2, RestoreMode.SKIP)))
    for version in range(5):
        assert_exact(spark, pipeline, version)
    assert read_feed(spark, pipeline, 2) == Counter()


def test_spark_reads_the_feed_across_new_and_dropped_columns(spark: SparkSession, tmp_path: Path) -> None:
    made = make_pipeline(tmp_path, FEED)

    def with_columns(*columns: Column) -> Pipeline:
        found = with_log_shape(made, columns=columns, policies=Policies(*[Policy.EVOLVE] * 6))
        found.ledger(LOG).begin(found.log(LOG).shape)
        apply_configured_schema(found, found.ledger(LOG).read())
        return found

    first = with_columns(Column("id", "int"), Column("text", "string"))
    put(first, [{"id": i, "text": "a"} for i in range(10)])
    publish(first, Fold("run-0"))
    wider = with_columns(Column("id", "int"), Column("text", "string"), Column("new", "int", default="7"))
    put(wider, [{"id": 1, "text": "b", "new": 1}, {"id": 2, "_op": DELETE}])
    publish(wider, Fold("run-1"))
    for version in range(2):
        assert_exact(spark, wider, version)
