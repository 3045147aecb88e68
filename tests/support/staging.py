"""Logs with staged snapshots whose rows and files a test chooses, and the gate for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from support.builders import arrival
from tidefold.changelog.schema import table_schema
from tidefold.delta.publish import create_snapshot_table
from tidefold.domain.ingest.append import append
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import Snapshot, SnapshotKind, TableSpec
from tidefold.domain.paths import DataFileName, LogPaths, data_path
from tidefold.domain.snapshot import claim as claims
from tidefold.domain.snapshot import transitions
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.domain.source_progress import NO_PROGRESS
from tidefold.ledger import write_manifest
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.quality.judge import judge
from tidefold.quality.run.spark_rows import SparkEngine
from tidefold.wiring import Pipeline, open_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = """\
  {log}:
    source: {{format: debezium-json, connector: postgresql, path: landing/{log}}}
    key: [{key}]
    columns: {{aid: int, bid: int, filler: string}}
    quality: {{suite: {log}.yaml, max_row_drop: 0.5}}
"""
Row = tuple[int | None, int | None, str | None]
ROWS: list[Row] = [(i, i % 3, f"row {i}") for i in range(100)]


def make_pipeline(tmp_path: Path, store: str) -> Pipeline:
    logs = LOG.format(log="accounts", key="aid") + LOG.format(log="pairs", key="aid, bid")
    (tmp_path / "tidefold.yaml").write_text(f"version: 1\nstore: '{store}'\nlogs:\n{logs}")
    for log in ("accounts", "pairs"):
        (tmp_path / f"{log}.yaml").write_text("expectations: []")
    return open_pipeline(tmp_path / "tidefold.yaml")


def give_suite(pipeline: Pipeline, *expectations: dict[str, Any], log: str = "accounts") -> None:
    (pipeline.config.path.parent / f"{log}.yaml").write_text(json.dumps({"expectations": expectations}))


def stage(
    pipeline: Pipeline,
    rows: list[Row],
    log: str = "accounts",
    run: str = "run-1",
    alter: Callable[[DataFile], DataFile] = lambda file: file,
) -> Snapshot:
    """Makes a staged snapshot with these rows in one file. `alter` changes its manifest."""
    shape = pipeline.log(log).shape
    ledger = pipeline.ledger(log)
    ledger.begin(shape)
    ledger.commit(lambda state: append(state, [arrival(state)]))
    claim = claims.Claim(run, "request", SnapshotKind.FULL, "2026-01-01T00:00:00+00:00")
    snapshot = ledger.commit(lambda state: claims.claim(state, claim)).open_attempt
    assert snapshot
    files = tuple(alter(f) for f in write_file(pipeline, log, shape, snapshot, rows))
    what = (
        log,
        snapshot.id,
        snapshot.epoch,
        SnapshotKind.FULL,
        snapshot.base,
        snapshot.from_sqn,
        snapshot.to_sqn,
        shape,
    )
    manifest = Manifest(*what, files, NO_PROGRESS, token=snapshot.token)
    create_snapshot_table(pipeline.store, manifest)
    digest = write_manifest(pipeline.store, manifest)
    staged = ledger.commit(lambda state: transitions.stage(state, manifest, digest)).open_attempt
    assert staged
    return staged


def write_file(pipeline: Pipeline, log: str, shape: TableSpec, snapshot: Snapshot, rows: list[Row]) -> list[DataFile]:
    if not rows:
        return []
    # The file itself can hold a null key, whatever the table's schema says: that is what the gate is for.
    schema = pa.schema([field.with_nullable(True) for field in table_schema(shape)])
    table = pa.table(
        [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)],
        schema=schema,
    )
    span = KeyGroups(0, shape.key_groups - 1)
    name = str(DataFileName(span, snapshot.id, snapshot.epoch, "0" * 32, snapshot.token))
    path = data_path(LogPaths(log).snapshot(snapshot.id), name)
    with pipeline.store.create(path) as stream:
        pq.write_table(table, stream)
    data = pipeline.store.read(path)
    # Statistics as the fold writes them for a table whose key is never null.
    stats = json.dumps({"numRecords": len(rows), "nullCount": dict.fromkeys(schema.names, 0)})
    return [DataFile(name, len(data), len(rows), sha256(data).hexdigest(), span, stats)]


def judge_one(pipeline: Pipeline, spark: SparkSession | None, log: str = "accounts") -> Outcome:
    [outcome] = judge(pipeline, [log], None, SparkEngine(spark) if spark else None)
    return outcome


def complete(
    pipeline: Pipeline, spark: SparkSession, rows: list[Row], log: str = "accounts", run: str = "base"
) -> None:
    """Makes a published snapshot, as the base of the next one."""
    snapshot = stage(pipeline, rows, log, run)
    assert judge_one(pipeline, spark, log).status == "passed"
    ledger = pipeline.ledger(log)
    ledger.commit(lambda state: transitions.record_publication(transitions.confirm(state, snapshot.id), snapshot.id, 0))
