"""Sixty kinds of feeds of three days: `init`, at most two edited lines, and `run` give each row and value."""

from __future__ import annotations

import json
import re
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from support import effort
from support.feeds.days import DAYS, KINDS, Kind, Row
from support.person import Person, take_first
from tidefold.cli.app import app


def _init(who: Person, kind: Kind) -> None:
    words = ["init", "landing", *(["--interactive"] if kind.answers else [])]
    done = CliRunner(env={"COLUMNS": "160"}).invoke(app, words, input=f"{kind.answers}\n\n")
    assert done.exit_code == 0, done.output
    path = who.folder / "tidefold.yaml"
    text = take_first(re.sub(r"(?m)^  # ", "  ", path.read_text()))
    assert len(kind.edits) + len(kind.answers.split()) <= 2
    for old, new in kind.edits.items():
        lines = [line for line in text.splitlines() if old in line and not line.lstrip().startswith("#")]
        assert lines, (old, text)
        text = text.replace(lines[0], lines[0].replace(old, new) if new else "", 1)
    path.write_text(text)


def _plain(value: Any) -> Any:
    """A number as a decimal, whatever its type: JSON has no other. A text that looks like one stays a text."""
    if isinstance(value, float | Decimal):
        return Decimal(repr(value) if isinstance(value, float) else value).normalize()
    return value.isoformat() if isinstance(value, datetime) else value


def _shown(rows: list[Row]) -> list[str]:
    return sorted(str(sorted((n, _plain(v)) for n, v in row.items())) for row in rows)


@pytest.mark.rotates(8)
@pytest.mark.parametrize("name", KINDS)
def test_three_days_of_a_feed_become_its_table(name: str, person: Person) -> None:
    kind = KINDS[name]
    history = kind.history(effort.SEED)
    (person.folder / "tidefold.yaml").unlink()
    for file in (person.folder / "landing").rglob("*.*"):
        file.unlink()
    for day in DAYS[: kind.days]:
        kind.write(person.folder / "landing", history, day)
    _init(person, kind)
    for day in DAYS[kind.days - 1 :]:
        if day > kind.days:
            kind.write(person.folder / "landing", history, day)
        done = person.call("run", "--format", "json")
        assert done.exit_code == 0, done.output
        for step in json.loads(done.stdout)["steps"]["ingest"]:
            assert (step["facts"]["refused"], step["facts"]["problems"]) == ({}, []), step["message"]
    [table] = [path.parent for path in (person.folder / "var/store/tables").glob("*/_delta_log")]
    rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    assert _shown([{n: v for n, v in row.items() if n != "_order"} for row in rows]) == _shown(kind.truth(history))
