"""Engines on the real path: parsed and folded by Spark, judged by the real gate, read by Spark as plain tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidefold.compute.runners import on_spark
from tidefold.domain.paths import LogPaths
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.quality.judge import judge
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.quality.run.spark_rows import SparkEngine
from tidefold.wiring import open_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGS = ("versions", "lines", "latest")
CONFIG = """
version: 1
store: store
logs:
  versions:
    source: {format: json, path: landing/versions, record: value, op: {column: op}}
    columns: {id: int, at: timestamp, amount: {type: "decimal(12,2)", encoding: string}}
    key: [id]
    order: [at]
    merge: history
  lines:
    source: {format: json, path: landing/lines, record: value}
    columns: {id: int, tags: "array<string>"}
    merge: append
  latest:
    source: {format: json, path: landing/latest, record: value, op: {column: op}}
    columns: {id: int, at: long, text: string}
    key: [id]
    order: [at]
"""
DAY = 86_400_000_000


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    for log in LOGS:
        (tmp_path / "landing" / log).mkdir(parents=True)
    (tmp_path / "tidefold.yaml").write_text(CONFIG)
    return open_pipeline(tmp_path / "tidefold.yaml")


def land(pipeline: Pipeline, log: str, start: int, rows: list[dict[str, Any]]) -> None:
    folder = pipeline.config.path.parent / "landing" / log
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / f"{log}+0+{start:010d}.jsonl").write_text(text)


def cycle(spark: SparkSession, pipeline: Pipeline, run: str) -> None:
    runner = on_spark(spark)
    assert {o.status for o in ingest(pipeline, LOGS, runner)} == {"taken"}
    assert {o.status for o in materialize(pipeline, LOGS, Fold(run), runner)} == {"staged"}
    assert {o.status for o in judge(pipeline, LOGS, None, SparkEngine(spark))} == {"passed"}
    assert {confirm(pipeline, log).status for log in LOGS} == {"published"}


def table(spark: SparkSession, pipeline: Pipeline, log: str, columns: str, by: str) -> list[tuple[Any, ...]]:
    rows = spark.read.format("delta").load(pipeline.store.uri(LogPaths(log).table))
    return [tuple(row) for row in rows.selectExpr(*columns.split(", ")).orderBy(*by.split(", ")).collect()]


def test_tables_of_engines_pass_the_gate_and_are_plain_tables(spark: SparkSession, pipeline: Pipeline) -> None:
    """I8: versions are told apart by key and order, equal rows of a table without a key are right."""
    version = {"op": "u", "id": 1}
    land(
        pipeline,
        "versions",
        0,
        [{**version, "at": 1 * DAY, "amount": "1.50"}, {**version, "at": 5 * DAY, "amount": "5.00"}],
    )
    land(pipeline, "lines", 0, [{"id": 1, "tags": ["a"]}, {"id": 1, "tags": ["a"]}])
    land(pipeline, "latest", 0, [{"op": "u", "id": 1, "at": 9, "text": "nine"}, {"op": "d", "id": 2, "at": 9}])
    cycle(spark, pipeline, "run-1")
    land(pipeline, "versions", 2, [{**version, "at": 3 * DAY, "amount": "3.00"}, {"op": "d", "id": 1, "at": 8 * DAY}])
    land(pipeline, "lines", 2, [{"id": 2, "tags": None}])
    late = [{"op": "u", "id": 1, "at": 8, "text": "late"}, {"op": "u", "id": 2, "at": 8, "text": "gone"}]
    land(pipeline, "latest", 2, [*late, {"op": "u", "id": 3, "at": 1, "text": "new"}])
    cycle(spark, pipeline, "run-2")
    spans = table(
        spark, pipeline, "versions", "int(amount), unix_micros(_valid_from), unix_micros(_valid_to)", "_valid_from"
    )
    assert spans == [(1, DAY, 3 * DAY), (3, 3 * DAY, 5 * DAY), (5, 5 * DAY, 8 * DAY)]
    assert table(spark, pipeline, "lines", "id, tags", "id") == [(1, ["a"]), (1, ["a"]), (2, None)]
    assert table(spark, pipeline, "latest", "id, text, _order[0]", "id") == [(1, "nine", 9), (3, "new", 1)]
