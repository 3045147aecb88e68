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


def test_a_delete_that_is_delivered_again_is_no_tie(tmp_path: Path) -> None:
    """In one run, after the table has forgotten all but the order of the delete, and after a compaction.

    Half of the deletes have values of their row: a delete has none. A row and a delete of one order stay a tie.
    """
    columns = "key: [id]\ncolumns: {id: long, v: string, seq: long}\norder: [seq]\nquality: {max_ties: 0}"
    merges = {"last": "{engine: last}", "history": "{engine: history}"}
    logs = {name: f"{columns}\nmerge: {merge}" for name, merge in merges.items()}
    source = "format: csv, op: {column: op}"
    at = Landing.make(tmp_path / "at", logs, source, top="compaction: {change_sets: 1}\n")
    head = "op,id,v,seq\n"
    at.land("1.csv", f"{head}I,1,a,1\nI,2,b,2\n")
    at.land("2.csv", f"{head}D,1,,3\nU,2,c,4\n")
    at.land("3.csv", f"{head}D,1,a,3\nU,2,c,4\nI,3,d,5\n")
    at.run()
    at.land("4.csv", f"{head}D,1,,3\nI,4,d,6\n")
    at.run()
    at.land("5.csv", f"{head}D,1,a,3\nD,4,,7\n")
    at.call("step", "ingest")
    at.land("6.csv", f"{head}D,4,d,7\n")
    at.call("step", "ingest")
    at.call("retain", "compact", "last")
    at.run()
    assert [{row["id"] for row in at.rows("last")}] == [{2, 3}]
    at.land("7.csv", f"{head}I,1,z,3\n")
    assert at.run(code=3).output.count("allowed 0") == 2


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
    local = {"local": "key: [id]\ncolumns: {id: long, at: timestamp}\norder: [at]"}
    for zone, twice in {"Europe/Berlin": True, "Etc/GMT-1": False}.items():
        landing = Landing.make(tmp_path / zone, local, f"format: csv, time_zone: {zone}")
        assert (f"`at` without a zone is in {zone}" in landing.call("validate").output) is twice
