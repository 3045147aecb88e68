"""A log with a landing folder whose ledger is set back: its whole life, step by step, each in its own process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from support.landing import record
from support.pipelines import judge_all, rows_of, table_rows
from tidefold.compute.runners import in_process
from tidefold.domain.log_state import LogState, State
from tidefold.domain.paths import LogPaths
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.fold import PointInTime
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline

LOG = "accounts"
PATHS = LogPaths(LOG)
CONFIG = """
version: 1
store: store
snapshots: {{kind: {kind}}}
retention: {{snapshots: 2}}
logs:
  accounts:
    source: {{format: debezium-json, connector: postgresql, path: landing/accounts}}
    key: [id]
    columns: {{id: int, text: string}}
    key_groups: 16
    buckets: 2
"""
Rows = dict[int, str | None]


def opened(root: Path) -> Pipeline:
    return open_pipeline(root / "tidefold.yaml")


def land(root: Path, first: int, count: int = 3) -> None:
    lines = [record(first + i, item=(first + i) % 7, topic=LOG) for i in range(count)]
    path = root / "landing" / LOG / f"{LOG}+0+{first:010d}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def take(root: Path) -> Outcome:
    return ingest(opened(root), [LOG], in_process)[0]


def fold(root: Path, run: str, as_of: int | None = None, **asking: Any) -> Outcome:
    request = Fold(run, **asking) if as_of is None else PointInTime(run, as_of)
    return materialize(opened(root), [LOG], request, in_process)[0]


def publish(root: Path, run: str) -> None:
    judge_all(opened(root))
    assert confirm(opened(root), LOG, Confirmation(run=run)).status == "published"


def copied(root: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(root, target)
    return target


def versions(root: Path) -> list[Path]:
    return sorted((root / "store" / PATHS.ledger).iterdir())


def go_back(root: Path, count: int) -> None:
    """Deletes the newest `count` versions of the ledger, as after a restore of an older backup."""
    for path in versions(root)[-count:]:
        path.unlink()


def published(root: Path) -> Rows:
    return table_rows(opened(root), LOG)


def snapshots(root: Path, of: LogState) -> dict[int, Rows]:
    """Returns the rows of the full snapshots that count by a ledger: what a reader may rely on."""
    store = opened(root).store
    there = {i: s for s in of.snapshots if (i := s.id) and s.state is State.COMPLETED}
    return {i: rows_of(store.uri(PATHS.snapshot(i))) for i in there if store.list(f"{PATHS.snapshot(i)}/_delta_log")}


def begin(root: Path, kind: str = "full") -> Path:
    """Publishes the first and the second snapshot, and leaves something to do."""
    (root / "landing" / LOG).mkdir(parents=True)
    (root / "tidefold.yaml").write_text(CONFIG.format(kind=kind))
    for number in range(2):
        land(root, number * 3)
        take(root)
        fold(root, f"run-{number}")
        publish(root, f"run-{number}")
    land(root, 6)
    return root
