"""docs/tutorials/first-table.md is true: its files are landed, its commands run, and its output is what they print."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

import tutorial_page
from tidefold.cli.app import app


def run(words: list[str]) -> tuple[int, str]:
    done = CliRunner().invoke(app, words)
    return done.exit_code, done.output


def test_every_command_of_the_tutorial_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    assert tutorial_page.play(tmp_path, run) > 12
    assert len(DeltaTable("var/store/tables/orders").to_pandas()) == 4
