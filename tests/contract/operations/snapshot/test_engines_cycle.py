"""Engines through the whole life cycle: real files in, snapshots of both kinds, copies, restores, savepoints, readers.

What is kept beside the rows (places of deletes and of single columns) is carried, copied, verified and restored like
any other file, and no reader of the table ever sees it.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import polars
import pytest
from deltalake import DeltaTable

from support.naive import rows_of
from support.pipelines import judge_all
from support.savepoints import bring_in, save
from tidefold.changelog.schema import DELETE, MERGE, UPSERT
from tidefold.compute.runners import in_process
from tidefold.domain.external_snapshot import Ownership
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.claim import KindPolicy, RestoreMode, RestorePoint
from tidefold.domain.table.table_spec import Engine
from tidefold.ledger import read_manifest
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.requests import Fold, Restore
from tidefold.operations.restore.export import drill
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.verify.verify import verify
from tidefold.wiring import open_pipeline

LOG = "accounts"
CONFIG = """
version: 1
store: store
local: {{mode: files, path: local}}
snapshots: {{kind: incremental}}
logs:
  accounts:
    source: {{format: json, path: landing, record: value, op: {{column: op}}}}
    columns: {{id: int, at: long, a: long, b: string}}
    key_groups: 8
    buckets: 2
    {rest}
