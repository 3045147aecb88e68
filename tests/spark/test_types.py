"""Columns of every type from landed text to the published table, read by Spark, deltalake and Polars. I5, I28."""

from __future__ import annotations

from base64 import b64encode
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from support.landing import TOPIC, land, record
from support.pipelines import contents
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

pytestmark = pytest.mark.rotates(2, whole=True)

CONFIG = f"""\
version: 1
store: store
logs:
  items:
    source: {{format: debezium-json, connector: postgresql, path: landing/{TOPIC}}}
    key: [price]
    columns:
      price: {{type: 'decimal(20,4)', encoding: string}}
      data: binary
      tags: array<string>
      amounts: {{type: 'array<decimal(9,2)>', encoding: string}}
      times: {{type: array<timestamp>, encoding: iso}}
      days: array<date>
      ok: boolean
      at: {{type: timestamp, encoding: nanos}}
    key_groups: 16
    buckets: 2
"""


def row(price: str) -> dict[str, Any]:
    return {
        "price": price,
        "data": b64encode(price.encode()).decode(),
        "tags": [price, None],
        "amounts": ["1.5", None],
        "times": ["2026-01-01T00:00:00.000001Z"],
        "days": [0, 19_000],
        "ok": True,
        "at": 1_000,
    }


def run(pipeline: Pipeline, spark: SparkSession, name: str) -> list[str]:
    runner, logs = on_spark(spark), ["items"]
    outcomes = [
        *ingest.ingest(pipeline, logs, runner),
        *materialize.materialize(pipeline, logs, Fold(name), runner),
        *judge.judge(pipeline, logs, name, SparkEngine(spark)),
        confirm(pipeline, "items", Confirmation(run=name)),
    ]
    return [outcome.status for outcome in outcomes]


def test_every_type_is_published_and_found_by_every_reader(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "tidefold.yaml").write_text(CONFIG)
    pipeline = open_pipeline(tmp_path / "tidefold.yaml")
    prices = ["0.0001", "-1.5", "1", "9999999999999999.9999", "-9999999999999999.9999"]
    records = [record(i, after=row(p), key={"price": p}) for i, p in enumerate(prices)]
    nulls = dict.fromkeys(row("5")) | {"price": "5.0000"}
    land(tmp_path, 0, [*records, record(9, after=nulls, key={"price": "5.0000"})])
    assert run(pipeline, spark, "one") == ["taken", "staged", "passed", "published"]
    # An update and a delete find their rows by a decimal, however many zeros it has.
    changed = row("1") | {"data": "AA==", "tags": []}
    gone = record(11, op="d", key={"price": "-1.50"}, before=None)
    land(tmp_path, 10, [record(10, op="u", after=changed | {"price": "1.0000"}, key={"price": "1.0000"}), gone])
    assert run(pipeline, spark, "two") == ["taken", "staged", "passed", "published"]
    assert contents(tmp_path / "store")

    uri = pipeline.store.uri(LogPaths("items").table)
    dataset = DeltaTable(uri).to_pyarrow_dataset()
    frame, lazy = spark.read.format("delta").load(uri), polars.scan_delta(uri)
    rows = {r["price"]: r for r in dataset.to_table().to_pylist()}
    assert set(rows) == {Decimal(p) for p in prices if p != "-1.5"} | {Decimal(5)}
    assert (rows[Decimal(1)]["data"], rows[Decimal(1)]["tags"]) == (b"\x00", [])
    assert {r["price"]: r for r in lazy.collect().to_dicts()} == rows
    found = {r["price"]: r.asDict() for r in frame.collect()}
    assert {p: (bytes(r["data"]) if r["data"] else None, r["amounts"], r["days"]) for p, r in found.items()} == {
        p: (r["data"], r["amounts"], r["days"]) for p, r in rows.items()
    }
    for price in rows:
        text = f"price = cast('{price}' as decimal(20,4))"
        assert frame.where(text).count() == 1, text
        assert dataset.to_table(filter=pc.field("price") == price).num_rows == 1
        assert lazy.filter(polars.col("price") == polars.lit(price, dtype=polars.Decimal(20, 4))).collect().height == 1
    assert frame.where("data is null").count() == dataset.to_table(filter=pc.field("data").is_null()).num_rows == 1
    assert frame.where("array_contains(tags, '0.0001')").count() == 1
