"""Spark's Python workers read files that land in Azure and in Google Cloud Storage. I30."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.landing_places import LandingBucket
from tidefold.compute.runners import on_spark
from tidefold.operations.ingest.ingest import ingest
from tidefold.wiring import open_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("store", ["azure_landing", "gcs"])
def test_spark_tasks_read_files_that_land_in_an_object_store(
    store: str,
    request: pytest.FixtureRequest,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bucket: LandingBucket = request.getfixturevalue(store)
    for name, value in os.environ.items():
        if name.startswith(("AZUR", "STORAGE_")):
            monkeypatch.setitem(spark.sparkContext.environment, name, value)
    path = tmp_path / "tidefold.yaml"
    path.write_text(
        "version: 1\nstore: store\nlogs:\n  items:\n    key: [id]\n    order: [seq]\n"
        f"    source: {{format: csv, path: '{bucket.root}/landing/items'}}\n"
        "    columns: {id: int, seq: long}\n"
    )
    for number in range(3):
        rows = "".join(f"{i},{number}\n" for i in range(number * 10, number * 10 + 10))
        bucket.put(f"landing/items/{number}.csv", f"id,seq\n{rows}".encode())
    pipeline = open_pipeline(path)
    [outcome] = ingest(pipeline, ["items"], on_spark(spark))
    assert (outcome.status, outcome.facts["files"], outcome.facts["changes"]) == ("taken", 3, 30)
    [outcome] = ingest(pipeline, ["items"], on_spark(spark))
    assert outcome.status == "nothing"
