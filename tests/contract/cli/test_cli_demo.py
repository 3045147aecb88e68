"""`demo` publishes the sample in a new folder, and `jars` fetches nothing that is there."""

from __future__ import annotations

import json
from pathlib import Path

import polars
import pytest
from typer.testing import CliRunner, Result

from tidefold.cli.app import app


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_the_demo_publishes_plain_delta_tables_without_a_jvm(folder: Path) -> None:
    done = call("demo", "--format", "json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert [o["result"] for o in told["outcomes"]].count("published") == 6
    assert not (folder / "tidefold-demo" / "var" / "log").exists()
    assert len(polars.read_delta(str(folder / "tidefold-demo/store/tables/accounts"))) == 5_048


def test_the_demo_touches_no_folder_that_is_there(folder: Path) -> None:
    (folder / "mine").mkdir()
    refused = call("demo", "mine")
    assert (refused.exit_code, "error [DEMO_EXISTS]" in refused.stderr) == (3, True)
    assert list((folder / "mine").iterdir()) == []


def test_jars_that_are_there_are_not_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidefold.spark.jars.subprocess.run", None)
    assert json.loads(call("spark", "jars", "--format", "json").stdout)["fetched"] is False


def test_a_jar_that_cannot_be_had_is_an_error_with_the_way_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho ':: WARNINGS' 'WARN: module not found'\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(folder))
    monkeypatch.setenv("TIDEFOLD_JARS", str(folder / "jars"))
    failed = call("spark", "jars")
    assert (failed.exit_code, "error [JARS_NOT_FETCHED]" in failed.stderr) == (6, True)
    assert "TIDEFOLD_JARS" in failed.stderr


def test_a_demo_on_spark_without_jars_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `tidefold spark jars` the same command works."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEFOLD_JARS", str(tmp_path / "jars"))
    done = CliRunner().invoke(app, ["demo", "--spark"])
    assert done.exit_code != 0
    assert "JARS_MISSING" in done.output
    assert list(tmp_path.iterdir()) == []
