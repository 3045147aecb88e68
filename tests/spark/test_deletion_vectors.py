"""Deletion vectors and Spark: the gate judges the rows that count, and Spark's readers see the same. C12, I8."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.pipelines import CONFIG, make_pipeline, put, table_rows
from tidefold.changelog.schema import DELETE
from tidefold.compute.runners import on_spark
from tidefold.domain.paths import data_path
from tidefold.ledger import read_manifest
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.quality.judge import judge
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.quality.run import count_memory
from tidefold.quality.run.count_memory import Turn
from tidefold.quality.run.spark_rows import SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VECTORS = CONFIG.replace("buckets: 4\n", "buckets: 4\n    deletion_vectors: true\n", 1).replace(
    "store: store\n", "store: store\nsnapshots: {kind: incremental}\n"
)


def judged(pipeline: Pipeline, spark: SparkSession, run: str) -> Outcome:
    [staged] = materialize(pipeline, ["accounts"], Fold(run), on_spark(spark))
    assert staged.status == "staged", staged
    [outcome] = judge(pipeline, ["accounts"], run, SparkEngine(spark))
    return outcome


@pytest.fixture
def pipeline(tmp_path: Path, spark: SparkSession) -> Pipeline:
    made = make_pipeline(tmp_path, VECTORS)
    put(made, [{"id": i, "text": f"a {i}"} for i in range(200)])
    judged(made, spark, "run-1")
    confirm(made, "accounts", Confirmation(run="run-1"))
    put(made, [{"id": 1, "text": "b"}, {"id": 2, "text": None, "_op": DELETE}, {"id": 300, "text": "new"}])
    return made


def test_the_gate_and_readers_see_the_rows_that_count(pipeline: Pipeline, spark: SparkSession) -> None:
    outcome = judged(pipeline, spark, "run-2")
    state = pipeline.ledger("accounts").read()
    assert any(f.deletions for f in read_manifest(pipeline.store, "accounts", state.snapshots[-1]).files)
    # With a row that was marked the key would be there twice.
    assert (outcome.status, outcome.facts["rows"]) == ("passed", 200)
    confirm(pipeline, "accounts", Confirmation(run="run-2"))
    expected = {i: {1: "b", 300: "new"}.get(i, f"a {i}") for i in (*range(200), 300) if i != 2}
    found = spark.read.format("delta").load(pipeline.store.uri("tables/accounts"))
    assert {row.id: row.text for row in found.collect()} == table_rows(pipeline) == expected
    # By the statistics and the vectors in its log, without a look at a file.
    assert found.count() == 200
    assert found.where("id = 2").count() == 0
    before = spark.read.format("delta").option("versionAsOf", 0).load(pipeline.store.uri("tables/accounts"))
    assert {row.id: row.text for row in before.collect()} == {i: f"a {i}" for i in range(200)}


@pytest.mark.rotates(8)
@pytest.mark.parametrize("how", ["", " DRY RUN", " LITE", " RETAIN 0 HOURS"])
def test_vacuum_and_its_like_leave_the_table_as_it_was(pipeline: Pipeline, spark: SparkSession, how: str) -> None:
    judged(pipeline, spark, "run-2")
    confirm(pipeline, "accounts", Confirmation(run="run-2"))
    rows, table = table_rows(pipeline), f"delta.`{pipeline.store.uri('tables/accounts')}`"
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    # By default a VACUUM lists the folder in 10,000 tasks.
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "4")
    spark.sql(f"VACUUM {table}{how}")
    assert {row.id: row.text for row in spark.sql(f"SELECT * FROM {table}").collect()} == rows
    put(pipeline, [{"id": 5, "text": "c"}, {"id": 300, "text": None, "_op": DELETE}])
    judged(pipeline, spark, "run-3")
    confirm(pipeline, "accounts", Confirmation(run="run-3"))
    assert table_rows(pipeline) == {**{i: text for i, text in rows.items() if i != 300}, 5: "c"}
    assert {row.id: row.text for row in spark.sql(f"SELECT * FROM {table} VERSION AS OF 1").collect()} == rows


def test_the_gate_reads_no_file_whose_counts_it_has(
    pipeline: Pipeline, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(count_memory, "_find_turns", lambda *_: (set(), Turn()))
    materialize(pipeline, ["accounts"], Fold("run-2"), on_spark(spark))
    manifest = read_manifest(pipeline.store, "accounts", pipeline.ledger("accounts").read().snapshots[-1])
    changed = {file.key_groups for file in manifest.shown if file.deletions or not file.carried}
    kept = [file for file in manifest.shown if file.key_groups not in changed]
    assert kept
    for file in kept:
        path = Path(pipeline.store.uri(data_path(manifest.data_folder, file.name)))
        path.write_bytes(bytes(path.stat().st_size))
    [outcome] = judge(pipeline, ["accounts"], "run-2", SparkEngine(spark))
    assert (outcome.status, outcome.facts["counted_by"]) == ("passed", 1)
    # Two new rows. Of those that left none was bad, so they are not read.
    assert (outcome.facts["rows_read"], outcome.facts["rows_taken_over"]) == (2, 198)
