"""Readers of a set: the command line, the Spark data source's plan, and the tables at their versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.bank_sets import ALL, LAST, LOGS, SET, config, land, make_bank, replay, run
from tidefold.cli.app import app


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published set. Then all tables are published once more, each alone, by a configuration without sets."""
    folder = tmp_path_factory.mktemp("bank")
    pipeline = make_bank(folder)
    land(folder, {name: count // 2 for name, count in ALL.items()})
    run(pipeline, "r1")
    land(folder, ALL)
    run(make_bank(folder, config("")), "alone")
    make_bank(folder, config(SET))
    return folder


def _invoke(bank: Path, *given: str) -> dict:
    result = CliRunner().invoke(app, [*given, "--config", str(bank / "tidefold.yaml"), "--format", "json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_command_line_reads_the_point_of_the_set(bank: Path) -> None:
    version = make_bank(bank).set_ledger("bank").read().published
    assert version
    rows = _invoke(bank, "read", "tellers", "--set", "bank")["rows"]
    assert {row["tid"]: row for row in rows} == replay().rows[version.position]["tellers"]
    newest = _invoke(bank, "read", "tellers")["rows"]
    assert {row["tid"]: row for row in newest} == replay().rows[LAST]["tellers"]


def test_the_pointer_names_tables_and_versions(bank: Path) -> None:
    [found] = _invoke(bank, "set", "show", "bank")["sets"]
    assert {log: one["version"] for log, one in found["tables"].items()} == dict.fromkeys(LOGS, 0)
    assert found["published"]["number"] == 1
    assert CliRunner().invoke(app, ["set", "show", "none", "--config", str(bank / "tidefold.yaml")]).exit_code == 4


def test_the_data_source_plans_the_snapshot_of_the_set(bank: Path) -> None:
    from tidefold.spark.data_source import plan_of

    options = {"config": str(bank / "tidefold.yaml"), "log": "tellers"}
    of_set, newest = plan_of({**options, "set": "bank"}), plan_of(options)
    assert of_set.files != newest.files
    assert of_set.files == plan_of({**options, "snapshot": "1"}).files


def test_a_log_outside_the_set_is_refused(bank: Path) -> None:
    command = ["read", "tellers", "--set", "others", "--config", str(bank / "tidefold.yaml")]
    assert "SET_UNKNOWN" in CliRunner().invoke(app, command).output


def test_a_restore_into_one_table_of_a_set_is_refused(bank: Path) -> None:
    command = ["restore", "tellers", "1", "--log-position", "skip", "--config", str(bank / "tidefold.yaml")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 3
    assert "SET_TOGETHER" in result.output
