"""The steps that run on Spark, over a store in S3: its Python workers read and write, the gate judges. I4, I8, I23."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.pipelines import CONFIG, make_pipeline, put, table_rows
from support.s3_server import S3Bucket
from tidefold.compute.runners import on_spark
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.quality.judge import judge
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.quality.run.spark_rows import SparkEngine
from tidefold.wiring import open_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def pipeline(s3: S3Bucket, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    # A job's workers inherit its environment; this Spark session was begun before the bucket was there.
    for name, value in os.environ.items():
        if name.startswith("AWS_"):
            monkeypatch.setitem(spark.sparkContext.environment, name, value)
    return make_pipeline(tmp_path, CONFIG.replace("store: store", f"store: {s3.address}"))


def staged(pipeline: Pipeline, spark: SparkSession, run: str) -> None:
    [outcome] = materialize(pipeline, ["accounts"], Fold(run), on_spark(spark))
    assert outcome.status == "staged", outcome


def test_a_cycle_on_spark_in_s3(pipeline: Pipeline, spark: SparkSession) -> None:
    rows: dict[int, str | None] = {i: f"row {i}" for i in range(50)}
    put(pipeline, [{"id": i, "text": text} for i, text in rows.items()])
    staged(pipeline, spark, "run-1")
    [judged] = judge(pipeline, ["accounts"], "run-1", SparkEngine(spark))
    assert judged.status == "passed", judged
    assert confirm(pipeline, "accounts", Confirmation(run="run-1")).status == "published"
    assert table_rows(pipeline) == rows

    # The gate looks at the rows of the new files, too: most of them gone is a failure.
    put(pipeline, [{"id": i, "text": None, "_op": 1} for i in range(40)])
    staged(pipeline, spark, "run-2")
    [judged] = judge(pipeline, ["accounts"], "run-2", SparkEngine(spark))
    assert judged.status == "failed", judged
    assert table_rows(pipeline) == rows


def test_files_that_cannot_be_read_never_pass(pipeline: Pipeline, spark: SparkSession, s3: S3Bucket) -> None:
    put(pipeline, [{"id": i, "text": ""} for i in range(5)])
    staged(pipeline, spark, "run-1")
    s3.server.fail("GET", ".parquet", status=403, code="AccessDenied", times=999)
    [judged] = judge(pipeline, ["accounts"], "run-1", SparkEngine(spark))
    assert judged.error_code
    s3.server.heal()
    assert judge(pipeline, ["accounts"], "run-1", SparkEngine(spark))[0].status == "passed"


def test_spark_tasks_read_files_that_land_in_s3(
    s3: S3Bucket, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in os.environ.items():
        if name.startswith("AWS_"):
            monkeypatch.setitem(spark.sparkContext.environment, name, value)
    path = tmp_path / "tidefold.yaml"
    path.write_text(
        "version: 1\nstore: store\nlogs:\n  items:\n    key: [id]\n    order: [seq]\n"
        f"    source: {{format: csv, path: s3://{s3.name}/landing/items}}\n    columns: {{id: int, seq: long}}\n"
    )
    for number in range(3):
        rows = "".join(f"{i},{number}\n" for i in range(number * 10, number * 10 + 10))
        s3.client.put_object(Bucket=s3.name, Key=f"landing/items/{number}.csv", Body=f"id,seq\n{rows}".encode())
    pipeline = open_pipeline(path)
    [outcome] = ingest(pipeline, ["items"], on_spark(spark))
    assert (outcome.status, outcome.facts["files"], outcome.facts["changes"]) == ("taken", 3, 30)
    [outcome] = ingest(pipeline, ["items"], on_spark(spark))
    assert outcome.status == "nothing"
