"""Somebody in a terminal, who reads what tidefold says, does it, and knows nothing else."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from tidefold.cli.app import app

CONFIG = """\
version: 1
store: var/store
logs:
  orders:
    source:
      format: csv
      path: landing/orders
      op: {column: op}
    key: [order_id]
    columns:
      order_id: long
      customer: string
      total: decimal(12,2)
      updated_at: timestamp
    order: [updated_at]
  lines:
    source: {format: json, path: landing/lines, record: value, op: {column: op}}
    key: [id]
    columns: {id: long, text: string, ts: {type: timestamp, encoding: iso}}
    order: [ts]
"""
HEAD = "op,order_id,customer,total,updated_at\n"
ROWS = "I,1,Ann,1.50,2026-11-01 08:00:00\nI,2,Bob,2.50,2026-11-01 08:01:00\n"
LINE = '{"op":"I","id":1,"text":"a","ts":"2026-11-01T08:00:00Z"}\n'
CODED = re.compile(r"`([^`]+)`")

_ASKED = re.compile(r"## QUESTION (key|order):((?:[^\n]|\n  ##   )*)|(?<=\b)(key|order): \[\?\]")


def take_first(text: str) -> str:
    """Answers the open keys and orders of a file of `init` with their first candidates, if they have one."""
    first: dict[str, str] = {}

    def answer(found: re.Match[str]) -> str:
        about, said, name = found.groups()
        if not about:
            return f"{name}: [{first.get(name, '?')}]"
        first[about] = (
            " ".join(said.replace("\n  ##", "").partition("Candidates: ")[2].partition(";")[0].split()) or "?"
        )
        return found[0]

    return _ASKED.sub(answer, text)


@dataclass
class Person:
    """A person with a folder, which has the configuration and the landed files."""

    folder: Path

    def call(self, *words: str) -> Result:
        return CliRunner(env={"COLUMNS": "160"}).invoke(app, list(words))

    def land(self, name: str, text: str | bytes) -> None:
        path = self.folder / "landing" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)

    def edit(self, old: str, new: str) -> None:
        path = self.folder / "tidefold.yaml"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    def set(self, line: str, *, log: str = "orders", below: str = "") -> None:
        """Puts a line that a message names into the configuration of a log."""
        path = self.folder / "tidefold.yaml"
        config = yaml.safe_load(path.read_text())
        at = config["logs"][log]
        for name in filter(None, below.split(".")):
            at = at.setdefault(name, {})
        at |= yaml.safe_load(line)
        path.write_text(yaml.safe_dump(config, sort_keys=False))

    def follow_command(self, text: str) -> Result:
        """Runs the command that a message names."""
        words = shlex.split(text)
        assert words[0] == "tidefold"
        return self.call(*words[1:])

    def rows(self, log: str = "orders") -> list[dict[str, Any]]:
        done = self.call("run", log)
        assert done.exit_code == 0, done.output
        found = json.loads(self.call("read", log, "--format", "json").stdout)
        return sorted(found["rows"], key=lambda row: row[next(iter(row))])


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Person:
    """A person with two logs, who has run nothing yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    (tmp_path / "tidefold.yaml").write_text(CONFIG)
    who = Person(tmp_path)
    who.land("orders/o1.csv", HEAD + ROWS)
    who.land("lines/l1.jsonl", LINE)
    return who
