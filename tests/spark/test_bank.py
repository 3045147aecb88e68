"""Real Debezium output, phase by phase, on real Spark: table and snapshot equal the database. I5, A1; issue 3."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars
import pytest
from deltalake import DeltaTable

from support.pipelines import contents
from tidefold.cli.sample import LOGS, PHASES, land, prepare
from tidefold.compute.runners import on_spark
from tidefold.domain.paths import LogPaths
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest import ingest
from tidefold.operations.quality import judge
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot import materialize
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.quality.run.spark_rows import SparkEngine
from tidefold.wiring import open_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BANK = Path(__file__).parents[1] / "data" / "bank"
Rows = list[tuple[Any, ...]]


def truth(log: str, phase: str, text_columns: set[int]) -> Rows:
    """The database's own dump, by the standard library's reader alone: `""` is the empty text, nothing is null."""
    with gzip.open(BANK / "truth" / phase / f"pgbench_{log}.csv.gz", "rt", newline="") as stream:
        lines = list(csv.reader(stream))[1:]
    rows = [tuple(v or None if i in text_columns else int(v) for i, v in enumerate(line)) for line in lines]
    return sorted(rows, key=lambda row: row[0])


def read_without_spark(uri: str) -> Rows:
    found = DeltaTable(uri).to_pyarrow_table().to_pylist()
    rows = sorted((tuple(row.values()) for row in found), key=lambda row: row[0])
    assert sorted(polars.read_delta(uri).rows()) == rows
    return rows


def read_on_spark(spark: SparkSession, uri: str) -> Rows:
    return sorted(tuple(row) for row in spark.read.format("delta").load(uri).collect())


def run(pipeline: Pipeline, spark: SparkSession, name: str) -> dict[str, list[str]]:
    """What the DAG does."""
    runner = on_spark(spark)
    steps = {
        "ingest": ingest.ingest(pipeline, LOGS, runner),
        "materialize": materialize.materialize(pipeline, LOGS, Fold(name), runner),
        "quality": judge.judge(pipeline, LOGS, name, SparkEngine(spark)),
        "confirm": [confirm(pipeline, log, Confirmation(run=name)) for log in LOGS],
    }
    return {step: [o.status for o in outcomes] for step, outcomes in steps.items()}


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return open_pipeline(prepare(tmp_path))


@pytest.mark.rotates(2)
def test_every_phase_equals_the_database_in_table_and_snapshot(spark: SparkSession, pipeline: Pipeline) -> None:
    for number, phase in enumerate(PHASES, start=1):
        land(pipeline.config.path, phase)
        assert run(pipeline, spark, phase) == {
            "ingest": ["taken"] * 3,
            "materialize": ["staged"] * 3,
            "quality": ["passed"] * 3,
            "confirm": ["published"] * 3,
        }
        for log in LOGS:
            paths = LogPaths(log)
            text = {i for i, c in enumerate(pipeline.log(log).shape.columns) if c.type == "string"}
            expected = truth(log, phase, text)
            assert len(expected) > 0
            for path in (paths.table, paths.snapshot(number)):
                assert read_without_spark(pipeline.store.uri(path)) == expected
            assert read_on_spark(spark, pipeline.store.uri(paths.table)) == expected
    for log in LOGS:
        uri = pipeline.store.uri(LogPaths(log).snapshot(len(PHASES)))
        assert read_on_spark(spark, uri) == read_without_spark(uri)
    store = Path(pipeline.store.uri(""))
    before = contents(store)
    assert run(pipeline, spark, "again") == {
        step: ["nothing"] * 3 for step in ("ingest", "materialize", "quality", "confirm")
    }
    assert contents(store) == before


@pytest.mark.rotates(2)
def test_one_ingest_of_all_phases_gives_the_last_truth(spark: SparkSession, pipeline: Pipeline) -> None:
    for phase in PHASES:
        land(pipeline.config.path, phase)
    run(pipeline, spark, "all")
    state = pipeline.ledger("accounts").read()
    counts = {n: sum(getattr(a, n) for a in state.landed) for n in ("records", "changes", "tombstones", "resent")}
    assert counts["records"] == counts["changes"] + counts["tombstones"] + counts["resent"]
    assert counts["resent"] > 0
    assert counts["tombstones"] > 0
    uri = pipeline.store.uri(LogPaths("accounts").table)
    assert read_on_spark(spark, uri) == read_without_spark(uri) == truth("accounts", "phase3", {3})
