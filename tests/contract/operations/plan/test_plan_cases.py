"""Tests of a configuration: sample files and the rows that must come out, without a store of the pipeline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.commands import attempt, call

CONFIG = """\
version: 1
store: s3://a-bucket-that-nobody-reaches/store
logs:
  orders:
    source: {format: csv, path: landing/orders, op: {column: op, delete: [D]}}
    key: [id, line]
    order: [changed]
    columns: {id: long, line: int, amount: "decimal(12,2)", text: string, changed: timestamp}
    quality: {suite: suite.yaml}
  others: {columns: {id: long}, key: [id], order: arrival}
  table: {source: {format: delta, table: t}, columns: {id: long}, key: [id]}
"""
SUITE = "checks:\n  - range: {column: amount, min: 0, max: 1000}\n"
FIRST = """\
op,id,line,amount,text,changed
U,1,1,5.00,a,2026-11-01 10:00:00
U,1,2,6.00,"",2026-11-01 10:00:00
U,2,1,7.00,b,2026-11-01 10:00:00
"""
SECOND = """\
op,id,line,amount,text,changed
U,1,1,5.50,,2026-11-02 10:00:00
D,2,1,,,2026-11-02 10:00:00
"""
ROWS = """\
id,line,amount,text,changed
1,2,6,"",2026-11-01T11:00:00+01:00
1,1,5.5,,2026-11-02 10:00:00
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tidefold.yaml").write_text(CONFIG)
    (tmp_path / "suite.yaml").write_text(SUITE)
    for case in ("corrections", "first"):
        (tmp_path / "cases" / case / "landing").mkdir(parents=True)
        (tmp_path / "cases" / case / "landing/orders-1.csv").write_text(FIRST)
        (tmp_path / "cases" / case / "rows.csv").write_text(ROWS)
    (tmp_path / "cases/corrections/landing/orders-2.csv").write_text(SECOND)
    (tmp_path / "cases/first/rows.csv").write_text("line,id\n1,1\n2,1\n1,2\n")
    return tmp_path


def test_cases_that_come_out_as_expected_exit_0_and_leave_nothing(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    done = call("plan", "orders", "--cases", "cases").output
    assert "corrections: as expected: 2 rows" in done
    assert "first: as expected: 3 rows" in done
    assert sorted(folder.rglob("*")) == before
    alone = call("plan", "orders", "--sample", "cases/first/landing").output
    assert "landing: no rows to compare with: 3 rows" in alone
    call("plan", "orders", "--sample", "cases/first/landing", "--expect", "cases/first/rows.csv")


@pytest.mark.parametrize(
    ("former", "now", "told"),
    [
        ("key: [id, line]", "key: [id]", ["- id=1, line=2, amount=6.00, text=, changed=2026-11-01 10:00:00+00:00"]),
        ("delete: [D]", "delete: [X], upsert: [U, D]", ["+ id=2, line=1, amount=null, text=null"]),
        ("order: [changed]", "order: file", []),
        ('"decimal(12,2)"', "int", ["refused orders-1.csv, line 2: VALUE_INVALID", "- id=1, line=1"]),
    ],
)
def test_an_edit_shows_the_rows_that_differ(folder: Path, former: str, now: str, told: list[str]) -> None:
    (folder / "tidefold.yaml").write_text(CONFIG.replace(former, now))
    done = call("plan", "orders", "--cases", "cases", code=3 if told else 0).output
    assert ("corrections: NOT as expected" in done) == bool(told)
    for line in told:
        assert line in done


def test_a_gate_that_refuses_the_rows_fails_the_case(folder: Path) -> None:
    (folder / "suite.yaml").write_text(SUITE.replace("1000", "5"))
    done = json.loads(attempt("plan", "orders", "--cases", "cases", "--format", "json").stdout)
    assert done["exit_code"] == 3
    assert [(one["name"], one["passed"], one["missing"]) for one in done["cases"]] == [
        ("corrections", False, []),
        ("first", False, []),
    ]
    assert done["cases"][0]["gate"].startswith("failed")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("orders", "--sample", "cases", "--cases", "cases"), 2, "PLAN_OPTIONS"),
        (("orders", "--expect", "cases/first/rows.csv"), 2, "PLAN_OPTIONS"),
        (("orders", "--cases", "cases/first/landing"), 4, "CASES_MISSING"),
        (("orders", "--sample", "cases/first/landing", "--expect", "none.csv"), 2, "EXPECTED_ROWS"),
        (("orders", "--sample", "cases/first/landing", "--expect", "tidefold.yaml"), 2, "EXPECTED_ROWS"),
        (("nothing", "--cases", "cases"), 4, "LOG_NOT_CONFIGURED"),
        (("others", "--cases", "cases"), 3, "a program writes it"),
        (("table", "--cases", "cases"), 3, "follows the versions of a Delta table"),
    ],
)
def test_what_cannot_be_tried_is_refused_by_name(folder: Path, words: tuple[str, ...], code: int, told: str) -> None:
    assert told in call("plan", *words, code=code).output


def test_samples_without_any_change_are_an_error_of_their_case(folder: Path) -> None:
    (folder / "empty").mkdir()
    assert "[PLAN_EMPTY]" in call("plan", "orders", "--sample", "empty", code=3).output
    (folder / "cases/first/landing/orders-1.csv").write_text("op,id\nU,1\n")
    done = call("plan", "orders", "--cases", "cases", code=3).output
    assert "corrections: as expected" in done
    assert "first: NOT as expected" in done
    assert "LANDED_SCHEMA" in done
