"""docs/tutorials/first-table.md is true: its files are landed, its commands run, and its output is what they print."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from local_airflow.settings import PROJECT
from tidefold.cli.app import app

_FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_EXIT = re.compile(r"  # exit code (\d)$")


def split_commands(block: str) -> Iterator[tuple[str, list[str]]]:
    """Each command, with the lines that the page shows of its output."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *shown = part.rstrip("\n").split("\n")
        yield command, shown


def run(command: str, shown: list[str]) -> None:
    wanted = _EXIT.search(command)
    program, *words = shlex.split(_EXIT.sub("", command))
    assert program == "tidefold"
    done = CliRunner().invoke(app, words)
    assert done.exit_code == (int(wanted[1]) if wanted else 0), done.output
    for line in shown:
        assert line in done.output, f"{command}\n{done.output}"


def test_every_command_of_the_tutorial_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    commands = 0
    for language, title, block in _FENCE.findall((PROJECT / "docs" / "tutorials" / "first-table.md").read_text()):
        if title:
            (tmp_path / title).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / title).write_text(block)
        for command, shown in split_commands(block) if language == "console" else ():
            run(command, shown)
            commands += 1
    assert commands > 12
    assert len(DeltaTable("var/store/tables/orders").to_pandas()) == 4
