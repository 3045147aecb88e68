"""Two or more logs with their own landing folders, whose changes share segments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from support.landing import record
from tidefold.changelog.segment import read_change_set
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.wiring import open_pipeline

LOG = """
  {log}:
    source: {{format: debezium-json, connector: postgresql, path: landing/{log}}}
    key: [id]
    columns: {{id: int, text: string}}
    key_groups: 16
    buckets: 1
"""
PAIR = ["items", "orders"]


def make(root: Path, logs: Sequence[str] = PAIR) -> Pipeline:
    entries = "".join(LOG.format(log=log) for log in logs)
    (root / "tidefold.yaml").write_text(f"version: 1\nstore: store\nretention: {{snapshots: 2}}\nlogs:{entries}")
    for log in logs:
        (root / "landing" / log).mkdir(parents=True, exist_ok=True)
    return open_pipeline(root / "tidefold.yaml")


def land(root: Path, log: str, start: int, count: int = 1) -> None:
    lines = [record(start + i, item=start + i, topic=log) for i in range(count)]
    path = root / "landing" / log / f"{log}+0+{start:010d}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def land_pair(root: Path, start: int = 0) -> None:
    for log in PAIR:
        land(root, log, start)


def rows(pipeline: Pipeline, log: str) -> list[int]:
    """Returns the offsets in the log. Raises an error if a segment that it names is missing."""
    state = pipeline.ledger(log).find()
    sets = state.change_sets if state else ()
    return sorted(o for c in sets for o in read_change_set(pipeline.store, c)["_offset"].to_pylist())
