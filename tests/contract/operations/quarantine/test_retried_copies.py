"""A file that came twice and was refused counts once, and what a retry took counts from its change set on (0060)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.arrival import Landing, Row

COLUMNS = "columns: {id: long, n: long}"
REFUSES = "quality: {max_refused: 1, max_row_drop: 1}"
LOGS = {
    "aggregate": f"key: [id]\norder: file\n{COLUMNS}\n{REFUSES}\n"
    "merge: {engine: aggregate, deletes: ignore, aggregates: {n: sum}}",
    "append": f"key: []\n{COLUMNS}\n{REFUSES}\nmerge: append",
    "last": f"key: [id]\norder: file\n{COLUMNS}\n{REFUSES}",
}
FORMATS = {"json": "jsonl", "csv": "csv", "parquet": "parquet"}


def row(op: str, key: int, n: int) -> Row:
    return {"op": op, "id": key, "n": n}


FIRST, TWICE = [row("U", 1, 1)], [row("Q", 1, 10), row("Z", 2, 100)]
ONCE = {"aggregate": [(1, 11), (2, 100)], "append": [(1, 1), (1, 10), (2, 100)], "last": [(1, 10), (2, 100)]}


class Feed:
    """Lands files of one format; `accepts` corrects the configuration."""

    def __init__(self, folder: Path, format_: str) -> None:
        record = ", record: value, names: any" if format_ == "json" else ""
        self.at = Landing.make(folder, LOGS, f"format: {format_}{record}, op: {{column: op, upsert: [U]}}")
        self.ending, self.known = FORMATS[format_], "U"

    def land(self, name: str, rows: list[Row]) -> None:
        if self.ending != "parquet":
            self.at.land(f"{name}.{self.ending}", rows)
            return
        for log in LOGS:
            path = self.at.folder / "landing" / log / f"{name}.parquet"
            pq.write_table(pa.Table.from_pylist(rows), path, write_page_checksum=True)

    def accepts(self, *ops: str) -> None:
        known = ", ".join(["U", *ops])
        self.at.edit(f"upsert: [{self.known}]", f"upsert: [{known}]")
        self.known = known

    def retry(self, changes: int, repeated: int, logs: tuple[str, ...] = ("aggregate", "append")) -> None:
        for log in LOGS:
            said = self.at.call("quarantine", "retry", log).output
            if log in logs:
                assert f"{changes} became changes" in said or not changes, (log, said)
                assert f"{repeated} are superseded" in said or not repeated, (log, said)

    def rows(self) -> dict[str, list[tuple[int, int]]]:
        return {log: sorted((one["id"], one["n"]) for one in self.at.rows(log)) for log in LOGS}


def landed_again(feed: Feed) -> None:
    """The advised step after the corrected configuration took a copy."""
    feed.land("b", TWICE)
    feed.at.run(code=None)
    feed.accepts("Q", "Z")
    feed.land("b2", TWICE)
    feed.at.run(code=None)
    feed.retry(0, 2)


def in_one_run(feed: Feed) -> None:
    feed.land("b", TWICE)
    feed.land("b2", TWICE)
    feed.at.run(code=None)
    feed.accepts("Q", "Z")
    feed.retry(2, 2)


def in_two_runs(feed: Feed) -> None:
    feed.land("b", TWICE)
    feed.at.run(code=None)
    feed.land("b2", TWICE)
    feed.at.run(code=None)
    feed.accepts("Q", "Z")
    feed.retry(2, 2)


def record_by_record(feed: Feed) -> None:
    """Each correction makes another record of the two files readable, in the second one first."""
    feed.land("b", TWICE)
    feed.at.run(code=None)
    feed.accepts("Q")
    feed.land("b2", TWICE)
    feed.at.run(code=None)
    feed.retry(0, 1)
    feed.at.run(code=None)
    feed.accepts("Q", "Z")
    feed.retry(1, 1)


def retried_first(feed: Feed) -> None:
    feed.land("b", TWICE)
    feed.at.run(code=None)
    feed.accepts("Q", "Z")
    feed.retry(2, 0)
    feed.land("b2", TWICE)
    feed.at.run(code=None)
    feed.retry(0, 0, ())


CASES = [
    *(("json", play) for play in (landed_again, in_one_run, in_two_runs, record_by_record, retried_first)),
    ("csv", in_two_runs), ("parquet", in_one_run), ("csv", record_by_record), ("parquet", landed_again),
]  # fmt: skip


@pytest.mark.rotates(6)
@pytest.mark.parametrize(("format_", "play"), CASES, ids=lambda one: getattr(one, "__name__", one))
def test_a_retry_takes_nothing_that_a_copy_of_the_file_brought(
    format_: str, play: Callable[[Feed], None], tmp_path: Path
) -> None:
    feed = Feed(tmp_path, format_)
    feed.land("a", FIRST)
    feed.at.run(code=None)
    play(feed)
    feed.at.run(code=None)
    assert feed.rows() == ONCE


def test_the_same_rows_in_other_files_and_a_settled_copy_are_no_copies(tmp_path: Path) -> None:
    """What a person settled counted nowhere; of a copy with both kinds nobody can tell, so its record stays."""
    feed = Feed(tmp_path, "json")
    feed.land("a", FIRST)
    feed.land("b", TWICE)
    feed.land("c", [*TWICE, row("U", 3, 3)])
    feed.at.run(code=None)
    feed.land("b2", TWICE)
    feed.at.run(code=None)
    for log in LOGS:
        feed.at.call("quarantine", "settle", log, "--file", "b2.jsonl", "--by", "me", "--reason", "a copy")
    feed.accepts("Q", "Z")
    feed.retry(4, 0)
    feed.at.run(code=None)
    assert feed.rows()["append"] == sorted([*ONCE["append"], (1, 10), (2, 100), (3, 3)])


def retried_late(tmp: Path) -> Feed:
    """A retry takes records of a file below the newest snapshot, and nothing folds them yet."""
    feed = Feed(tmp / "at", "json")
    feed.land("a", FIRST)
    feed.at.run()
    feed.land("b", TWICE)
    feed.at.run(code=None)
    feed.accepts("Q", "Z")
    feed.land("c", [row("U", 3, 3)])
    feed.at.run(code=None)
    feed.retry(2, 0)
    return feed


def bring_again(at: Landing) -> None:
    """Lands the bytes of the file under another name: the way that is printed for what a log knows no more."""
    at.run(code=None)
    for log in LOGS:
        (at.folder / "landing" / log / "b2.jsonl").write_bytes((at.folder / "landing" / log / "b.jsonl").read_bytes())
    assert "2 changes" in at.run(code=None).output
    for log, once in ONCE.items():
        assert sorted((one["id"], one["n"]) for one in at.rows(log)) == [*once, (3, 3)], log


def test_a_savepoint_from_before_the_retry_has_refused_records(tmp_path: Path) -> None:
    feed = retried_late(tmp_path)
    said = feed.at.call("move", "savepoint", "last", "--to", str(tmp_path / "other")).output
    assert "without 2 records that a retry took later" in said
    bring_again(feed.at.moved(tmp_path / "moved", *LOGS))


def test_a_restore_to_before_the_retry_has_refused_records_also_rebuilt(tmp_path: Path) -> None:
    feed = retried_late(tmp_path)
    feed.at.run(code=None)
    for log in LOGS:
        feed.at.call("restore", log, "1", "--log-position", "replay")
        feed.at.call("step", "quality", log)
        feed.at.call("step", "confirm", log)
        feed.at.lose_ledger(log)
        feed.at.call("move", "rebuild", log, "--yes")
        feed.at.call("move", "resume", log)
    bring_again(feed.at)


def test_the_gate_counts_what_was_refused_at_the_end_of_the_snapshot(tmp_path: Path) -> None:
    feed = Feed(tmp_path, "json")
    feed.at.edit("max_refused: 1", "max_refused: 0")
    feed.land("a", [*FIRST, row("Q", 1, 10), row("Z", 2, 100)])
    feed.at.call("step", "ingest", code=None)
    feed.at.call("step", "materialize")
    feed.accepts("Q", "Z")
    feed.retry(2, 0)
    assert feed.at.call("step", "quality", code=3).output.count("failed: snapshot 1") == 3
    feed.at.call("run", "--takeover")
    assert feed.rows() == ONCE
