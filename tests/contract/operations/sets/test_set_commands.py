"""The commands of a whole set: what they print, what they refuse, and their exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from support.bank_sets import ENDS, LOGS, check_bank, config, land, make_bank, run
from tidefold.cli.app import app
from tidefold.operations.sets.restore import find_earlier_version
from tidefold.wiring import open_pipeline

FIRST = {"accounts": 310, "branches": 20, "tellers": 20, "history": 12, ENDS: 12}
SECOND = {"accounts": 420, "branches": 120, "tellers": 130, "history": 110, ENDS: 40}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands") / "bank"
    pipeline = make_bank(folder, config() + "spark: {above: 1GB}\n")
    for number, upto in enumerate((FIRST, SECOND), 1):
        land(folder, upto)
        run(pipeline, f"r{number}")
    return folder


@pytest.fixture
def bank(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bank"
    shutil.copytree(template, folder)
    monkeypatch.chdir(folder)
    return folder


def call(*given: str) -> Result:
    return CliRunner().invoke(app, list(given), prog_name="tidefold")


def call_json(*given: str) -> Any:
    result = call(*given, "--format", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_set_is_restored_judged_and_confirmed(bank: Path) -> None:
    pipeline = open_pipeline(bank / "tidefold.yaml")
    first = find_earlier_version(pipeline, "bank", 1).position
    done = call("restore", "--set", "bank", "--version", "1", "--log-position", "replay", "--run", "back")
    assert done.exit_code == 0, done.output
    assert "then tidefold step confirm accounts, which publishes the whole set" in done.stderr
    assert check_bank(pipeline) != first
    assert call("step", "quality", *LOGS).exit_code in (0, 3)
    for log in LOGS:
        # The gate of the rows: the earlier version has fewer.
        call("step", "confirm", log, "--override-by", "me", "--reason", "the later changes were wrong")
    assert check_bank(pipeline) == first
    lines = call("set", "show", "bank").stdout.splitlines()
    assert lines[0].startswith(f"bank: version 3 at position {first}, since ")
    assert lines[0].endswith(", restored from version 1")
    assert any(line.startswith("  earlier: version 1 at ") for line in lines)


def test_a_dry_run_says_what_a_restore_of_a_set_would_do(bank: Path) -> None:
    pipeline = open_pipeline(bank / "tidefold.yaml")
    before = [pipeline.ledger(log).read() for log in LOGS]
    asked = ("restore", "--set", "bank", "--version", "1", "--log-position", "replay", "--dry-run")
    text = call(*asked)
    assert text.exit_code == 0, text.output
    for log in LOGS:
        assert f"{log}: planned: would restore snapshot" in text.stdout
    shown = call_json(*asked)
    assert [one["log"] for one in shown["outcomes"]] == list(LOGS)
    assert all(one["facts"]["buckets"] for one in shown["outcomes"])
    assert [pipeline.ledger(log).read() for log in LOGS] == before


def test_what_would_break_the_set_is_refused(bank: Path) -> None:
    refused = {
        ("restore", "--set", "bank", "--version", "1", "--log-position", "skip"): "SET_REPLAYS",
        ("restore", "--set", "bank", "--version", "1"): "LOG_POSITION_MISSING",
        ("restore", "--set", "bank", "--log-position", "replay"): "SET_VERSION_MISSING",
        ("restore", "tellers", "1", "--set", "bank", "--log-position", "replay"): "SET_OPTIONS",
        ("restore", "tellers", "1", "--log-position", "replay"): "SET_TOGETHER",
        ("restore", "--log-position", "replay"): "LOG_MISSING",
        ("restore", "tellers", "--log-position", "replay"): "SNAPSHOT_MISSING",
        ("restore", "--set", "none", "--version", "1", "--log-position", "replay"): "SET_UNKNOWN",
        ("restore", "--set", "bank", "--version", "7", "--log-position", "replay"): "SET_VERSION_UNKNOWN",
        ("move", "import", "tellers", "elsewhere"): "SET_TOGETHER",
        ("retain", "drop", "tellers", "--yes"): "SET_TOGETHER",
        ("step", "confirm", "tellers", "--override-by", "me", "--reason", "late"): "NOTHING_TO_OVERRIDE",
        ("check", "drill", "tellers", "--set", "bank"): "SET_OPTIONS",
    }
    for given, code in refused.items():
        result = call(*given)
        assert result.exit_code != 0, given
        assert f"[{code}]" in result.output, (given, result.output)


def test_a_drill_tests_all_tables_and_their_sums(bank: Path) -> None:
    done = call("check", "drill", "--set", "bank")
    assert done.exit_code == 0, done.output
    position = find_earlier_version(open_pipeline(bank / "tidefold.yaml"), "bank").position
    assert f"bank: passed: version 2 at position {position}: 4 tables restored, 1 sum compared" in done.stdout


def test_the_tables_of_an_earlier_version_are_written_to_a_folder(bank: Path, tmp_path: Path) -> None:
    said = call_json("move", "export", "--set", "bank", "--version", "1", "--to", str(tmp_path / "elsewhere"))
    assert [one["result"] for one in said["outcomes"]] == ["exported"] * len(said["outcomes"])
    assert (tmp_path / "elsewhere" / "tellers" / "_delta_log").is_dir()


def test_earlier_versions_that_are_not_shown_are_counted(bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = call("set", "show", "bank").stdout.splitlines()
    assert not any("more earlier" in line for line in lines)
    monkeypatch.setattr("tidefold.operations.sets.read.SHOWN_VERSIONS", 0)
    lines = call("set", "show", "bank").stdout.splitlines()
    assert "  and 1 more earlier version: `tidefold set show bank --format json`" in lines
    assert len(call_json("set", "show", "bank")["sets"][0]["earlier"]) == 1


def test_a_missing_transaction_topic_is_reported_once_with_its_key(bank: Path) -> None:
    topic = bank / "landing" / "bank.transaction"
    shutil.rmtree(topic)
    result = call("step", "ingest")
    assert result.exit_code == 4
    assert result.stderr.splitlines()[0] == (
        f"error {', '.join(LOGS)}: [SET_TRANSACTIONS_MISSING] `sets.bank.transactions`: nothing lands in `{topic}`, "
        "because it does not exist."
    )
    assert result.stderr.count("error ") == 1
    assert "next: Let the connector's topic `PREFIX.transaction` land there" in result.stderr
    assert {one["error"] for one in json.loads(call("step", "ingest", "--format", "json").stdout)["outcomes"]} == {
        "SET_TRANSACTIONS_MISSING"
    }
