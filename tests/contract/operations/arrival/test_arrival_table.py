"""Each line of the table in decision 0060, through the command line (I5, I25)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.arrival import Landing, Row

DECISION = Path(__file__).parents[4] / "docs/contributors/decisions/0060-places-of-arrival.md"
COLUMNS = "columns: {id: long, v: string, n: long, day: {type: date, encoding: iso}}"
LOGS = {
    "last": f"key: [id]\n{COLUMNS}\norder: [day]",
    "first": f"key: [id]\n{COLUMNS}\norder: [day]\nmerge: {{engine: first, deletes: ignore}}",
    "partial": f"key: [id]\n{COLUMNS}\norder: [day]\nmerge: partial",
    "history": f"key: [id]\n{COLUMNS}\norder: [day]\nmerge: history",
    "aggregate": f"key: [id]\n{COLUMNS}\norder: [day]\n"
    "merge: {engine: aggregate, deletes: ignore, aggregates: {v: max, n: sum, day: max}}",
    "append": f"key: []\n{COLUMNS}\nmerge: append",
}
DAY, LATER = "2026-11-01", "2026-11-02"


def row(value: str, key: int = 1, op: str = "U", **more: Any) -> Row:
    return {"op": op, "id": key, "v": value, "n": 1, "day": DAY, **more}


def one_file(at: Landing, tmp: Path) -> Landing:
    at.land("a.jsonl", [row("a"), row("b")])
    at.run()
    return at


def two_in_one_run(at: Landing, tmp: Path) -> Landing:
    at.land("a.jsonl", [row("a")])
    at.land("b.jsonl", [row("b")])
    at.run()
    return at


def two_runs(at: Landing, tmp: Path) -> Landing:
    at.land("z.jsonl", [row("a")])
    at.run()
    at.land("b.jsonl", [row("b")])
    at.run()
    return at


def same_again(at: Landing, tmp: Path) -> Landing:
    at.land("a.jsonl", [row("a")])
    at.run()
    at.land("b.jsonl", [row("a"), row("x", 2)])
    at.run()
    return at


def first_again(at: Landing, tmp: Path) -> Landing:
    at = two_runs(at, tmp)
    at.land("c.jsonl", [row("a"), row("x", 2)])
    at.run()
    return at


def delete(at: Landing, tmp: Path) -> Landing:
    at.land("a.jsonl", [row("a")])
    at.run()
    at.land("b.jsonl", [row("a", op="D")], "last", "partial", "history")
    at.run()
    return at


def upsert_after_delete(at: Landing, tmp: Path) -> Landing:
    at = delete(at, tmp)
    at.land("a2.jsonl", [row("b")])
    at.run()
    return at


def compacted(at: Landing, tmp: Path) -> Landing:
    at.land("a.jsonl", [row("a")])
    at.run()
    for name in ("c", "b"):  # The later one has the lower name.
        at.land(f"{name}.jsonl", [row("m" if name == "c" else "b")])
        at.call("step", "ingest")
    for log in LOGS:
        at.call("retain", "compact", log)
    at.run()
    return at


def waiting(at: Landing, *files: Row) -> Landing:
    """The table has only another key."""
    at.land("o.jsonl", [row("x", 2)])
    at.run()
    for number, one in enumerate(files):
        at.land(f"{number}.jsonl", [one], *(("last", "partial", "history") if one["op"] == "D" else ()))
        at.call("step", "ingest")
    return at


def compact(at: Landing) -> Landing:
    for log in LOGS:
        at.call("retain", "compact", log)
    at.run()
    return at


def waiting_compacted(at: Landing, tmp: Path) -> Landing:
    return compact(waiting(at, row("a"), row("b")))


def deleted_compacted(at: Landing, tmp: Path) -> Landing:
    return compact(waiting(at, row("a"), row("a", op="D")))


def compacted_apart(at: Landing, tmp: Path) -> Landing:
    """A consumer stands between the two changes of one order."""
    at = waiting(at, row("a"), row("b", day=LATER))
    for log in LOGS:
        at.call("consumer", "register", log, "reader", "--at", "3")
    at.land("m.jsonl", [row("m")])
    at.call("step", "ingest")
    at.land("n.jsonl", [row("n", 3)])
    at.call("step", "ingest")
    return compact(at)


def behind_a_tail(at: Landing, tmp: Path) -> Landing:
    """The tails compact what waits."""
    at = waiting(at, row("a"), row("m"), row("b", day=LATER))
    at.edit("version: 1", "version: 1\ncompaction: {change_sets: 1}")
    at.call("snapshot", "tail", "last")
    at.call("snapshot", "tail", "first")
    at.run()
    return at


def retried(at: Landing, tmp: Path) -> Landing:
    at.land("a.jsonl", [row("x", 2), row("a", op="Q")])
    at.run()
    at.land("b.jsonl", [row("b")])
    at.run()
    at.edit("op: {column: op}", "op: {column: op, upsert: [U, Q]}")
    for log in LOGS:
        at.call("quarantine", "retry", log)
    at.run()
    return at


def rebuilt(at: Landing, tmp: Path) -> Landing:
    at = two_runs(at, tmp)
    for log in LOGS:
        at.lose_ledger(log)
        at.call("move", "rebuild", log, "--yes")
    return _one_more(at)


def imported(at: Landing, tmp: Path) -> Landing:
    return _one_more(two_runs(at, tmp).moved(tmp / "moved", *LOGS))


def _one_more(at: Landing) -> Landing:
    """What landed before is not ingested again, and what lands now is the latest."""
    before = {log: at.rows(log) for log in LOGS}
    at.run()
    assert {log: at.rows(log) for log in LOGS} == before
    at.land("a.jsonl", [row("c")])
    at.run()
    return at


def replayed(at: Landing, tmp: Path) -> Landing:
    at = two_runs(at, tmp)
    at.call("restore", "last", "1", "--log-position", "replay")
    at.call("step", "quality", "last")
    at.call("step", "confirm", "last")
    at.run()
    return at


def same_file(at: Landing, tmp: Path) -> Landing:
    at.land("b.jsonl", [row("a")])
    at.run()
    at.land("a.jsonl", [row("a")])
    at.run()
    return at


SITUATIONS: dict[str, Callable[[Landing, Path], Landing]] = {
    "one file": one_file,
    "two files in one run": two_in_one_run,
    "two runs": two_runs,
    "the same row again": same_again,
    "the first row again after another": first_again,
    "a delete at equal order": delete,
    "an upsert after a delete at equal order": upsert_after_delete,
    "compacted": compacted,
    "waiting, compacted": waiting_compacted,
    "waiting, a delete, compacted": deleted_compacted,
    "below a newer row, compacted apart": compacted_apart,
    "below a newer row, behind a tail": behind_a_tail,
    "retried": retried,
    "rebuilt": rebuilt,
    "imported": imported,
    "restored and replayed": replayed,
    "the same file again": same_file,
}
# How often a row or a file came after the first, in these situations.
ARRIVALS = {"rebuilt": ["a", "b", "c"], "imported": ["a", "b", "c"], "compacted": ["a", "m", "b"]}


def lines() -> list[tuple[str, str, str, str]]:
    """The table of the decision."""
    found = re.findall(r"^\| (\w+) \| ([^|]+) \| ([^|]+) \| (yes|no) \|$", DECISION.read_text(), re.MULTILINE)
    return [(engine, situation.strip(), winner.strip(), tie) for engine, situation, winner, tie in found]


def test_the_table_names_what_is_tried() -> None:
    table = lines()
    assert {situation for _, situation, _, _ in table} == set(SITUATIONS)
    assert {engine for engine, _, _, _ in table} == set(LOGS)


@pytest.mark.rotates(6)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_decided_change_wins_and_ties_are_counted(situation: str, tmp_path: Path) -> None:
    logs = {log: f"{lines}\nquality: {{max_refused: 1, max_row_drop: 1}}" for log, lines in LOGS.items()}
    at = Landing.make(tmp_path / "at", logs)
    arrived = ARRIVALS.get(situation, ["a", "a"] if situation.startswith("the same") else ["a", "b"])
    at = SITUATIONS[situation](at, tmp_path)
    for engine, of, winner, tie in lines():
        if of != situation:
            continue
        found = [one for one in at.rows(engine) if one["id"] == 1]
        values, numbers = [one["v"] for one in found], [one["n"] for one in found]
        if winner in ("both count", "both are rows"):
            expected = [max(arrived)] if engine == "aggregate" else sorted(arrived)
            assert (sorted(values), sum(numbers)) == (expected, len(arrived)), (engine, of)
        elif winner == "the delete":
            assert values == [], (engine, of)
        else:
            is_first = winner in ("first row", "first file", "the first", "the first only", "the row again")
            assert values == [arrived[0 if is_first else -1]], (engine, of)
        ties = sum(one["ties"] for one in at.snapshots(engine))
        assert (ties > 0) == (tie == "yes"), (engine, of, ties)
