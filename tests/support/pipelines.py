"""A small real pipeline for tests: a configuration file, a store, change sets appended directly, a gate without
Spark.
"""

from __future__ import annotations

import shutil
import uuid
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder

from support.segments import write_segment
from tidefold.changelog.key_group_hash import with_key_groups
from tidefold.changelog.schema import CLEAR, UPSERT, change_schema
from tidefold.compute.runners import in_process
from tidefold.domain.ingest.append import IngestedFile, append
from tidefold.domain.log_state import LandedFileRecord, LogState, Position, Verdict
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot import transitions
from tidefold.domain.source_progress import StreamPosition
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline

CONFIG = """
version: 1
store: store
logs:
  accounts:
    source: {format: debezium-json, connector: postgresql, path: landing/accounts}
    key: [id]
    columns: {id: int, text: string}
    key_groups: 16
    buckets: 4
  tellers:
    source: {format: debezium-json, connector: postgresql, path: landing/tellers}
    key: [id]
    columns: {id: int, text: string}
    key_groups: 16
    buckets: 4
"""


def make_pipeline(folder: Path, config: str = CONFIG) -> Pipeline:
    for name in ("accounts", "tellers"):
        (folder / "landing" / name).mkdir(parents=True, exist_ok=True)
    (folder / "tidefold.yaml").write_text(config)
    return open_pipeline(folder / "tidefold.yaml")


def copy_pipeline(template: Path, folder: Path) -> Pipeline:
    """Opens a copy of a pipeline that was made once for many tests."""
    shutil.copytree(template, folder, dirs_exist_ok=True)
    return open_pipeline(folder / "tidefold.yaml")


def put(pipeline: Pipeline, changes: list[dict[str, Any]], log: str = "accounts", transaction: int = 1) -> LogState:
    """Appends one change set; each change has id, text, and may have _op and _o1 (default: its place in the log)."""
    shape = pipeline.log(log).shape
    ledger = pipeline.ledger(log)
    state = ledger.begin(shape)
    first = state.positions[0].next_offset if state.positions else 0
    rows = [
        {
            "_op": UPSERT,
            "_kg": 0,
            "_o0": transaction,
            "_o1": first + i,
            "_partition": 0,
            "_offset": first + i,
            "_ts": 0,
            **change,
        }
        for i, change in enumerate(changes)
    ]
    return put_table(pipeline, pa.Table.from_pylist(rows, schema=change_schema(shape)), log, transaction)


def put_table(pipeline: Pipeline, rows: pa.Table, log: str = "accounts", transaction: int = 1) -> LogState:
    """Appends one change set whose offsets go on from those of the log. Its key groups are computed here."""
    shape = pipeline.log(log).shape
    ledger = pipeline.ledger(log)
    state = ledger.begin(shape)
    first = state.positions[0].next_offset if state.positions else 0
    table = with_key_groups(rows, shape)
    # A clear of the whole table is in each key group, and says in which.
    whole = pc.and_(pc.equal(rows["_op"], CLEAR), pc.is_null(rows[shape.key[0]])) if shape.key else None
    if whole is not None and pc.any(whole).as_py():
        at = table.schema.get_field_index("_kg")
        table = table.set_column(at, table.schema.field(at), pc.if_else(whole, rows["_kg"], table["_kg"]))
    path = f"changelog/test/{uuid.uuid4().hex}.seg"
    [part] = write_segment(pipeline.store, path, [(log, table)])
    count = len(rows)
    end = first + count
    high = (transaction, end - 1)
    change_set = part.change_set(high)
    landed = LandedFileRecord(
        0, f"{log}+0+{first:010d}.jsonl", 1, "", log, 0, first, end, count, count, 0, 0, 0, 0, None
    )
    return ledger.commit(
        lambda s: append(s, [IngestedFile(landed, change_set, Position(log, 0, end, StreamPosition(high)))])
    )


def judge_all(pipeline: Pipeline, log: str = "accounts", passed: bool = True) -> None:
    """Gives the staged snapshot a verdict, as the gate would."""

    def move(state: LogState) -> LogState:
        attempt = state.open_attempt
        assert attempt
        assert attempt.manifest
        verdict = Verdict(passed, "suite", attempt.manifest, "report.html", "1 of 1 checks failed: made to")
        return transitions.record_verdict(state, attempt.id, verdict)

    pipeline.ledger(log).commit(move)


def publish(pipeline: Pipeline, run: str, log: str = "accounts") -> None:
    """Folds the changes of a log into a snapshot, judges it, and publishes it."""
    materialize(pipeline, [log], Fold(run), in_process)
    judge_all(pipeline, log)
    confirm(pipeline, log)


def ingest_and_publish(pipeline: Pipeline, run: str) -> Outcome:
    """Ingests, folds, judges and publishes the only log, without a JVM. Returns the outcome of the ingest."""
    [log] = pipeline.config.logs
    [outcome] = ingest(pipeline, [log], in_process)
    publish(pipeline, run, log)
    return outcome


def rows_of(uri: str, options: dict[str, str] | None = None) -> dict[int, str | None]:
    """Returns the rows of a Delta table, read by deltalake and by Polars, which must agree."""
    table = sorted(_table(DeltaTable(uri, storage_options=options)).to_pylist(), key=lambda row: row["id"])
    assert polars.read_delta(uri, storage_options=options).sort("id").to_dicts() == table
    rows = {row["id"]: row["text"] for row in table}
    assert len(rows) == len(table)
    return rows


def _table(table: DeltaTable) -> pa.Table:
    # deltalake's way to Arrow refuses deletion vectors; its SQL does not.
    if table.protocol().min_reader_version < 3:
        return table.to_pyarrow_table()
    return pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())


def table_rows(pipeline: Pipeline, log: str = "accounts") -> dict[int, str | None]:
    return rows_of(pipeline.store.uri(LogPaths(log).table), pipeline.store.options())


def snapshot_rows(pipeline: Pipeline, snapshot: int, log: str = "accounts") -> dict[int, str | None]:
    return rows_of(pipeline.store.uri(LogPaths(log).snapshot(snapshot)), pipeline.store.options())


def contents(folder: Path) -> dict[str, bytes]:
    """Returns every file below a folder with its bytes."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def with_log_shape(pipeline: Pipeline, **changes: Any) -> Pipeline:
    """Returns the same pipeline with the configuration of `accounts` changed."""
    log = pipeline.log("accounts")
    of_table = {name: changes.pop(name) for name in [f.name for f in fields(log.shape)] if name in changes}
    log = log.model_copy(update={**changes, "shape": replace(log.shape, **of_table)})
    config = pipeline.config.model_copy(update={"logs": {**pipeline.config.logs, "accounts": log}})
    return replace(pipeline, config=config)
