"""Each refusal of a Delta table that feeds a log, and the step that its message names, taken to the letter."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from support.arrival import Landing
from support.delta_tables import FEED

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
CDF, EXTRACT = "format: delta-cdf", "format: delta"


def make(folder: Path, source: str = CDF, columns: str = "{id: long, text: string}") -> Landing:
    at = Landing.make(folder / "at", {"o": f"key: [id]\ncolumns: {columns}\nquality: {{max_row_drop: 1}}"}, source)
    at.edit("path: landing/o", "table: table")
    return at


def write(at: Landing, *rows: tuple[int, str], feed: bool = True, **options: Any) -> DeltaTable:
    table = pa.Table.from_pylist([{"id": key, "text": text} for key, text in rows], SCHEMA)
    options = {"mode": "append", **options}
    write_deltalake(str(at.folder / "table"), table, configuration=FEED if feed else None, **options)
    return DeltaTable(str(at.folder / "table"))


def commit(at: Landing, version: int) -> Path:
    return at.folder / f"table/_delta_log/{version:020d}.json"


def edit(at: Landing, version: int, change: Callable[[dict[str, Any]], None]) -> None:
    lines = [json.loads(line) for line in commit(at, version).read_text().splitlines()]
    for line in lines:
        change(line)
    commit(at, version).write_text("".join(json.dumps(line) + "\n" for line in lines))


def follow(at: Landing, output: str) -> None:
    """Runs the commands that the next step names, as they are printed, and then the log."""
    [step] = [line for line in output.splitlines() if line.startswith("next: ")]
    for command in re.findall(r"`tidefold ([^`]+)`", step):
        at.call(*command.split())
    at.run()


def refuse(at: Landing, code: str) -> str:
    """Runs the log, which is refused. Returns what is printed."""
    said = at.run(code=None)
    assert said.exit_code
    assert f"[{code}]" in said.output, said.output
    return said.output


def texts(at: Landing) -> dict[int, str]:
    return {row["id"]: row["text"] for row in at.rows("o")}


@pytest.mark.parametrize("options", ["", ", from_version: 0"])
def test_a_version_whose_state_is_gone_is_gone(tmp_path: Path, options: str) -> None:
    at = make(tmp_path, CDF + options)
    write(at, (1, "a"))
    at.run()
    for key in (2, 3, 4):
        write(at, (key, "b"))
    DeltaTable(str(at.folder / "table")).create_checkpoint()
    write(at, (5, "c"))
    for version in (0, 1, 2):
        commit(at, version).unlink()
    said = refuse(at, "DELTA_SOURCE_GONE")
    assert "can still be read is 3" in said
    if options:
        assert "Set `from_version: 3`" in said
        at.edit(options, ", from_version: 3")
    follow(at, said)
    assert texts(at) == ({4: "b", 5: "c"} if options else {1: "a", 2: "b", 3: "b", 4: "b", 5: "c"})


@pytest.mark.parametrize("why", ["no feed", "another table"])
def test_a_first_version_that_is_too_old_says_which_one_is_not(tmp_path: Path, why: str) -> None:
    at = make(tmp_path, f"{CDF}, from_version: 0")
    write(at, (1, "a"), feed=why != "no feed")
    write(at, (2, "b"), feed=why != "no feed")
    write(at, (3, "c"), mode="overwrite", schema_mode="overwrite")
    if why == "no feed":
        DeltaTable(str(at.folder / "table")).alter.set_table_properties(FEED)
    else:
        add_metadata(at, 2)
    write(at, (4, "d"))
    first = 3 if why == "no feed" else 2
    said = refuse(at, "DELTA_SOURCE_FEED" if why == "no feed" else "DELTA_SOURCE_REPLACED")
    assert f"Set `from_version: {first}`" in said
    at.edit("from_version: 0", f"from_version: {first}")
    at.run()
    assert texts(at) == ({4: "d"} if why == "no feed" else {3: "c", 4: "d"})


@pytest.mark.parametrize("is_on", [False, True])
@pytest.mark.parametrize("way", ["feed", "extract"])
def test_a_table_without_a_feed_gets_one_or_is_an_extract(tmp_path: Path, way: str, is_on: bool) -> None:
    at = make(tmp_path)
    write(at, (1, "a"), feed=False)
    at.run()
    write(at, (2, "b"), feed=False)
    if is_on:
        DeltaTable(str(at.folder / "table")).alter.set_table_properties(FEED)
    said = refuse(at, "DELTA_SOURCE_FEED")
    assert ("Set `delta.enableChangeDataFeed = true`" in said) == (not is_on)
    if way == "feed" and not is_on:
        DeltaTable(str(at.folder / "table")).alter.set_table_properties(FEED)
    if way == "extract":
        at.edit(CDF, EXTRACT)
    follow(at, said)
    write(at, (3, "c"), feed=way == "feed")
    at.run()
    assert texts(at) == {1: "a", 2: "b", 3: "c"}


@pytest.mark.parametrize("way", ["restored", "again"])
@pytest.mark.parametrize("kind", [CDF, EXTRACT])
def test_a_table_that_was_dropped_and_made_again_begins_again(tmp_path: Path, kind: str, way: str) -> None:
    at = make(tmp_path, kind)
    write(at, (1, "a"), (2, "a"))
    at.run()
    (at.folder / "table").rename(at.folder / "former")
    write(at, (7, "b"))
    write(at, (8, "b"))
    said = refuse(at, "DELTA_SOURCE_REPLACED")
    if kind == EXTRACT and way == "again":
        assert "set `replaced: accept`" in said
        at.edit(kind, f"{kind}, replaced: accept")
        said = refuse(at, "DELTA_SOURCE_REPLACED")
    if way == "again":
        follow(at, said)
        assert texts(at) == {7: "b", 8: "b"}
        return
    assert "estore the former table" in said
    (at.folder / "table").rename(at.folder / "other")
    (at.folder / "former").rename(at.folder / "table")
    write(at, (3, "a"))
    at.run()
    assert texts(at) == {1: "a", 2: "a", 3: "a"}


@pytest.mark.parametrize("way", ["the key", "the rows"])
@pytest.mark.parametrize("where", ["at the start", "later"])
def test_rows_that_share_a_key_get_another_key_or_leave(tmp_path: Path, where: str, way: str) -> None:
    at = make(tmp_path)
    if where == "later":
        write(at, (9, "z"))
        at.run()
    table = write(at, (1, "a"), (1, "b"))
    said = refuse(at, "DELTA_SOURCE_KEYS")
    assert "Correct `key` of the log, or the rows of the table." in said
    if way == "the key":
        at.edit("key: [id]", "key: [id, text]")
    else:
        table.delete("id = 1 and text = 'b'")
    if where == "later":
        follow(at, said)
    else:
        at.run()
    rows = {(1, "a"), *({(1, "b")} if way == "the key" else ()), *({(9, "z")} if where == "later" else ())}
    assert {(row["id"], row["text"]) for row in at.rows("o")} == rows


def replace_id(at: Landing, version: int) -> None:
    """What CREATE OR REPLACE TABLE does beside an overwrite."""

    def change(line: dict[str, Any]) -> None:
        if "metaData" in line:
            line["metaData"]["id"] = f"00000000-0000-4000-8000-{version:012d}"

    edit(at, version, change)


def test_a_table_that_is_made_again_each_day_is_an_extract(tmp_path: Path) -> None:
    at = make(tmp_path, f"{EXTRACT}, extract: {{max_deletes: 1}}")
    write(at, (1, "a"), (2, "a"), feed=False)
    at.run()
    for day in (1, 2):
        write(at, (1, "a"), (2 + day, f"day {day}"), feed=False, mode="overwrite", schema_mode="overwrite")
        add_metadata(at, day)
        if day == 1:
            assert "set `replaced: accept` under `source`" in refuse(at, "DELTA_SOURCE_REPLACED")
            at.edit("max_deletes: 1}", "max_deletes: 1}, replaced: accept")
        at.run()
        assert texts(at) == {1: "a", 2 + day: f"day {day}"}
    proposed = at.call("init", str(at.folder), "-c", "proposed.yaml", code=None)
    assert "replaced: accept" in proposed.output + (at.folder / "proposed.yaml").read_text()


def add_metadata(at: Landing, version: int) -> None:
    """deltalake leaves the metadata out of an overwrite with the same columns."""
    first = next(json.loads(line) for line in commit(at, 0).read_text().splitlines() if '"metaData"' in line)
    if '"metaData"' not in commit(at, version).read_text():
        with commit(at, version).open("a") as file:
            file.write("\n" + json.dumps(first))
    replace_id(at, version)


def test_a_wider_type_is_named_as_the_configuration_has_it(tmp_path: Path) -> None:
    at = make(tmp_path, columns="{id: int, text: string}")
    write(at, (2**40, "a"))
    said = refuse(at, "LANDED_SCHEMA")
    assert "has column id of type long instead of int" in said
    assert "Set `id: long` in `columns`" in said
    at.edit("id: int", "id: long")
    at.run()
    assert texts(at) == {2**40: "a"}


def test_a_column_that_no_type_fits_is_ignored(tmp_path: Path) -> None:
    at = make(tmp_path)
    rows = pa.table({"id": pa.array(range(9), pa.int64()), "text": ["a"] * 9, "meta": [{"a": 1}] * 9})
    write_deltalake(str(at.folder / "table"), rows, configuration=FEED)
    said = refuse(at, "LANDED_SCHEMA")
    assert "No type fits: set `ignored: [meta]` beside `columns`." in said
    at.edit("key: [id]\n", "key: [id]\n    ignored: [meta]\n")
    at.run()
    assert texts(at) == dict.fromkeys(range(9), "a")
    said = at.call("init", "table", "-c", "proposed.yaml").output
    assert "ignored = meta. Reason: no type fits these" in said
    proposed = (at.folder / "proposed.yaml").read_text()
    (at.folder / "tidefold.yaml").write_text(proposed.replace("store: var/store", "store: var/other"))
    at.edit(next(line for line in proposed.splitlines() if line.startswith("store_id")), "")
    at.run()


def test_a_new_column_gets_a_default(tmp_path: Path) -> None:
    at = make(tmp_path)
    write(at, (1, "a"))
    at.run()
    table = pa.table({"id": pa.array([2], pa.int64()), "text": ["b"], "more": ["new"]})
    write_deltalake(str(at.folder / "table"), table, mode="append", schema_mode="merge")
    said = at.run(code=None)
    assert "[LANDED_SCHEMA]" in said.output
    assert "add `more: {type: 'string', default: null}` to `columns`" in said.output
    at.edit("text: string", "text: string, more: {type: 'string', default: null}")
    at.run()
    assert {row["id"]: row["more"] for row in at.rows("o")} == {1: None, 2: "new"}


def test_a_renamed_column_is_told_with_both_names_and_the_line_to_write(tmp_path: Path) -> None:
    at = make(tmp_path)
    write(at, (1, "a"))
    at.run()
    renamed = pa.table({"id": pa.array([1, 2], pa.int64()), "words": ["b", "c"]})
    write_deltalake(str(at.folder / "table"), renamed, mode="overwrite", schema_mode="overwrite")
    said = refuse(at, "LANDED_SCHEMA")
    assert "has column words, which is not configured. It lacks column text" in said
    alias = "text: {type: 'string', aliases: [words]}"
    assert f"set `{alias}` in `columns`" in said
    at.edit("text: string", alias)
    at.run()
    assert texts(at) == {1: "b", 2: "c"}


@pytest.mark.parametrize("kind", [CDF, EXTRACT])
def test_a_damaged_commit_is_named_with_its_line(tmp_path: Path, kind: str) -> None:
    at = make(tmp_path, kind)
    write(at, (1, "a"))
    at.run()
    write(at, (2, "b"))
    lines = commit(at, 1).read_text().splitlines()
    commit(at, 1).write_text("\n".join(['{"add": 7}', *lines]))
    said = at.run(code=None)
    assert said.exit_code
    assert "[DELTA_SOURCE_DAMAGED]" in said.output
    assert "line 1 of `_delta_log/00000000000000000001.json`" in said.output
    commit(at, 1).write_text("\n".join(lines))
    at.run()
    assert texts(at) == {1: "a", 2: "b"}


def test_what_the_protocol_allows_in_an_action_is_read(tmp_path: Path) -> None:
    at = make(tmp_path)
    table = write(at, (1, "a"), (2, "a"))
    at.run()
    table.delete("id = 1")

    def change(line: dict[str, Any]) -> None:
        line.get("remove", {})["size"] = None
        line.get("commitInfo", {})["timestamp"] = "2026-01-01"

    edit(at, 1, change)
    at.run()
    assert texts(at) == {2: "a"}


@pytest.mark.parametrize("options", ["", ", from_version: 0"])
def test_a_shallow_clone_is_named(tmp_path: Path, options: str) -> None:
    at = make(tmp_path, CDF + options)
    write(at, (1, "a"))
    edit(at, 0, lambda line: line["add"].update(path=f"{tmp_path}/elsewhere.parquet") if "add" in line else None)
    said = refuse(at, "PATH_OUTSIDE_ROOT")
    assert "Copy the table with its files." in said
    (at.folder / "table").rename(at.folder / "clone")
    write(at, (1, "a"))
    at.run()
    assert texts(at) == {1: "a"}


@pytest.mark.parametrize("kind", [CDF, EXTRACT])
def test_a_damaged_data_file_is_named_until_it_is_repaired(tmp_path: Path, kind: str) -> None:
    at = make(tmp_path, kind)
    write(at, (1, "a"))
    [file] = (at.folder / "table").glob("*.parquet")
    whole = file.read_bytes()
    file.write_bytes(whole[:100])
    said = refuse(at, "DELTA_SOURCE_DAMAGED")
    assert file.name in said
    assert "Repair the table with the tool that writes it. Then run again." in said
    file.write_bytes(whole)
    at.run()
    assert texts(at) == {1: "a"}


def test_a_damaged_schema_is_named(tmp_path: Path) -> None:
    at = make(tmp_path)
    write(at, (1, "a"))
    edit(at, 0, lambda line: line.get("metaData", {}).update(schemaString='{"fields": [{}]}'))
    assert "the schema of version 0" in refuse(at, "DELTA_SOURCE_DAMAGED")


def test_an_extract_whose_file_is_missing_waits_for_it(tmp_path: Path) -> None:
    at = make(tmp_path, EXTRACT)
    write(at, (1, "a"))
    [file] = (at.folder / "table").glob("*.parquet")
    file.rename(at.folder / "kept")
    assert "restore the file" in refuse(at, "DELTA_SOURCE_GONE")
    (at.folder / "kept").rename(file)
    at.run()
    assert texts(at) == {1: "a"}


def test_a_change_file_without_kinds_is_damaged(tmp_path: Path) -> None:
    at = make(tmp_path)
    table = write(at, (1, "a"), (2, "a"))
    at.run()
    table.update({"text": "'b'"}, predicate="id = 1")
    [file] = (at.folder / "table/_change_data").glob("*.parquet")
    whole = file.read_bytes()
    pq.write_table(pq.read_table(file).drop_columns(["_change_type"]), file)
    assert file.name in refuse(at, "DELTA_SOURCE_DAMAGED")
    assert texts(at) == {1: "a", 2: "a"}
    file.write_bytes(whole)
    at.run()
    assert texts(at) == {1: "b", 2: "a"}


@pytest.mark.parametrize("kind", [CDF, EXTRACT])
def test_a_feature_that_is_not_known_is_named_at_the_start(tmp_path: Path, kind: str) -> None:
    at = make(tmp_path, kind)
    write(at, (1, "a"))

    def change(line: dict[str, Any]) -> None:
        if "protocol" in line:
            line["protocol"] = {
                "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["timeTravelBackwards"],
                "writerFeatures": ["timeTravelBackwards", "changeDataFeed"],
            }  # fmt: skip

    whole = commit(at, 0).read_bytes()
    edit(at, 0, change)
    said = refuse(at, "DELTA_SOURCE_FEATURE")
    assert "timeTravelBackwards" in said
    assert "Remove the feature" in said
    assert "timeTravelBackwards" in at.call("init", str(at.folder), "-c", "proposed.yaml", code=None).output
    commit(at, 0).write_bytes(whole)
    at.run()
    assert texts(at) == {1: "a"}


def test_a_table_whose_first_commit_is_being_written_is_none_yet(tmp_path: Path) -> None:
    at = make(tmp_path)
    write(at, (1, "a"))
    whole = commit(at, 0).read_bytes()
    commit(at, 0).write_bytes(whole[:40])
    said = at.run(code=None)
    assert said.exit_code
    assert "[DELTA_SOURCE_MISSING]" in said.output
    commit(at, 0).write_bytes(whole)
    at.run()
    assert texts(at) == {1: "a"}


def test_init_takes_a_table_without_a_feed_as_extracts(tmp_path: Path) -> None:
    at = make(tmp_path)
    write(at, *((key, "a") for key in range(9)), feed=False)
    (at.folder / "tidefold.yaml").unlink()
    said = at.call("init", "table").output
    assert "source.format = delta. Reason: the table records no changes" in said
    at.run()
    DeltaTable(str(at.folder / "table")).delete("id = 1")
    at.run()
    found = json.loads(at.call("read", "table", "--format", "json").stdout)["rows"]
    assert {row["id"] for row in found} == {0, *range(2, 9)}
