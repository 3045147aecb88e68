"""A log of plain JSON changes with a time of their own: landed, ingested, folded, judged and published in this process.

A judge that says yes stands for Spark's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.pipelines import judge_all
from tidefold.compute.runners import in_process
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.ledger import read_manifest
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline

LOG = "items"
CONFIG = """
version: 1
store: store
snapshots: {{kind: incremental}}
retention: {{snapshots: 2}}
logs:
  items:
    source: {{format: json, path: landing, record: value, op: {{column: op}}}}
    columns: {{id: int, at: long, text: string}}
    key_groups: 16
    buckets: 4
    {rest}
"""
BY_TIME = "key: [id]\n    order: [at]"


def opened(folder: Path, rest: str = BY_TIME) -> Pipeline:
    (folder / "landing").mkdir(parents=True, exist_ok=True)
    (folder / "tidefold.yaml").write_text(CONFIG.format(rest=rest))
    return open_pipeline(folder / "tidefold.yaml")


def put(item: int, at: int, text: str) -> dict[str, Any]:
    return {"op": "u", "id": item, "at": at, "text": text}


def gone(item: int, at: int) -> dict[str, Any]:
    return {"op": "d", "id": item, "at": at}


def land(folder: Path, start: int, records: Sequence[dict[str, Any] | str]) -> Path:
    path = folder / "landing" / f"items+0+{start:010d}.jsonl"
    lines = [one if isinstance(one, str) else json.dumps(one) for one in records]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def take(pipeline: Pipeline) -> Outcome:
    [outcome] = ingest(pipeline, [LOG], in_process)
    return outcome


def publish(pipeline: Pipeline, run: str) -> Manifest:
    """Folds what waits, and publishes it."""
    [outcome] = materialize(pipeline, [LOG], Fold(run), in_process)
    assert outcome.status == "staged", outcome
    judge_all(pipeline, LOG)
    assert confirm(pipeline, LOG, Confirmation(run=run)).status == "published"
    latest = pipeline.ledger(LOG).read().latest
    assert latest
    return read_manifest(pipeline.store, LOG, latest)


def rows(pipeline: Pipeline, what: What = What.TABLE) -> list[tuple[Any, ...]]:
    """(id, at, text) of all rows, sorted."""
    _, batches = read_rows(pipeline, LOG, ReadRequest(what))
    return sorted((r["id"], r["at"], r["text"]) for batch in batches for r in batch.to_pylist())
