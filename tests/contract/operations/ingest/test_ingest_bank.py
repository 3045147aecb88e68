"""Real Debezium output, phase by phase: what is taken equals the database's own dump (tests/data/bank)."""

from __future__ import annotations

import csv
import gzip
import io
import shutil
from pathlib import Path
from typing import Any

import pytest

from support.landing import find_pending
from support.sftp_server import SftpBucket
from tidefold.changelog.schema import DELETE
from tidefold.changelog.segment import read_change_set
from tidefold.compute.runners import in_process
from tidefold.config import load_config
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.storage import open_store
from tidefold.wiring import open_pipeline

BANK = Path(__file__).parents[3] / "data" / "bank"
KEYS = {"accounts": "aid", "branches": "bid", "tellers": "tid"}
CONFIG = """\
version: 1
store: store
logs:
  accounts:
    source: {format: debezium-json, connector: postgresql, path: landing/bank.public.pgbench_accounts}
    key: [aid]
    columns: {aid: int, bid: int, abalance: int, filler: string}
  branches:
    source: {format: debezium-json, connector: postgresql, path: landing/bank.public.pgbench_branches}
    key: [bid]
    columns: {bid: int, bbalance: int, filler: string}
  tellers:
    source: {format: debezium-json, connector: postgresql, path: landing/bank.public.pgbench_tellers}
    key: [tid]
    columns: {tid: int, bid: int, tbalance: int, filler: string}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    (tmp_path / "tidefold.yaml").write_text(CONFIG)
    return Pipeline(load_config(tmp_path / "tidefold.yaml"), open_store("store", tmp_path))


def replayed(pipeline: Pipeline, log: str) -> dict[int, dict[str, Any]]:
    """The rows after all changes, by a plain dictionary in the order of the changes."""
    state = pipeline.ledger(log).read()
    order = ("_o0", "_o1", "_partition", "_offset")
    changes = [row for c in state.change_sets for row in read_change_set(pipeline.store, c).to_pylist()]
    rows: dict[int, dict[str, Any]] = {}
    for change in sorted(changes, key=lambda row: [row[name] for name in order]):
        key = change[KEYS[log]]
        if change["_op"] == DELETE:
            rows.pop(key, None)
        else:
            rows[key] = {c.name: change[c.name] for c in state.shape.columns}
    return rows


def truth(log: str, phase: int) -> dict[int, dict[str, Any]]:
    """No text of the sample is empty, so an empty field is null."""
    with gzip.open(BANK / "truth" / f"phase{phase}" / f"pgbench_{log}.csv.gz") as raw:
        found = list(csv.DictReader(io.TextIOWrapper(raw, "utf-8")))
    return {
        int(row[KEYS[log]]): {n: None if v == "" else v if n == "filler" else int(v) for n, v in row.items()}
        for row in found
    }


def test_every_phase_equals_the_truth(pipeline: Pipeline, tmp_path: Path) -> None:
    logs = list(KEYS)
    messages = []
    for phase in (1, 2, 3):
        shutil.copytree(BANK / "landing" / f"phase{phase}", tmp_path / "landing", dirs_exist_ok=True)
        assert find_pending(pipeline, logs) == logs
        outcomes = ingest(pipeline, logs, in_process)
        messages += [outcome.message for outcome in outcomes]
        for log in logs:
            assert replayed(pipeline, log) == truth(log, phase)
        assert find_pending(pipeline, logs) == []
    assert all(message.startswith("took ") and "quarantined" not in message for message in messages)


def test_every_phase_equals_the_truth_over_sftp(tmp_path: Path, sftp: SftpBucket) -> None:
    (tmp_path / "tidefold.yaml").write_text(CONFIG.replace("landing/", f"{sftp.root}/landing/"))
    test_every_phase_equals_the_truth(open_pipeline(tmp_path / "tidefold.yaml"), tmp_path)


def test_taken_all_at_once_it_is_the_same_and_the_records_sent_again_are_counted(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    for phase in (1, 2, 3):
        shutil.copytree(BANK / "landing" / f"phase{phase}", tmp_path / "landing", dirs_exist_ok=True)
    outcomes = {o.log: o for o in ingest(pipeline, list(KEYS), in_process)}
    for log in KEYS:
        assert replayed(pipeline, log) == truth(log, 3)
        assert outcomes[log].facts["resent"] > 0
        assert any(c.floor for c in pipeline.ledger(log).read().change_sets)
