"""Debezium records and landed files for tests, as the connector and a Kafka sink write them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from support.pipelines import judge_all
from tidefold.changelog.segment import read_change_set
from tidefold.compute.runners import in_process
from tidefold.config import load_config
from tidefold.domain.log_state import LogState
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import has_work, ingest, prepare
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.storage import open_store

TOPIC = "shop.public.items"
COUNTS = ("changes", "tombstones", "repeated", "resent", "unproved", "quarantined", "ignored")
CONFIG = """\
version: 1
store: store
logs:
  items:
    source: {{format: debezium-json, connector: postgresql, path: landing/shop.public.items}}
    key: [id]
    columns: {columns}
    key_groups: 16
    buckets: 4
    on_bad_record: {policy}
"""


def make_landing(
    root: Path, columns: str = "{id: int, text: string}", policy: str = "quarantine", more: str = ""
) -> Pipeline:
    """Returns a pipeline with one log `items` and an empty landing folder. `more`: keys of its source."""
    (root / "landing" / TOPIC).mkdir(parents=True, exist_ok=True)
    path = root / "tidefold.yaml"
    path.write_text(CONFIG.format(columns=columns, policy=policy).replace("items}", f"items{more}}}", 1))
    return Pipeline(load_config(path), open_store("store", root))


def find_pending(pipeline: Pipeline, logs: Sequence[str]) -> list[str]:
    """Returns the logs for which an ingest has files to parse."""
    return [one.log for one in prepare(pipeline, logs) if has_work(one)]


def weigh(pipeline: Pipeline, log: str) -> int:
    """Estimates how many bytes an ingest would parse for a log."""
    [plan] = prepare(pipeline, [log])
    assert not isinstance(plan, Outcome), plan
    return plan.weight


def record(offset: int, item: Any = 1, op: str = "c", order: int | None = None, **changes: Any) -> dict[str, Any]:
    """Returns one record whose order rises with its offset. `changes` replace parts of the envelope or of the
    record.
    """
    lsn = 1000 + offset if order is None else order
    row = {"id": item, "text": f"t{lsn}"}
    source = {"connector": "postgresql", "snapshot": "false", "sequence": f'[null,"{lsn}"]', "ts_us": lsn * 1000}
    value: dict[str, Any] = {"before": None, "after": row, "source": source, "op": op}
    if op == "d":
        value |= {"before": row, "after": None}
    whole = {"topic": TOPIC, "partition": 0, "offset": offset, "key": {"id": item}, "value": value, "headers": []}
    for name, new in changes.items():
        if name in whole:
            whole[name] = new
        elif name in value:
            value[name] = new
        else:
            source[name] = new
    return whole


def tombstone(offset: int, item: Any = 1) -> dict[str, Any]:
    return record(offset, item, value=None)


def text_of(records: Iterable[dict[str, Any] | str | bytes]) -> bytes:
    """Returns lines with their line ends. What is not a record is written as it is."""
    lines = [json.dumps(r).encode() if isinstance(r, dict) else r for r in records]
    return b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines)


def land(
    root: Path,
    start: int,
    records: Iterable[dict[str, Any] | str | bytes] | bytes,
    extension: str = "jsonl",
    name: str = "{topic}+0+{start:010d}.{extension}",
) -> Path:
    """Lands a file; returns its path. Bytes are landed as they are."""
    data = records if isinstance(records, bytes) else text_of(records)
    path = root / "landing" / TOPIC / name.format(topic=TOPIC, start=start, extension=extension)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if extension.endswith(".gz") and not isinstance(records, bytes) else data)
    return path


def ingest_items(pipeline: Pipeline) -> Outcome:
    [outcome] = ingest(pipeline, ["items"], in_process)
    return outcome


def take(pipeline: Pipeline) -> Outcome:
    """Runs one ingest, and checks that the counts of every file add up."""
    outcome = ingest_items(pipeline)
    if pipeline.ledger("items").exists():
        for landed in pipeline.ledger("items").read().landed:
            assert landed.records == sum(getattr(landed, name) for name in COUNTS), landed
    return outcome


def fold_waiting(pipeline: Pipeline, run: str) -> None:
    """Folds what was ingested, if there is anything, and publishes the snapshot."""
    if not pipeline.ledger("items").exists():
        return
    [outcome] = materialize(pipeline, ["items"], Fold(run), in_process)
    assert outcome.error_code is None, outcome
    if state_of(pipeline).open_attempt:
        judge_all(pipeline, "items")
        confirm(pipeline, "items", Confirmation(run=run))


def state_of(pipeline: Pipeline) -> LogState:
    return pipeline.ledger("items").read()


def changes_of(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Returns all changes that count, in the order of their offsets."""
    rows = [row for c in state_of(pipeline).change_sets for row in read_change_set(pipeline.store, c).to_pylist()]
    return sorted(rows, key=lambda row: (row["_partition"], row["_offset"]))


def offsets(pipeline: Pipeline) -> list[int]:
    """Returns the offsets of all changes that count, in order."""
    return [row["_offset"] for row in changes_of(pipeline)]


def store_files(root: Path) -> list[Path]:
    return sorted(path for path in (root / "store").rglob("*") if path.is_file())


def quarantined(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Returns all refused records, in the order of the ingested files."""
    paths = dict.fromkeys(entry.quarantine for entry in state_of(pipeline).landed if entry.quarantine)
    return [json.loads(line) for path in paths for line in pipeline.store.read(path).splitlines()]
