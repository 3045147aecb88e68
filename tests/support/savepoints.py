"""What the tests of savepoints share: a log with three snapshots, an import into another store, independent readers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import polars
import pyarrow.parquet as pq

from support.pipelines import CONFIG, copy_pipeline, judge_all, make_pipeline, put, rows_of, table_rows
from tidefold.changelog.schema import DELETE
from tidefold.compute.runners import in_process
from tidefold.domain.external_snapshot import Layout, Ownership
from tidefold.operations.ground.originals import open_address
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, read_rows
from tidefold.operations.requests import Fold, Import
from tidefold.operations.savepoint.take import SavepointRequest, take_savepoint
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize

Rows = dict[int, str | None]
FIRST: Rows = {i: f"a {i}" for i in range(40)}
SECOND: Rows = {**{i: f"a {i}" for i in range(5, 40)}, 7: "b 7", 50: "b 50"}
THIRD: Rows = {**{i: f"a {i}" for i in range(5, 40)}, 7: "c 7", 50: "b 50", 51: "c 51"}
# Removed when the process ends.
_templates = TemporaryDirectory()
KEEPING = CONFIG.replace("store: store\n", "store: store\nretention: {snapshots: 2}\n")


def changed(pipeline: Pipeline, rows: Rows, changes: Rows, *, commits: bool = False) -> Rows:
    """Appends one change set (None: a delete), with `commits` as a transaction, and returns the rows after it."""
    rows_ = [{"id": i, "text": t, **({} if t else {"_op": DELETE})} for i, t in changes.items()]
    put(pipeline, rows_, transaction=pipeline.ledger("accounts").read().last_sqn + 1 if commits else 1)
    return {i: t for i, t in {**rows, **changes}.items() if t}


def finish(pipeline: Pipeline, run: str) -> Outcome:
    judge_all(pipeline)
    return confirm(pipeline, "accounts", Confirmation(run=run))


def cycle(pipeline: Pipeline, run: str) -> Outcome:
    [outcome] = materialize(pipeline, ["accounts"], Fold(run), in_process)
    assert outcome.status == "staged", outcome
    finish(pipeline, run)
    return outcome


def make(folder: Path, config: str = CONFIG) -> Pipeline:
    """A copy of a pipeline, made once, with snapshots 1 to 3, each of one change set, with the rows above."""
    if "://" in config:
        return _make(folder, config)
    return copy_pipeline(_find_template(config), folder)


@cache
def _find_template(config: str) -> Path:
    folder = Path(_templates.name) / str(len(list(Path(_templates.name).iterdir())))
    _make(folder, config)
    return folder


def _make(folder: Path, config: str) -> Pipeline:
    pipeline = make_pipeline(folder, config)
    rows = changed(pipeline, {}, FIRST)
    cycle(pipeline, "run-1")
    rows = changed(pipeline, rows, {**dict.fromkeys(range(5)), 7: "b 7", 50: "b 50"})
    cycle(pipeline, "run-2")
    rows = changed(pipeline, rows, {7: "c 7", 51: "c 51"})
    cycle(pipeline, "run-3")
    assert rows == THIRD == table_rows(pipeline)
    return pipeline


def save(pipeline: Pipeline, address: Path | str, layout: Layout = Layout.NATIVE, **how: object) -> Outcome:
    return take_savepoint(pipeline, "accounts", replace(SavepointRequest(str(address), layout=layout), **how))  # type: ignore[arg-type]


def bring(pipeline: Pipeline, address: Path | str, mode: Ownership = Ownership.NO_CLAIM, run: str = "in") -> Outcome:
    """Imports up to the staged snapshot."""
    asking = Import(run, open_address(str(address)).uri(""), mode)
    [outcome] = materialize(pipeline, ["accounts"], asking, in_process)
    return outcome


def bring_in(pipeline: Pipeline, address: Path | str, mode: Ownership = Ownership.NO_CLAIM, run: str = "in") -> Outcome:
    outcome = bring(pipeline, address, mode, run)
    assert outcome.status == "staged", outcome
    finish(pipeline, run)
    return outcome


def canonical_rows(address: Path) -> Rows:
    """Returns the rows of plain Parquet files, read by pyarrow, DuckDB and Polars, which must agree."""
    paths = sorted(str(p) for p in (address / "rows").glob("*.parquet"))
    one = sorted(duckdb.sql(f"SELECT id, text FROM '{address}/rows/*.parquet'").fetchall())
    two = polars.read_parquet(f"{address}/rows/*.parquet").sort("id").rows()
    tables = [pq.ParquetFile(p).read().to_pylist() for p in paths]
    three = sorted((row["id"], row["text"]) for rows in tables for row in rows)
    assert one == two == three
    assert len(dict(one)) == len(one)
    return dict(one)


def saved_rows(address: Path, layout: Layout) -> Rows:
    return rows_of(str(address)) if layout is Layout.NATIVE else canonical_rows(address)


def snapshot_rows(pipeline: Pipeline, snapshot: int) -> Rows:
    _, batches = read_rows(pipeline, "accounts", ReadRequest(snapshot=snapshot))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["text"] for row in rows}
