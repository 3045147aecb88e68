"""A delete that brings the row as it was, with the time of its last change: as many programs write it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidefold.cli.app import app


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_delete_with_the_time_of_the_last_upsert_removes_the_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    rows = [(op, i, f"n{i}", f"2026-11-01 08:{i:02d}:00") for op in "ID" for i in range(40) if op == "I" or i % 2]
    names = ("op", "order_id", "name", "updated_at")
    if ending == "csv":
        text = "\n".join(",".join(map(str, row)) for row in [names, *rows]) + "\n"
    else:
        text = "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
    (tmp_path / "landing/orders").mkdir(parents=True)
    (tmp_path / f"landing/orders/orders.{ending}").write_text(text)
    for words in (["init", "landing"], ["run"]):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        assert "question:" not in done.stderr, done.stderr
    found = json.loads(CliRunner().invoke(app, ["read", "orders", "--format", "json"]).stdout)["rows"]
    assert sorted(row["order_id"] for row in found) == list(range(0, 40, 2))


def test_files_order_rows_where_no_column_says_when(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A date of business says nothing of a change, and a date of a change does not order one day."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    heads = {
        "plain": ("id,name", "", "[file]"),
        "business": ("id,name,due_date", ",2026-12-0{}", "[file]"),
        "changed": ("id,name,updated_on", ",2026-11-0{}", "[updated_on, file]"),
        "column": ("id,file,due_date", ",2026-12-0{}", "[?]"),
    }

    def land(log: str, number: int, value: str) -> None:
        head, more, _ = heads[log]
        rows = "".join(f"{i},{value}{i}{more.format(i % 9 + 1)}\n" for i in range(30))
        (tmp_path / "landing" / log).mkdir(parents=True, exist_ok=True)
        (tmp_path / f"landing/{log}/{log}_{number}.csv").write_text(f"{head}\n{rows}")

    for log in heads:
        land(log, 1, "a")
    done = CliRunner().invoke(app, ["init", "landing"])
    assert done.exit_code == 0, done.output
    text = (tmp_path / "tidefold.yaml").read_text()
    proposed = [
        line.partition(" order: ")[2].partition(" #")[0] for line in text.splitlines() if "decides which" in line
    ]
    assert proposed == [heads[log][2] for log in sorted(heads)]
    assert "the later file counts" in text
    logs = ["plain", "business", "changed"]
    assert CliRunner().invoke(app, ["run", *logs]).exit_code == 0
    for log in logs:
        land(log, 0, "b")
    assert CliRunner().invoke(app, ["run", *logs]).exit_code == 0
    for log in logs:
        done = CliRunner().invoke(app, ["read", log, "--format", "json"])
        assert {row["name"][0] for row in json.loads(done.stdout)["rows"]} == {"b"}, log
