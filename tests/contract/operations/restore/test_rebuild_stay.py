"""Whoever went back to stay there stays there, also after the ledger that knew it is lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars
import pytest

from support.commands import call

CONFIG = """\
version: 1
store: store
spark: {above: 1GB}
logs:
  sales:
    source: {format: json, record: value, path: landing}
    key: [id]
    order: [day]
    columns: {id: long, day: {type: date, encoding: iso}, amount: long}
"""


def amounts() -> list[int]:
    rows: list[int] = polars.read_delta("store/tables/sales").sort("id")["amount"].to_list()
    return rows


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two versions, of which the second changed both rows."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "landing").mkdir()
    (tmp_path / "tidefold.yaml").write_text(CONFIG)
    for day in (1, 2):
        rows = [{"id": n, "day": f"2026-01-0{day}", "amount": 100 * day + n} for n in (1, 2)]
        (tmp_path / f"landing/{day}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        call("run")
    return tmp_path


def go_back(position: str) -> None:
    for words in (
        ("restore", "sales", "1", "--log-position", position),
        ("step", "quality", "sales"),
        ("step", "confirm", "sales"),
    ):
        call(*words)
    assert amounts() == [101, 102]


@pytest.mark.parametrize("position", ["stay", "replay"])
def test_after_a_rebuild_the_log_is_stopped_and_says_so(store: Path, position: str) -> None:
    go_back(position)
    shutil.rmtree(store / "store/logs/sales/ledger")
    told = call("move", "rebuild", "sales", "--yes").stdout
    assert "snapshot 3 went back to 1, and whether its rows stay is lost" in told
    assert "`tidefold move resume sales`" in told
    assert "sales: skipped: " in call("run").output
    assert amounts() == [101, 102]
    call("move", "resume", "sales")
    call("run")
    assert amounts() == [201, 202]


@pytest.mark.parametrize(("position", "then"), [("skip", [101, 102]), ("replay", [201, 202])])
def test_a_log_that_left_the_changes_out_or_has_folded_them_again_is_not_stopped(
    store: Path, position: str, then: list[int]
) -> None:
    go_back(position)
    call("run")
    assert amounts() == then
    shutil.rmtree(store / "store/logs/sales/ledger")
    assert "went back" not in call("move", "rebuild", "sales", "--yes").stdout
    call("run")
    assert amounts() == then
