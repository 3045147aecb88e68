"""The logs of a set as of an instant: whole transactions, the same in all tables."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from support.bank_sets import (
    BANK,
    ENDS,
    KEYS,
    LOGS,
    check_bank,
    config,
    count_records,
    count_violations,
    land,
    make_bank,
    replay,
    run,
)
from tidefold.cli.app import app
from tidefold.domain.commit_times import format_instant
from tidefold.domain.snapshot.point_in_time import find_kept
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, read_rows
from tidefold.wiring import open_pipeline

ALL = {name: count_records(name) for name in (*LOGS, ENDS)}


@cache
def _commit_times() -> dict[int, int]:
    """Returns the commit time of each transaction, by the position of its commit."""
    positions = {}
    for one in (json.loads(line)["value"] for line in BANK.list_lines(ENDS)):
        if one["status"] == "END":
            number, position = one["id"].split(":")
            positions.setdefault(number, int(position))
    found: dict[int, int] = {}
    for log in LOGS:
        for value in (json.loads(line)["value"] for line in BANK.list_lines(log)):
            if value and value["transaction"]:
                found[positions[value["transaction"]["id"].split(":")[0]]] = value["source"]["ts_us"]
    return found


def _expect(at: int) -> dict[str, dict[int, dict[str, Any]]]:
    times = _commit_times()
    before = [position for position, time in times.items() if time < at]
    # In this capture, the order of commit times is that of the positions.
    return replay().rows[max(before, default=min(replay().rows))]


@pytest.fixture
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    make_bank(tmp_path, config() + "spark: {above: 1GB}\n")
    monkeypatch.chdir(tmp_path)
    return open_pipeline(tmp_path / "tidefold.yaml")


def call(*given: str) -> Result:
    return CliRunner().invoke(app, list(given), prog_name="tidefold")


def _read(pipeline: Pipeline, at: int) -> dict[str, dict[int, dict[str, Any]]]:
    rows: dict[str, dict[int, dict[str, Any]]] = {log: {} for log in LOGS}
    for log in LOGS:
        kept = find_kept(pipeline.ledger(log).read(), at)
        if kept:
            _, batches = read_rows(pipeline, log, ReadRequest(snapshot=kept.id))
            rows[log] = {row[KEYS[log]]: row for batch in batches for row in batch.to_pylist()}
    return rows


def test_all_tables_have_the_transactions_before_the_instant(bank: Pipeline, tmp_path: Path) -> None:
    land(tmp_path, ALL)
    run(bank, "r1")
    published = check_bank(bank)
    for number, at in enumerate(random.Random(4).sample(sorted(_commit_times().values()), 3)):
        done = call("snapshot", "as-of", "--at", format_instant(at), "--run", f"past-{number}")
        assert done.exit_code == 0, done.output
        rows = _read(bank, at)
        assert rows == _expect(at)
        assert count_violations(rows) == 0
        assert check_bank(bank) == published
    run(bank, "r2")
    assert check_bank(bank) == published


def test_references_are_judged_at_the_same_instant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest rows lack values of then. Each balance of an account must be one of the accounts at the instant."""
    (tmp_path / "balances.yaml").write_text(
        "checks:\n- references: {column: abalance, to: accounts.abalance, staged: true}\n"
        "- references: {column: bid, to: branches.bid}\n"
    )
    text = config().replace("  accounts:\n", "  accounts:\n    quality: {suite: balances.yaml}\n")
    bank = make_bank(tmp_path, text + "spark: {above: 1GB}\n")
    monkeypatch.chdir(tmp_path)
    land(tmp_path, ALL)
    run(bank, "r1")
    at = sorted(_commit_times().values())[len(_commit_times()) // 2]
    done = call("snapshot", "as-of", "--at", format_instant(at))
    assert done.exit_code == 0, done.output
    assert _read(bank, at) == _expect(at)
    newest = {row["abalance"] for row in replay().rows[max(replay().rows)]["accounts"].values()}
    assert {row["abalance"] for row in _expect(at)["accounts"].values()} - newest


def test_one_log_of_a_set_as_of_an_instant_does_not_touch_the_set(bank: Pipeline, tmp_path: Path) -> None:
    land(tmp_path, ALL)
    run(bank, "r1")
    before = bank.set_ledger("bank").read()
    done = call("snapshot", "as-of", "tellers", "--at", format_instant(max(_commit_times().values())))
    assert done.exit_code == 0, done.output
    assert "is kept by its tag" in done.stdout
    assert bank.set_ledger("bank").read() == before
