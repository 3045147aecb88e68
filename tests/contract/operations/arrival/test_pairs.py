"""An update that is a delete and an insert of one order, in any rows of a file (decision 0069)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from deltalake import DeltaTable
from typer.testing import CliRunner

from tidefold.cli.app import app

RUNNER = CliRunner()
ROWS = ("1,paid,INSERT", "1,new,DELETE", "2,new,DELETE")


def run(
    root: Path, monkeypatch: pytest.MonkeyPatch, order: list[str], form: str, pairs: bool = True, limit: int | None = 0
) -> tuple[str, list[tuple[int, str]]]:
    op = {"column": "act", "upsert": ["INSERT"], "delete": ["DELETE"], "pairs": pairs}
    source = {"format": form, "path": "landing/o", "op": op} | ({"record": "value"} if form == "json" else {})
    columns = {"id": "long", "status": "string"} | ({"at": "long"} if order == ["at"] else {})
    log = {"source": source, "key": ["id"], "order": order, "columns": columns}
    log |= {"quality": {"max_ties": limit}} if pairs and limit is not None else {}
    (root / "tidefold.yaml").write_text(yaml.safe_dump({"version": 1, "store": "store", "logs": {"o": log}}))
    monkeypatch.chdir(root)
    result = RUNNER.invoke(app, ["run"])
    table = DeltaTable(root / "store/tables/o").to_pyarrow_table().to_pylist()
    return result.output, sorted((row["id"], row["status"]) for row in table)


def land(root: Path, name: str, rows: tuple[str, ...], form: str, order: list[str], at: int) -> None:
    names = ("id", "status", "act", "at") if order == ["at"] else ("id", "status", "act")
    cells = [(*row.split(","), str(at))[: len(names)] for row in rows]
    lines = [",".join(names), *map(",".join, cells)]
    if form == "json":
        typed = ({n: int(c) if n in ("id", "at") else c for n, c in zip(names, row, strict=True)} for row in cells)
        lines = [json.dumps(row) for row in typed]
    (root / "landing/o").mkdir(parents=True, exist_ok=True)
    (root / "landing/o" / f"{name}.{form if form == 'csv' else 'jsonl'}").write_text("\n".join(lines) + "\n")


@pytest.mark.rotates(4)
@pytest.mark.parametrize("form", ["csv", "json"])
@pytest.mark.parametrize("order", [["file"], ["at"]])
def test_the_insert_of_a_pair_wins_in_any_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, order: list[str]
) -> None:
    for runs, rows in ((1, ROWS), (2, ROWS), (1, ROWS[::-1])):
        root = tmp_path / f"{runs}-{rows[0][0]}"
        land(root, "o-2026-11-01", ("1,new,INSERT", "2,new,INSERT"), form, order, 1)
        if runs == 2:
            run(root, monkeypatch, order, form)
        land(root, "o-2026-11-02", rows, form, order, 2)
        output, table = run(root, monkeypatch, order, form)
        assert table == [(1, "paid")], output
        assert "ties" not in output


def test_without_pairs_the_later_row_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    land(tmp_path, "o-2026-11-01", (*ROWS, "3,new,INSERT"), "csv", ["at"], 1)
    assert run(tmp_path, monkeypatch, ["at"], "csv", pairs=False)[1] == [(3, "new")]


@pytest.mark.parametrize("runs", [1, 2])
def test_a_pair_in_two_files_that_land_in_reverse_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    """The delete may be a real one, so it counts. Nothing is silent, and the next step brings the row back."""
    land(tmp_path, "a", ("1,new,INSERT", "2,new,INSERT", "9,new,INSERT"), "csv", ["at"], 1)
    land(tmp_path, "b", ("1,paid,INSERT", "3,new,INSERT"), "csv", ["at"], 2)
    if runs == 2:
        run(tmp_path, monkeypatch, ["at"], "csv")
    land(tmp_path, "c", ("1,new,DELETE", "2,new,DELETE"), "csv", ["at"], 2)
    output, _ = run(tmp_path, monkeypatch, ["at"], "csv", limit=None)
    assert 'have no row: {"id": 1, "order": [2]}. If the source has the row' in output
    assert "ties: 1 key has" in output
    land(tmp_path, "d", ("1,paid,INSERT",), "csv", ["at"], 2)
    output, table = run(tmp_path, monkeypatch, ["at"], "csv", limit=None)
    assert table == [(1, "paid"), (3, "new"), (9, "new")], output
    assert "have no row" not in output
