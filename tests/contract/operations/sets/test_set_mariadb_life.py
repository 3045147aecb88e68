"""Restore of a set whose points are those of a binlog, not of PostgreSQL's log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from support.bank_mariadb import check_bank, count_records, land, list_transactions, make_bank
from support.bank_sets import ENDS, LOGS, run
from support.pipelines import judge_all
from tidefold.compute.runners import in_process
from tidefold.domain.log_state import State
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.inspect.status import status
from tidefold.operations.requests import SnapshotRequest
from tidefold.operations.sets.confirm import confirm_logs
from tidefold.operations.sets.restore import RestoreSet, find_earlier_version, restore_set
from tidefold.operations.sets.status import read_sets
from tidefold.operations.snapshot.materialize import materialize

ALL = {name: count_records(name) for name in (*LOGS, ENDS)}
LAST = list_transactions()[-1]


def _publish(pipeline: Pipeline, run_id: str) -> None:
    for log in LOGS:
        state = pipeline.ledger(log).find()
        if state and state.open_attempt and state.open_attempt.state is State.STAGED:
            judge_all(pipeline, log)
    assert not any(o.error for o in confirm_logs(pipeline, LOGS, run_id))


@pytest.fixture
def bank(tmp_path: Path) -> Pipeline:
    """Two versions: half of the bank, and all of it."""
    pipeline = make_bank(tmp_path / "bank")
    land(tmp_path / "bank", {name: count // 2 for name, count in ALL.items()})
    run(pipeline, "r1")
    land(tmp_path / "bank", ALL)
    run(pipeline, "r2")
    assert check_bank(pipeline) == LAST
    return pipeline


def _step(pipeline: Pipeline, request: SnapshotRequest, logs: Sequence[str]) -> list[Outcome]:
    return materialize(pipeline, logs, request, in_process)


def test_an_earlier_transaction_comes_back(bank: Pipeline) -> None:
    request = RestoreSet("back", "bank", 1)
    assert not any(o.error for o in restore_set(bank, request, lambda logs: _step(bank, request, logs)))
    _publish(bank, "back")
    assert check_bank(bank) == find_earlier_version(bank, "bank", 1).transaction
    run(bank, "r3")
    assert check_bank(bank) == LAST


def test_its_lag_and_slowest_log_are_shown(tmp_path: Path) -> None:
    pipeline = make_bank(tmp_path)
    land(tmp_path, {**ALL, "branches": ALL["branches"] // 2})
    run(pipeline, "r1")
    [found] = read_sets(pipeline, status(pipeline, LOGS))
    assert found.slowest == "branches"
    assert 0 < found.lag < len(list_transactions())
