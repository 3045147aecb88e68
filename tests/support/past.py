"""The sample's changes, committed on several days, and the rows as of an instant.

The program that computes these rows reads the landed files and knows nothing of tidefold.
"""

from __future__ import annotations

import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

from demo.truth import BANK
from shift_times import commit_time_of, files_below, lines_of, shift
from support.pipelines import judge_all
from tidefold.cli.sample import LOGS
from tidefold.compute.runners import in_process
from tidefold.domain.commit_times import micros
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.requests import Fold
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize

KEYS = {"accounts": "aid", "branches": "bid", "tellers": "tid"}
Rows = dict[int, dict[str, Any]]


def land(config: Path, phase: str, start: datetime, days: int) -> None:
    """A phase of the sample, committed on these days."""
    target = config.parent / f"shifted-{phase}"
    shift(BANK / "landing" / phase, target, start, days)
    for log in LOGS:
        topic = f"bank.public.pgbench_{log}"
        shutil.copytree(target / topic, config.parent / "landing" / topic, dirs_exist_ok=True)


def published(pipeline: Pipeline, run: str) -> None:
    """Makes a snapshot of everything that has landed, and truncates the log as far as possible; in this process."""
    outcomes = ingest(pipeline, LOGS, in_process) + materialize(pipeline, LOGS, Fold(run), in_process)
    assert not [outcome for outcome in outcomes if outcome.error_code]
    for log in LOGS:
        judge_all(pipeline, log)
        confirm(pipeline, log, Confirmation(run=run))
        truncate(pipeline, log)


def rows_before(folder: Path, log: str, at: datetime) -> Rows:
    """Applies the changes from before an instant one after the other, in the order of the database's log."""
    landed = folder / "landing" / f"bank.public.pgbench_{log}"
    records = [json.loads(line) for path in files_below(landed) for line in lines_of(path)]
    before = [r for r in records if (time := commit_time_of(r)) is not None and time < micros(at.isoformat())]
    rows: Rows = {}
    for one in sorted(before, key=_place):
        if one["value"]["op"] == "d":
            rows.pop(one["key"][KEYS[log]], None)
        else:
            rows[one["key"][KEYS[log]]] = one["value"]["after"]
    return rows


def _place(record: dict[str, Any]) -> tuple[list[int], int]:
    return [int(n or -1) for n in json.loads(record["value"]["source"]["sequence"])], record["offset"]
