"""What happens to a Delta table that feeds a log, beside its rows: set back, half a commit, no times, keys twice."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from deltalake import DeltaTable, write_deltalake

from support.arrival import Landing
from support.delta_tables import FEED

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
FEEDS = {
    "feed": "format: delta-cdf",
    "from the first": "format: delta-cdf, from_version: 0",
    "extract": "format: delta",
}


def make(folder: Path, feed: str, more: str = "") -> Landing:
    at = Landing.make(folder / "at", {"o": f"key: [id]\ncolumns: {{id: long, text: string}}\n{more}"}, FEEDS[feed])
    at.edit("path: landing/o", "table: table" + (", extract: {max_deletes: 1}" if feed == "extract" else ""))
    return at


def write(at: Landing, *rows: tuple[int, str], **options: Any) -> DeltaTable:
    table = pa.Table.from_pylist([{"id": key, "text": text} for key, text in rows], SCHEMA)
    write_deltalake(str(at.folder / "table"), table, mode="append", configuration=FEED, **options)
    return DeltaTable(str(at.folder / "table"))


def commit(at: Landing, version: int) -> Path:
    return at.folder / f"table/_delta_log/{version:020d}.json"


def texts(at: Landing) -> dict[int, str]:
    return {row["id"]: row["text"] for row in at.rows("o")}


@pytest.fixture(params=list(FEEDS))
def feed(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


def test_an_ingest_counts_versions_of_the_table(tmp_path: Path) -> None:
    at = make(tmp_path, "from the first")
    for key in (1, 2):
        write(at, (key, "a"))
    said = at.run().output
    assert "took 2 versions: 2 changes" in said
    write(at, (3, "a"))
    assert "took 1 version: 1 change;" in at.run().output


@pytest.mark.rotates(6)
@pytest.mark.parametrize("grown", [0, 1])
def test_a_table_that_was_set_back_and_grew_past_the_position_is_refused(tmp_path: Path, feed: str, grown: int) -> None:
    at = make(tmp_path, feed, "quality: {max_row_drop: 1}")
    table = write(at, (1, "a"), (2, "a"), (3, "a"))
    at.run()
    table.update({"text": "'z'"}, predicate="id = 2")
    table.delete("id = 3")
    at.run()
    before = texts(at)
    for version in (1, 2):
        commit(at, version).unlink()
    table = DeltaTable(str(at.folder / "table"))
    table.delete("id = 1")
    table.delete("id = 2")
    for _ in range(grown):
        table.update({"text": "'y'"}, predicate="id = 3")
    said = at.run(code=3).output
    assert "[DELTA_SOURCE_REPLACED]" in said
    assert texts(at) == before


@pytest.mark.rotates(10)
@pytest.mark.parametrize("bytes_", [0, 40, -20, -1])
def test_half_a_commit_is_waited_for(tmp_path: Path, feed: str, bytes_: int) -> None:
    at = make(tmp_path, feed, "quality: {max_row_drop: 1}")
    table = write(at, (1, "a"), (2, "a"))
    at.run()
    table.update({"text": "'b'"}, predicate="id = 2")
    whole = commit(at, 1).read_bytes().rstrip(b"\n")
    commit(at, 1).write_bytes(whole[:bytes_] if bytes_ else b"")
    said = at.run().output
    assert "1 file still being written" in said
    # Nobody completes it: the run says so, and does not end well.
    assert "LANDED_WAITING" in at.run(code=2).output
    assert texts(at) == {1: "a", 2: "a"}
    commit(at, 1).write_bytes(whole)
    at.run()
    assert texts(at) == {1: "a", 2: "b"}


def test_a_commit_that_was_cut_between_two_lines_is_found_when_the_rest_comes(tmp_path: Path) -> None:
    at = make(tmp_path, "feed")
    table = write(at, (1, "a"), (2, "a"))
    at.run()
    table.update({"text": "'b'"}, predicate="id = 2")
    whole = commit(at, 1).read_bytes()
    commit(at, 1).write_bytes(whole.splitlines()[-1])
    at.call("step", "ingest", code=None)
    commit(at, 1).write_bytes(whole)
    assert "[DELTA_SOURCE_REPLACED]" in at.run(code=3).output


def test_a_half_commit_among_whole_ones_stops_there(tmp_path: Path) -> None:
    at = make(tmp_path, "feed")
    table = write(at, (1, "a"))
    at.run()
    for text in "bcd":
        table.update({"text": f"'{text}'"})
    whole = commit(at, 2).read_bytes()
    commit(at, 2).write_bytes(b"")
    assert "still being written" in at.run().output
    assert texts(at) == {1: "b"}
    commit(at, 2).write_bytes(whole)
    at.run()
    assert texts(at) == {1: "d"}


@pytest.mark.rotates(8)
@pytest.mark.parametrize("info", ["commitInfo", "no commitInfo", "no timestamp"])
def test_each_version_of_a_history_begins_with_the_time_of_its_commit(tmp_path: Path, feed: str, info: str) -> None:
    at = make(tmp_path, feed, "merge: history\nquality: {max_row_drop: 1}")
    table = write(at, (1, "a"), (2, "a"))
    if feed != "from the first":
        strip(at, 0, info)
        at.run()
    table.update({"text": "'b'"}, predicate="id = 2")
    for version in (0, 1):
        strip(at, version, info)
    at.run()
    found = json.loads(at.call("read", "o", "--format", "json").stdout)["rows"]
    spans = {(row["id"], row["text"]): (row["_valid_from"], row["_valid_to"]) for row in found}
    first, second = (begun(at, version, info) for version in (0, 1))
    assert set(spans) == {(1, "a"), (2, "a"), (2, "b")}
    for key, span in {(1, "a"): (first, None), (2, "a"): (first, second), (2, "b"): (second, None)}.items():
        assert [one and round(when(one), 3) for one in spans[key]] == [one and round(one, 3) for one in span]


def when(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def strip(at: Landing, version: int, info: str) -> None:
    """Takes the time out of a commit, and gives its file a time of its own."""
    lines = [json.loads(line) for line in commit(at, version).read_text().splitlines()]
    if info == "no commitInfo":
        lines = [line for line in lines if "commitInfo" not in line]
    for line in lines if info == "no timestamp" else ():
        line.get("commitInfo", {}).pop("timestamp", None)
    if info != "commitInfo":
        commit(at, version).write_text("".join(json.dumps(line) + "\n" for line in lines))
    os.utime(commit(at, version), (1_700_000_000 + version, 1_700_000_000 + version))


def begun(at: Landing, version: int, info: str) -> float:
    if info != "commitInfo":
        return commit(at, version).stat().st_mtime
    lines = map(json.loads, commit(at, version).read_text().splitlines())
    return next(line["commitInfo"]["timestamp"] / 1000 for line in lines if "commitInfo" in line)


@pytest.mark.rotates(10)
@pytest.mark.parametrize("twice", ["in the snapshot", "in a version"])
@pytest.mark.parametrize("partition", [None, "text"])
def test_rows_that_share_a_key_are_refused(tmp_path: Path, feed: str, twice: str, partition: str | None) -> None:
    at = make(tmp_path, feed)
    options = {"partition_by": [partition]} if partition else {}
    pair = ((1, "a"), (1, "b"), (2, "c"), (2, "c"))
    if twice == "in a version":
        write(at, (9, "z"), **options)
        at.run()
    write(at, *pair) if twice == "in a version" else write(at, *pair, **options)
    said = at.run(code=None)
    assert said.exit_code in (2, 3)
    assert "[EXTRACT_KEYS]" in said.output if feed == "extract" else "[DELTA_SOURCE_KEYS]" in said.output
    if twice == "in a version":
        assert texts(at) == {9: "z"}
    # The same row twice is one row, and a version that swaps two keys has each of them once.
    at.edit("key: [id]", "key: [id, text]")
    if twice == "in the snapshot":
        at.run()
        assert len(at.rows("o")) == 3


def test_swapped_keys_are_no_key_twice(tmp_path: Path) -> None:
    at = make(tmp_path, "feed")
    table = write(at, (1, "a"), (2, "b"))
    at.run()
    table.update({"id": "3 - id"})
    at.run()
    assert texts(at) == {1: "b", 2: "a"}


def make_iceberg(folder: Path) -> None:
    (folder / "metadata").mkdir(parents=True)
    (folder / "metadata/00000-0d1f.metadata.json").write_text("{}")
    (folder / "data").mkdir()


def make_hudi(folder: Path) -> None:
    (folder / ".hoodie").mkdir(parents=True)
    (folder / ".hoodie/hoodie.properties").write_text("")
    (folder / "data").mkdir()


def make_delta(folder: Path) -> None:
    write_deltalake(str(folder), pa.table({"id": [7]}))
    (folder / "data").mkdir()


@pytest.mark.parametrize(("kind", "table"), [("Iceberg", make_iceberg), ("Hudi", make_hudi), ("Delta", make_delta)])
@pytest.mark.parametrize("path", ["landing/o", "landing", "landing/o/data"])
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_the_files_of_a_table_are_no_feed(tmp_path: Path, kind: str, table: Any, path: str, ending: str) -> None:
    lines = "key: [id]\ncolumns: {id: long, text: string}\norder: file"
    at = Landing.make(tmp_path / "at", {"o": lines}, f"format: {ending}")
    (at.folder / "landing/o").rmdir()
    table(at.folder / "landing/o")
    rows = pa.table({"id": [1], "text": ["a"]}, SCHEMA)
    file = at.folder / f"landing/o/data/part-0.{ending}"
    pa.parquet.write_table(rows, file) if ending == "parquet" else pa.csv.write_csv(rows, file)
    at.edit("path: landing/o", f"path: {path}")
    said = at.run(code=2).output
    assert "[LANDED_TABLE]" in said
    assert kind in said
    if path != "landing":
        assert f"{kind} table" in at.call("validate").output
    done = at.call("init", "landing", "-c", "proposed.yaml", code=None)
    text = done.output + ((at.folder / "proposed.yaml").read_text() if (at.folder / "proposed.yaml").exists() else "")
    assert f"{kind} table" in text
    assert f"format: {ending}" not in "".join(line for line in text.splitlines() if not line.strip().startswith("#"))
