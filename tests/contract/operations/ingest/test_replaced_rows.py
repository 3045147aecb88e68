"""What an ingest compares with the rows of its log waits while a restore or an import may replace them (0071)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support import delta_tables
from support.arrival import Landing
from support.landing import land, make_landing, record, tombstone
from support.state_logs import QUEUE, SUMS, make, op
from tidefold.compute.runners import in_process
from tidefold.operations.ingest.ingest import execute, prepare
from tidefold.wiring import open_pipeline

Rows = list[tuple[Any, ...]]
SUITE = "    quality: {max_row_drop: 1}\n"


@dataclass
class Feed:
    """lands: three landings. rows: what readers see when the third one counts on the rows of the first."""

    at: Landing
    lands: tuple[Callable[[], object], ...]
    rows: Rows

    def now(self) -> Rows:
        return sorted(tuple(row.values()) for row in self.at.rows("items"))


def extracts(root: Path) -> Feed:
    lines = "key: [id]\ncolumns: {id: int, text: string}"
    at = Landing.make(root, {"items": lines}, "format: json, record: value, extract: full")
    days = ({1: "a", 2: "b"}, {1: "NEW", 2: "b"}, {1: "NEW", 2: "B3"})

    def put(number: int) -> None:
        rows = [{"id": key, "text": text} for key, text in days[number].items()]
        at.land(f"x-2026-01-0{number + 1}.jsonl", rows)

    return Feed(at, (lambda: put(0), lambda: put(1), lambda: put(2)), [(1, "NEW"), (2, "B3")])


def versions(root: Path) -> Feed:
    text = delta_tables.CONFIG.format(options=", extract: full", columns=delta_tables.COLUMNS, table="table")
    (root / "tidefold.yaml").write_text(text.replace("format: delta-cdf", "format: delta"))

    def put(*texts: str) -> None:
        rows = [delta_tables.row(key, text) for key, text in enumerate(texts, 1)]
        delta_tables.write(root, rows, mode="overwrite", configuration={})

    lands = (lambda: put("a", "b"), lambda: put("NEW", "b"), lambda: put("NEW", "B3"))
    return Feed(Landing(root), lands, [(1, "NEW"), (2, "B3")])


def polls(root: Path) -> Feed:
    root.mkdir(exist_ok=True)
    make(root, (QUEUE[0] + ", head: [priority, id]", *QUEUE[1:]))
    added = [op("add", value={"id": one, "priority": one}) for one in (1, 2, 3)]
    steps = (added, [op("remove", value={"id": 1})], [op("poll")])
    lands = tuple(lambda at=at, some=some: land(root, at, some) for at, some in zip((0, 3, 4), steps, strict=True))
    return Feed(Landing(root), lands, [(2, 2), (3, 3)])


def merges(root: Path) -> Feed:
    make(root, SUMS)
    steps = (
        [op("add", key, {"total": n, "most": n}) for key, n in ((1, 5), (2, 7))],
        [op("add", 2, {"total": 100, "most": 100})],
        [{"op": "merge", "key": {"id": 1}, "sources": [{"id": 2}]}],
    )
    lands = tuple(lambda at=at, some=some: land(root, at, some) for at, some in zip((0, 2, 3), steps, strict=True))
    return Feed(Landing(root), lands, [(1, 12, 7)])


OPERATIONS = [extracts, versions, polls, merges]
ATTEMPTS = {
    "restore": lambda at, saved: at.call("restore", "items", "1", "--log-position", "skip"),
    "import": lambda at, saved: at.call("move", "import", "items", saved),
}


def begin(feed: Feed, attempt: str, saved: str) -> None:
    """Publishes two landings, then opens an attempt that brings back the rows of the first."""
    at = feed.at
    path = at.folder / "tidefold.yaml"
    path.write_text(path.read_text() + SUITE)
    feed.lands[0]()
    at.run()
    at.call("move", "savepoint", "items", "--to", saved)
    feed.lands[1]()
    at.run()
    ATTEMPTS[attempt](at, saved)
    feed.lands[2]()


@pytest.mark.rotates(6)
@pytest.mark.parametrize("attempt", ATTEMPTS)
@pytest.mark.parametrize("operations", OPERATIONS)
def test_what_rests_on_rows_waits_for_a_restore_or_an_import(
    operations: Callable[[Path], Feed], attempt: str, tmp_path: Path
) -> None:
    (tmp_path / "at").mkdir()
    feed = operations(tmp_path / "at")
    begin(feed, attempt, str(tmp_path / "saved"))
    assert "ROWS_REPLACED" in feed.at.call("step", "ingest", "items", code=3).output
    feed.at.call("step", "quality", "items")
    feed.at.call("step", "confirm", "items")
    feed.at.run()
    assert feed.now() == feed.rows


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_an_aborted_attempt_leaves_the_rows_as_they_were(attempt: str, tmp_path: Path) -> None:
    feed = polls((tmp_path / "at").resolve())
    begin(feed, attempt, str(tmp_path / "saved"))
    assert "ROWS_REPLACED" in feed.at.call("step", "ingest", "items", code=3).output
    feed.at.call("step", "abort", "items")
    feed.at.run()
    assert feed.now() == [(3, 3)]


@pytest.mark.rotates(4)
@pytest.mark.parametrize("operations", OPERATIONS)
def test_a_restore_that_begins_while_an_ingest_compares_refuses_its_result(
    operations: Callable[[Path], Feed], tmp_path: Path
) -> None:
    (tmp_path / "at").mkdir()
    feed = operations(tmp_path / "at")
    feed.lands[0]()
    feed.at.run()
    feed.lands[1]()
    feed.at.run()
    feed.lands[2]()
    pipeline = open_pipeline(feed.at.folder / "tidefold.yaml")
    prepared = prepare(pipeline, ["items"])
    feed.at.call("restore", "items", "1", "--log-position", "skip")
    assert [one.error_code for one in execute(pipeline, prepared, in_process)] == ["ROWS_REPLACED"]
    feed.at.edit("    key: ", SUITE + "    key: ")
    feed.at.call("step", "quality", "items")
    feed.at.call("step", "confirm", "items")
    feed.at.run()
    assert feed.now() == feed.rows


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_changed_key_takes_no_value_from_rows_that_are_left_out(attempt: str, tmp_path: Path) -> None:
    """It waits as a refused record, and a retry completes it from the rows that were confirmed."""
    make_landing(tmp_path)

    def row(offset: int, text: str, op: str) -> None:
        land(tmp_path, offset, [record(offset, 1, op, after={"id": 1, "text": text})])

    def move() -> None:
        headers = [{"key": "__debezium.oldkey", "value": {"id": 1}}]
        after = {"id": 5, "text": "__debezium_unavailable_value"}
        gone = record(2, 1, "d", 1002, before={"id": 1}, after=None)
        land(tmp_path, 2, [gone, tombstone(3), record(4, 5, "c", 1002, after=after, headers=headers)])

    feed = Feed(Landing(tmp_path), (lambda: row(0, "a", "c"), lambda: row(1, "NEW", "u"), move), [(5, "a")])
    begin(feed, attempt, str(tmp_path / "saved"))
    assert "UNAVAILABLE_AFTER_KEY_CHANGE" in feed.at.call("step", "ingest", "items", code=None).output
    feed.at.call("step", "quality", "items")
    feed.at.call("step", "confirm", "items")
    assert "1 became changes" in feed.at.call("quarantine", "retry", "items").output
    feed.at.run()
    assert feed.now() == feed.rows
