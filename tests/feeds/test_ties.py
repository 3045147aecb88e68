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