"""
CASES = {
    "last": ("key: [id]\n    order: [at]", True),
    "first": ("key: [id]\n    order: [at]\n    merge: {engine: first, deletes: ignore}", False),
    "partial": ("key: [id]\n    order: [at]\n    merge: partial", True),
    "groups": (
        "key: [id]\n    merge: {engine: partial, deletes: ignore, groups: [{columns: [a, at], order: [at]}]}",
        False,
    ),
    "history": ("key: [id]\n    order: [at]\n    merge: history", True),
    "aggregate": ("key: [id]\n    merge: {engine: aggregate, aggregates: {a: sum}}", True),
    "append": ("merge: append", False),
}


def opened(folder: Path, rest: str) -> Pipeline:
    (folder / "landing").mkdir(parents=True)
    (folder / "tidefold.yaml").write_text(CONFIG.format(rest=rest))
    return open_pipeline(folder / "tidefold.yaml")


def some_changes(pipeline: Pipeline, seed: random.Random, count: int, deletes: bool) -> list[dict[str, Any]]:
    shape, changes = pipeline.log(LOG).shape, []
    for offset in range(count):
        deleted = deletes and seed.random() < 0.25
        row = {"id": seed.randrange(12), "at": seed.randrange(40)}
        if not deleted:
            row |= {"a": seed.choice([None, seed.randrange(9)]), "b": seed.choice([None, "x", "y"])}
        absent = []
        if shape.merge.engine is Engine.PARTIAL and not deleted:
            absent = [name for name in ("a", "b") if seed.random() < 0.4]
        upsert = MERGE if shape.merge.engine is Engine.AGGREGATE else UPSERT
        change: dict[str, Any] = {"_op": DELETE if deleted else upsert, "_partition": 0, "_offset": offset}
        change |= {"a": None, "b": None, **row, **dict.fromkeys(absent), "_absent": absent or None}
        change |= {"_o0": row["at"]} if shape.order_by else {}
        changes.append(change)
    return changes


def land(folder: Path, changes: list[dict[str, Any]]) -> None:
    lines = []
    for change in changes:
        deleted = change["_op"] == DELETE
        names = ("id", "at") if deleted else ("id", "at", "a", "b")
        row = {name: change[name] for name in names if name not in (change["_absent"] or [])}
        lines.append(json.dumps({"op": "d" if deleted else "u", **row}))
    name = f"accounts+0+{changes[0]['_offset']:010d}.jsonl"
    (folder / "landing" / name).write_text("".join(f"{line}\n" for line in lines))


def cycle(pipeline: Pipeline, run: str, kind: KindPolicy) -> int:
    [taken] = ingest(pipeline, [LOG], in_process)
    assert (taken.error_code, taken.status) == (None, "taken"), taken
    [outcome] = materialize(pipeline, [LOG], Fold(run, kind=kind), in_process)
    assert outcome.status == "staged", outcome
    judge_all(pipeline, LOG)
    assert confirm(pipeline, LOG).status == "published"
    assert outcome.snapshot is not None
    return outcome.snapshot


def seen(pipeline: Pipeline) -> list[dict[str, Any]]:
    """The rows of the table, read by deltalake and by Polars, which must agree; as the naive program has them."""
    uri = pipeline.store.uri(LogPaths(LOG).table)
    table = DeltaTable(uri).to_pyarrow_table().to_pylist()
    assert sorted(map(str, polars.read_delta(uri).to_dicts())) == sorted(map(str, table))
    return comparable(pipeline, table)


def comparable(pipeline: Pipeline, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    shape = pipeline.log(LOG).shape
    names = [column.name for column in shape.columns]
    spans = [("_valid_from", "from"), ("_valid_to", "until")] if shape.merge.engine is Engine.HISTORY else []
    found = [{**{n: row[n] for n in names}, **{ours: row[theirs] for theirs, ours in spans}} for row in rows]
    return sorted(found, key=str)


def expected(pipeline: Pipeline, changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = rows_of(pipeline.log(LOG).shape, changes)
    for row in rows:
        if "from" in row:
            row |= {"from": row["from"][0], "until": row["until"] and row["until"][0]}
    return sorted(rows, key=str)


@pytest.mark.rotates(6)
@pytest.mark.parametrize("name", CASES)
def test_a_life_of_snapshots_of_both_kinds(tmp_path: Path, name: str) -> None:
    """I5, I10, I17: after every snapshot the table has the naive rows, in the end every snapshot comes back."""
    rest, deletes = CASES[name]
    pipeline, seed = opened(tmp_path, rest), random.Random(name)
    changes = some_changes(pipeline, seed, 120, deletes)
    ids, known = [], []
    for step, kind in enumerate((KindPolicy.INCREMENTAL, KindPolicy.FULL, KindPolicy.INCREMENTAL, KindPolicy.FULL)):
        part = changes[30 * step : 30 * step + 30]
        land(tmp_path, part)
        known += part
        ids.append(cycle(pipeline, f"run-{step}", kind))
        assert seen(pipeline) == expected(pipeline, known)
    hidden = [f for s in ids for f in manifest(pipeline, s).files if f.hidden]
    assert bool(hidden) == pipeline.log(LOG).shape.needs_sidecar
    assert verify(pipeline, LOG).error is None
    land(tmp_path, [{**c, "_offset": c["_offset"] + 120} for c in changes[:7]])
    assert ingest(pipeline, [LOG], in_process)[0].status == "taken"
    again = [*changes, *({**c, "_offset": c["_offset"] + 120} for c in changes[:7])]
    _, live = read_rows(pipeline, LOG, ReadRequest(What.LIVE))
    assert comparable(pipeline, [row for batch in live for row in batch.to_pylist()]) == expected(pipeline, again)
    for number, snapshot in enumerate(ids):
        asking = Restore(f"back-{snapshot}", RestorePoint(snapshot, RestoreMode.SKIP))
        [back] = materialize(pipeline, [LOG], asking, in_process)
        assert back.status == "staged", back
        judge_all(pipeline, LOG)
        confirm(pipeline, LOG)
        assert seen(pipeline) == expected(pipeline, changes[: 30 * number + 30])


def manifest(pipeline: Pipeline, snapshot: int) -> Any:
    state = pipeline.ledger(LOG).read()
    found = state.snapshot(snapshot)
    assert found
    return read_manifest(pipeline.store, LOG, found)


@pytest.mark.rotates(6)
@pytest.mark.parametrize("name", ["last", "partial", "history", "aggregate", "append"])
@pytest.mark.parametrize("mode", [Ownership.NO_CLAIM, Ownership.CLAIM])
def test_a_savepoint_carries_what_is_kept_beside_the_rows(tmp_path: Path, name: str, mode: Ownership) -> None:
    """N8, N9: what was deleted there stays deleted here, though the change that comes late is taken in here only."""
    rest, deletes = CASES[name]
    there, here = opened(tmp_path / "there", rest), opened(tmp_path / "here", rest)
    changes = some_changes(there, random.Random(name), 90, deletes)
    land(tmp_path / "there", changes[:60])
    cycle(there, "run-1", KindPolicy.FULL)
    assert save(there, tmp_path / "saved").error_code is None
    bring_in(here, tmp_path / "saved", mode)
    assert seen(here) == expected(here, changes[:60])
    land(tmp_path / "here", changes[60:])
    cycle(here, "run-2", KindPolicy.INCREMENTAL)
    assert seen(here) == expected(here, changes)
    assert verify(here, LOG).error_code is None
    assert drill(here, LOG).error_code is None
