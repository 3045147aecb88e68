"""The fold on real Spark workers, and its tables read by Spark. Requirements A1, N1; promises I5, I25."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.pipelines import judge_all, make_pipeline, put, table_rows
from tidefold.changelog.schema import DELETE
from tidefold.compute.runners import in_process, on_spark
from tidefold.domain.paths import LogPaths
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return make_pipeline(tmp_path)


def test_both_logs_fold_in_one_round_and_spark_reads_the_same_rows(spark: SparkSession, pipeline: Pipeline) -> None:
    first = [{"id": i, "text": f"a {i}"} for i in range(1000)]
    put(pipeline, first)
    put(pipeline, first[:10], log="tellers")
    outcomes = materialize(pipeline, ["accounts", "tellers"], Fold("run-1"), on_spark(spark))
    assert [o.status for o in outcomes] == ["staged", "staged"]
    for log in ("accounts", "tellers"):
        judge_all(pipeline, log)
        confirm(pipeline, log)
    put(pipeline, [{"id": 5, "text": None, "_op": DELETE}, {"id": 6, "text": "b"}])
    materialize(pipeline, ["accounts"], Fold("run-2"), on_spark(spark))
    judge_all(pipeline)
    confirm(pipeline, "accounts")
    rows = table_rows(pipeline)
    assert (len(rows), rows[6], rows.get(5)) == (999, "b", None)
    for path in (LogPaths("accounts").table, LogPaths("accounts").snapshot(2)):
        read = spark.read.format("delta").load(pipeline.store.uri(path))
        assert {row["id"]: row["text"] for row in read.collect()} == rows
        # The bounds in the log must never hide a row from a filter.
        assert read.where("id = 999").count() == 1
        assert read.where("text = 'a 999'").count() == 1


def test_spark_and_one_process_make_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    changes = [{"id": i % 50, "text": f"{i}"} for i in range(300)]
    found = []
    for number, run in enumerate((in_process, on_spark(spark))):
        pipeline = make_pipeline(tmp_path / str(number))
        for start in range(0, 300, 60):
            put(pipeline, changes[start : start + 60])
        materialize(pipeline, ["accounts"], Fold("run"), run)
        judge_all(pipeline)
        confirm(pipeline, "accounts")
        found.append(table_rows(pipeline))
    assert found[0] == found[1]


def test_every_type_is_read_alike_by_spark_deltalake_and_polars(spark: SparkSession, tmp_path: Path) -> None:
    columns = "{id: int, b: boolean, l: long, f: float, d: double, text: string, day: date, at: timestamp}"
    config = f"""
version: 1
store: store
logs:
  accounts:
    source: {{format: debezium-json, connector: postgresql, path: landing/accounts}}
    key: [id]
    columns: {columns}
    key_groups: 16
    buckets: 2
"""
    import polars
    from deltalake import DeltaTable

    pipeline = make_pipeline(tmp_path, config)
    whole = {"b": True, "l": 2**62, "f": 0.5, "d": -1e300, "text": "ü" * 40, "day": 19_000, "at": 1_700_000_000_123_456}
    put(pipeline, [{"id": 1, **whole}, {"id": 2, **dict.fromkeys(whole)}, {"id": 3, **whole, "d": float("nan")}])
    materialize(pipeline, ["accounts"], Fold("run"), in_process)
    judge_all(pipeline)
    confirm(pipeline, "accounts")
    uri = pipeline.store.uri(LogPaths("accounts").table)
    arrow = DeltaTable(uri).to_pyarrow_table().sort_by("id").to_pylist()
    assert str(polars.read_delta(uri).sort("id").to_dicts()) == str(arrow)
    read = spark.read.format("delta").load(uri)
    seen = [row.asDict() for row in read.orderBy("id").collect()]
    for mine, theirs in zip(arrow, seen, strict=True):
        assert str({**mine, "at": None}) == str({**theirs, "at": None})
    for where in ("at >= '2023-11-14 22:13:20.123456'", "day = date'2022-01-08'", "d > 1", f"text = '{'ü' * 40}'"):
        found = {row["id"] for row in read.where(where).collect()}
        assert found == ({3} if where == "d > 1" else {1, 3}), where
