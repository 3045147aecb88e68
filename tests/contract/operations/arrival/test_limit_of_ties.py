"""Older stores, files with unusable names, and the limit of ties, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

from support.arrival import Landing

DAILY = "key: [id]\ncolumns: {id: long, v: string, day: date}\norder: [day]"
DAY = "2026-11-01"


def land(at: Landing, name: str, value: str) -> None:
    at.land(name, [{"id": 1, "v": value, "day": DAY}])


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_a_store_of_an_older_form_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    at = Landing.make(tmp_path / "at", {"o": DAILY}, "format: csv")
    land(at, "a.csv", "a")
    at.run()
    for head in (at.folder / "store/logs/o/ledger").iterdir():
        head.write_text(json.dumps({**json.loads(head.read_text()), "format": 4}))
    land(at, "b.csv", "b")
    before = contents(at.folder / "store")
    for words in (
        ("run",),
        (
            "step",
            "ingest",
        ),
        (
            "step",
            "materialize",
        ),
        ("status",),
        ("move", "rebuild", "o", "--yes"),
    ):
        assert "LEDGER_OLDER" in at.call(*words, code=None).output, words
        assert contents(at.folder / "store") == before, words
    at.lose_ledger("o")
    [manifest] = (at.folder / "store/logs/o/snapshots").rglob("manifest*")
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 4}))
    before = contents(at.folder / "store")
    assert "MANIFEST_OLDER" in at.call("move", "rebuild", "o", "--yes", code=None).output
    assert contents(at.folder / "store") == before


def test_a_run_that_ignores_every_landed_file_for_its_name_is_an_error(tmp_path: Path) -> None:
    at = Landing.make(tmp_path / "at", {"o": DAILY}, "format: csv")
    at.land("rows.txt", "id,v,day\n1,a,2026-11-01\n")
    assert "FOREIGN_FILE" in at.run(code=2).output
    land(at, "a.csv", "a")
    assert "LOAD_INCOMPLETE" in at.run(code=2).output  # It is still there.
    at.edit("format: csv", "format: csv, leave_out: [rows.txt]")
    at.run()
    assert [row["v"] for row in at.rows("o")] == ["a"]


def test_a_limit_of_ties_is_a_failed_check(tmp_path: Path) -> None:
    at = Landing.make(tmp_path / "at", {"o": f"{DAILY}\nquality: {{max_ties: 0}}"}, "format: csv")
    land(at, "a.csv", "a")
    at.run()
    land(at, "b.csv", "b")
    assert "allowed 0" in at.run(code=3).output
    assert [row["v"] for row in at.rows("o")] == ["a"]


def test_a_compaction_changes_no_verdict_about_ties(tmp_path: Path) -> None:
    """The second run compacts what the failed first one left, by itself, as a tail or by hand."""
    logs = {
        engine: f"{DAILY}\nmerge: {{engine: {engine}, deletes: ignore}}\nquality: {{max_ties: 0}}"
        for engine in ("last", "first")
    }
    at = Landing.make(tmp_path / "at", logs, "format: csv", top="compaction: {change_sets: 1}\n")
    at.land("o.csv", f"id,v,day\n9,x,{DAY}\n")
    at.run()
    land(at, "a.csv", "a")
    at.call("step", "ingest")
    land(at, "b.csv", "b")
    for words in ((), ("snapshot", "tail", "last"), ("snapshot", "tail", "first"), ("retain", "compact", "first")):
        if words:
            at.call(*words)
        said = at.run(code=3).output
        assert said.count("allowed 0") == 2, (words, said)
        assert [row["v"] for log in logs for row in at.rows(log)] == ["x", "x"]


def test_validate_warns_of_orders_that_often_tie(tmp_path: Path) -> None:
    logs = {
        "day": DAILY,
        "inside": "key: [id, n]\ncolumns: {id: long, n: long}\norder: [n]",
        "right": DAILY.replace("[day]", "[day, file]"),
    }
    said = Landing.make(tmp_path / "at", logs, "format: csv").call("validate").output
    assert "logs.day.order: `day` is a date" in said
    assert "logs.inside.order: `n` lies inside the key" in said
    assert "logs.right" not in said
