"""The sample pipeline: its configuration, its suites, and the landing of its input, phase by phase."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tidefold.installation import sample_folder

PHASES = ("phase1", "phase2", "phase3")
LOGS = ("accounts", "branches", "tellers")

# The sample is small. With this limit Spark does the larger steps, and every step of `accounts`.
SMALL = "16kB"
_CONFIG = """\
# Real changes of a pgbench database, as Debezium wrote them to Kafka and a sink wrote them to files.
version: 1
store: store
{spark}local: {mode: files, path: local}
logs:
  accounts:
    source: {format: debezium-json, connector: postgresql, path: landing/bank.public.pgbench_accounts}
    key: [aid]
    columns: {aid: int, bid: int, abalance: int, filler: string}
    quality: {suite: quality/accounts.yaml}
  branches:
    source: {format: debezium-json, connector: postgresql, path: landing/bank.public.pgbench_branches}
    key: [bid]
    columns: {bid: int, bbalance: int, filler: string}
    buckets: 1
    quality: {suite: quality/branches.yaml}
  tellers:
    source: {format: debezium-json, connector: postgresql, path: landing/bank.public.pgbench_tellers}
    key: [tid]
    columns: {tid: int, bid: int, tbalance: int, filler: string}
    buckets: 1
    quality: {suite: quality/tellers.yaml}
"""

_SUITE = """\
# Checked on every row before it is published, beside the key and the row count, which always are.
checks:
  - not_null: {balance}
  - range: {{column: {balance}, min: -100000000, max: 100000000}}
"""
_BALANCES = {"accounts": "abalance", "branches": "bbalance", "tellers": "tbalance"}


def prepare(root: Path, above: str | None = SMALL) -> Path:
    """Writes the configuration and the suites where there are none; the path of `tidefold.yaml`.

    above: a step that reads more bytes runs on Spark; None: tidefold's own limit, so the sample starts no JVM.
    """
    for log, balance in _BALANCES.items():
        _write(root / "quality" / f"{log}.yaml", _SUITE.format(balance=balance))
        (root / "landing" / f"bank.public.pgbench_{log}").mkdir(parents=True, exist_ok=True)
    spark = f"spark: {{above: {above}}}\n" if above else ""
    _write(root / "tidefold.yaml", _CONFIG.replace("{spark}", spark))
    return root / "tidefold.yaml"


def land(config: Path, phase: str) -> int:
    """Puts a phase's files into the landing folders, as a sink does: each appears whole. Returns how many."""
    folder = sample_folder() / phase
    sources = sorted(folder.glob("*/*"))
    if not sources:
        raise FileNotFoundError(f"The sample input {folder} is missing.")
    for source in sources:
        target = config.parent / "landing" / source.parent.name / source.name
        part = config.parent / "landing.part"
        shutil.copyfile(source, part)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(part, target)
    return len(sources)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text(text)
