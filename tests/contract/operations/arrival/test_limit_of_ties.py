"""How many changes of equal order a check allows, and what warns of them, through the command line."""

from __future__ import annotations

from pathlib import Path

from support.arrival import Landing

DAILY = "key: [id]\ncolumns: {id: long, v: string, day: date}\norder: [day]"
DAY = "2026-11-01"


def land(at: Landing, name: str, value: str) -> None:
    at.land(name, [{"id": 1, "v": value, "day": DAY}])


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
