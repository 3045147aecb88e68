"""Full extracts: after each of them the table has exactly its rows, and what did not change is no change.

Promises I4, I5, I19, I25, I31.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import delta_tables
from support.effort import choose
from support.faults import Fault, FaultyStore, Killed, on_copy, reopened
from support.landing import changes_of, state_of, take
from support.landing_rows import land_parquet, land_text, make_rows_landing
from support.pipelines import judge_all
from tidefold.compute.runners import in_process
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.operations.ground import recovery
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.requests import Fold, Restore
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import Pipeline, open_pipeline

Rows = dict[int, str | None]
COLUMNS = "{id: int, text: string}"
LOOSE = "extract: {max_deletes: 1, min_rows: 0}"


def make(root: Path, extract: str = LOOSE, source: str = "csv", more: str = "", columns: str = COLUMNS) -> Pipeline:
    return make_rows_landing(root, f"{source}, {extract}", columns, more)


def csv_of(rows: Rows) -> str:
    return "id,text\n" + "".join(f"{item},{'' if text is None else text}\n" for item, text in rows.items())


def land_csv(root: Path, day: str, rows: Rows) -> Path:
    return land_text(root, f"items-{day}.csv", csv_of(rows))


def live(pipeline: Pipeline) -> Rows:
    _, batches = read_rows(pipeline, "items", ReadRequest(What.LIVE))
    rows = [row for batch in batches for row in batch.to_pylist()]
    found = {row["id"]: row["text"] for row in rows if row.get("_valid_to") is None}
    assert len(found) == len([row for row in rows if row.get("_valid_to") is None])
    return found


def fold(pipeline: Pipeline, run: str) -> None:
    [outcome] = materialize(pipeline, ["items"], Fold(run), in_process)
    assert outcome.error_code is None, outcome
    if state_of(pipeline).open_attempt:
        judge_all(pipeline, "items")
        confirm(pipeline, "items", Confirmation(run=run))


def hint_of(pipeline: Pipeline) -> str:
    """The next step that the newest ingest told."""
    return take(pipeline).facts["problems"][0]["hint"]


def has_taken(pipeline: Pipeline) -> bool:
    return pipeline.ledger("items").exists() and bool(state_of(pipeline).landed)


def counts(outcome: Outcome) -> tuple[int, int, int]:
    """Changes, deletes among them, and unchanged rows."""
    facts = outcome.facts
    return facts["changes"], facts["missing"], facts["unchanged"]


def test_each_extract_is_compared_with_the_rows_before(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    land_csv(tmp_path, "2026-11-01", {1: "a", 2: "b", 3: None})
    assert counts(take(pipeline)) == (3, 0, 0)
    fold(pipeline, "one")
    land_csv(tmp_path, "2026-11-02", {1: "a", 2: "c", 4: "d"})
    outcome = take(pipeline)
    assert counts(outcome) == (3, 1, 1)
    assert outcome.message.startswith("took extract 2026-11-02: 3 changes (1 of them deletes), 1 row unchanged")
    assert live(pipeline) == {1: "a", 2: "c", 4: "d"}
    assert take(pipeline).status is Status.NOTHING


def test_an_extract_without_news_is_taken_and_changes_nothing(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    land_csv(tmp_path, "2026-11-01", {1: "a", 2: "b"})
    take(pipeline)
    sqn = state_of(pipeline).last_sqn
    land_csv(tmp_path, "2026-11-02", {2: "b", 1: "a"})
    assert counts(take(pipeline)) == (0, 0, 2)
    assert state_of(pipeline).last_sqn == sqn


def test_several_extracts_are_taken_in_their_order(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    for day, rows in (("2026-11-03", {3: "c"}), ("2026-11-01", {1: "a"}), ("2026-11-02", {1: "b", 3: "x"})):
        land_csv(tmp_path, day, rows)
    outcome = take(pipeline)
    assert outcome.facts["extracts"] == ["2026-11-01", "2026-11-02", "2026-11-03"]
    assert counts(outcome) == (1 + 2 + 2, 1, 0)
    assert (
        outcome.message == "took 3 extracts, 2026-11-01 to 2026-11-03: 5 changes (1 of them deletes), 0 rows unchanged"
    )
    assert live(pipeline) == {3: "c"}


def test_history_has_a_version_for_each_difference_alone(tmp_path: Path) -> None:
    pipeline = make(tmp_path, more="merge: history")
    for day, rows in (("01", {1: "a", 2: "b"}), ("02", {1: "a", 2: "c"}), ("03", {2: "c"}), ("04", {1: "a", 2: "c"})):
        land_csv(tmp_path, f"2026-11-{day}", rows)
        take(pipeline)
        fold(pipeline, day)
    _, batches = read_rows(pipeline, "items")
    found = [
        (row["id"], row["text"], row["_valid_from"].day, row["_valid_to"] and row["_valid_to"].day)
        for batch in batches
        for row in batch.to_pylist()
    ]
    assert sorted(found, key=str) == [
        (1, "a", 1, 3),
        (1, "a", 4, None),
        (2, "b", 1, 2),
        (2, "c", 2, None),
    ]


def test_an_older_extract_after_a_newer_one_is_refused_by_name(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    land_csv(tmp_path, "2026-11-02", {1: "b"})
    take(pipeline)
    land_csv(tmp_path, "2026-11-01", {1: "a", 9: "z"})
    outcome = take(pipeline)
    assert "EXTRACT_LATE" in outcome.message
    assert live(pipeline) == {1: "b"}


def test_an_extract_that_was_taken_and_is_landed_again(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    path = land_csv(tmp_path, "2026-11-02", {1: "b"})
    take(pipeline)
    again = path.read_bytes()
    path.unlink()
    path.write_bytes(again)
    assert take(pipeline).message == "nothing new"
    land_csv(tmp_path, "2026-11-02", {1: "b", 2: "late"})
    assert "LANDED_CHANGED" in take(pipeline).message
    assert live(pipeline) == {1: "b"}


@pytest.mark.parametrize("marker", ["_SUCCESS", "done-{extract}.txt"])
def test_an_extract_of_several_files_waits_for_its_marker(marker: str, tmp_path: Path) -> None:
    pipeline = make(tmp_path, f'extract: {{marker: "{marker}"}}')
    land_text(tmp_path, "2026-11-01/part-0.csv", csv_of({1: "a"}))
    assert "EXTRACT_WAITING" in take(pipeline).message
    land_text(tmp_path, "2026-11-01/part-1.csv", "id,text\n2,b")  # The marker says that it is complete.
    marked = "2026-11-01/_SUCCESS" if marker == "_SUCCESS" else "done-2026-11-01.txt"
    land_text(tmp_path, marked, "")
    outcome = take(pipeline)
    assert counts(outcome) == (2, 0, 0), outcome
    assert outcome.facts["files"] == 2
    assert outcome.facts["problems"] == []
    assert live(pipeline) == {1: "a", 2: "b"}


def test_several_files_that_nothing_says_to_be_all_are_not_taken(tmp_path: Path) -> None:
    pipeline = make(tmp_path, "extract: full")
    for part in (0, 1):
        land_text(tmp_path, f"2026-11-01/part-{part}.csv", csv_of({part: "a"}))
    outcome = take(pipeline)
    assert "tidefold cannot tell whether these are all" in outcome.message
    assert 'marker: "_SUCCESS"' in hint_of(pipeline)
    assert not has_taken(pipeline)


def test_files_of_one_day_in_one_folder_are_complete_with_the_marker_of_that_day(tmp_path: Path) -> None:
    """The advice named `_SUCCESS`, which such a folder cannot have for each day."""
    pipeline = make(tmp_path, "extract: full")
    for part in (1, 2):
        land_text(tmp_path, f"2026-11-01.{part}.csv", csv_of({part: "a"}))
    take(pipeline)
    assert 'marker: "{extract}.done"}` and land `2026-11-01.done` after its files' in hint_of(pipeline)
    marked = make(tmp_path, 'extract: {marker: "{extract}.done"}')
    land_text(tmp_path, "2026-11-01.done", "")
    assert take(marked).facts["changes"] == 2


def test_a_file_without_its_end_is_not_taken(tmp_path: Path) -> None:
    pipeline = make(tmp_path, "extract: full")
    path = land_text(tmp_path, "items-2026-11-01.csv", "id,text\n1,a\n2,b")
    assert "EXTRACT_WAITING" in take(pipeline).message
    path.write_text("id,text\n1,a\n2,b\n")
    assert counts(take(pipeline)) == (2, 0, 0)


def test_an_extract_whose_row_count_is_another_is_refused(tmp_path: Path) -> None:
    pipeline = make(tmp_path, "extract: {row_count: COUNT}")
    land_text(tmp_path, "2026-11-01/part-0.csv", csv_of({1: "a", 2: "b"}))
    count = land_text(tmp_path, "2026-11-01/COUNT", "3\n")
    outcome = take(pipeline)
    assert outcome.error_code == "EXTRACT_ROWS"
    assert "2 rows, and its row count says 3" in outcome.message
    assert not has_taken(pipeline)
    count.write_text("2\n")
    assert counts(take(pipeline)) == (2, 0, 0)


def test_too_few_rows_and_too_many_deletes_stop_until_accepted(tmp_path: Path) -> None:
    pipeline = make(tmp_path, "extract: {min_rows: 2, max_deletes: 0.5}")
    land_csv(tmp_path, "2026-11-01", {1: "a", 2: "b", 3: "c", 4: "d", 5: "e"})
    take(pipeline)
    land_csv(tmp_path, "2026-11-02", {1: "a", 2: "b"})
    outcome = take(pipeline)
    assert outcome.error_code == "EXTRACT_DELETES"
    assert "lacks 3 of 5 keys (60%), more than `max_deletes` (50%)" in outcome.message
    assert len(live(pipeline)) == 5
    pipeline = make(tmp_path, "extract: {min_rows: 2, max_deletes: 0.5, accept: [2026-11-02]}")
    assert counts(take(pipeline)) == (3, 3, 2)
    land_csv(tmp_path, "2026-11-03", {1: "a"})
    assert take(pipeline).error_code == "EXTRACT_ROWS"
    assert live(pipeline) == {1: "a", 2: "b"}


def test_a_key_with_two_rows_is_refused_and_a_row_twice_is_one(tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    land_text(tmp_path, "items-2026-11-01.csv", "id,text\n1,a\n1,a\n2,b\n")
    assert counts(take(pipeline)) == (2, 0, 1)
    land_text(tmp_path, "items-2026-11-02.csv", "id,text\n1,a\n1,b\n")
    outcome = take(pipeline)
    assert outcome.error_code == "EXTRACT_KEYS"
    assert live(pipeline) == {1: "a", 2: "b"}


def test_a_refused_row_holds_back_deletes_and_nothing_else(tmp_path: Path) -> None:
    """I31: the key of a refused row may be one that seems to be missing."""
    pipeline = make(tmp_path)
    land_csv(tmp_path, "2026-11-01", {1: "a", 2: "b", 3: "c"})
    take(pipeline)
    land_text(tmp_path, "items-2026-11-02.csv", "id,text\n1,new\ntwo,b\n")
    outcome = take(pipeline)
    assert (counts(outcome), outcome.facts["quarantined"]) == ((1, 0, 0), 1)
    assert "2 rows stay although the extract lacks their keys" in outcome.message
    assert live(pipeline) == {1: "new", 2: "b", 3: "c"}
    land_csv(tmp_path, "2026-11-03", {1: "new", 2: "b"})
    assert counts(take(pipeline)) == (1, 1, 2)


def test_a_file_with_other_columns_holds_up_its_whole_extract(tmp_path: Path) -> None:
    pipeline = make(tmp_path, "extract: {min_rows: 2}")
    land_text(tmp_path, "2026-11-01/part-0.csv", csv_of({1: "a"}))
    land_text(tmp_path, "2026-11-01/part-1.csv", "id,name\n2,b\n")
    outcome = take(pipeline)
    assert outcome.error_code == "LANDED_SCHEMA", outcome
    assert not has_taken(pipeline)


@pytest.mark.parametrize("name", ["items.csv", "items-2026-11-01-0600.csv", "2026-11-01/hour=06/items.csv"])
def test_names_without_a_clear_date_are_not_taken(name: str, tmp_path: Path) -> None:
    """A time that is taken for a part would make one extract of two."""
    pipeline = make(tmp_path)
    land_text(tmp_path, name, csv_of({1: "a"}))
    outcome = take(pipeline)
    assert "EXTRACT_NAME" in outcome.message
    assert not has_taken(pipeline)


def test_extracts_of_one_day_by_their_time(tmp_path: Path) -> None:
    pipeline = make(tmp_path, 'extract: {date_format: "%Y%m%d_%H%M", max_deletes: 1}')
    land_text(tmp_path, "items_20261101_0600.csv", csv_of({1: "a"}))
    land_text(tmp_path, "items_20261101_1800.csv", csv_of({2: "b"}))
    assert counts(take(pipeline)) == (3, 1, 0)
    assert live(pipeline) == {2: "b"}


def test_what_a_restore_left_out_comes_back_with_the_next_extract(tmp_path: Path) -> None:
    """The comparison is with the rows of the log, not with the last extract."""
    pipeline = make(tmp_path)
    for day, rows in (("01", {1: "a"}), ("02", {1: "b", 2: "b"})):
        land_csv(tmp_path, f"2026-11-{day}", rows)
        take(pipeline)
        fold(pipeline, day)
    [outcome] = materialize(pipeline, ["items"], Restore("back", RestorePoint(1, RestoreMode.SKIP)), in_process)
    assert outcome.error_code is None, outcome
    judge_all(pipeline, "items")
    confirm(pipeline, "items", Confirmation(run="back"))
    assert live(pipeline) == {1: "a"}
    land_csv(tmp_path, "2026-11-03", {1: "b", 2: "b"})
    assert counts(take(pipeline)) == (2, 0, 0)
    assert live(pipeline) == {1: "b", 2: "b"}


FLOATS = [0.0, -0.0, 1.5, float("inf"), None]


def test_a_zero_with_another_sign_is_a_change(tmp_path: Path) -> None:
    pipeline = make(tmp_path, source="parquet", columns="{id: int, v: double}")
    schema = pa.schema([("id", pa.int32()), ("v", pa.float64())])
    for day, value in enumerate([0.0, -0.0, -0.0, float("nan"), float("nan")], 1):
        land_parquet(tmp_path, f"items-2026-11-0{day}.parquet", [{"id": 1, "v": value}], schema)
    assert counts(take(pipeline)) == (3, 0, 2)


def test_a_run_killed_at_any_point_leaves_no_half_extract(tmp_path: Path) -> None:
    """I19: after each kill the rows are those before or after the extract; the next run takes what is not taken."""
    template, old, new = tmp_path / "template", {1: "a", 2: "b", 3: "c"}, {1: "a", 2: "x", 4: "d"}
    config = (make(template).config.path).read_text()
    land_csv(template, "2026-11-01", old)
    take(make(template))
    land_text(template, "2026-11-02/part-0.csv", csv_of({1: "a", 2: "x"}))
    land_text(template, "2026-11-02/part-1.csv", csv_of({4: "d"}))
    loose = config.replace(LOOSE, "extract: {max_deletes: 1, min_rows: 2}")
    whole = on_copy(template, tmp_path / "whole", loose)
    take(whole)
    assert isinstance(whole.store, FaultyStore)
    assert whole.store.calls > 3
    for at in range(whole.store.calls):
        folder = tmp_path / "killed"
        with pytest.raises(Killed):
            take(on_copy(template, folder, loose, at=at, fault=Fault.KILLED_AFTER))
        again = reopened(folder, loose)
        assert live(again) in (old, new), at
        take(again)
        assert live(again) == new, at
        assert sum(e.records for e in state_of(again).landed if e.length) == 6
        for silent in recovery.find_abandoned(again.store, "2099-01-01T00:00:00+00:00"):
            recovery.recover_run(again.store, silent)
        needed = {change_set.location.segment for change_set in state_of(again).change_sets}
        assert {entry.path for entry in again.store.list("changelog", unfinished=True)} == needed, at


texts = st.one_of(st.none(), st.sampled_from(["a", "b", "c"]))
extracts = st.dictionaries(st.integers(0, 12), texts, max_size=10)


def land_any(root: Path, kind: str, day: int, rows: Rows, parts: int) -> None:
    """An extract of some files, and its marker last."""
    folder = f"2026-11-{day:02d}"
    (root / "landing/items" / folder).mkdir()
    items = list(rows.items())
    for part in range(parts):
        mine: list[dict[str, Any]] = [{"id": item, "text": text} for item, text in items[part::parts]]
        name = f"{folder}/part-{part}"
        if kind == "csv":
            land_text(root, f"{name}.csv", csv_of({row["id"]: row["text"] for row in mine}))
        elif kind == "json":
            land_text(root, f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in mine) or "\n")
        else:
            land_parquet(root, f"{name}.parquet", mine, pa.schema([("id", pa.int32()), ("text", pa.string())]))
    land_text(root, f"{folder}/_SUCCESS", "")


@pytest.mark.rotates(2)
@pytest.mark.parametrize(("kind", "engine"), [("csv", "last"), ("json", "last"), ("parquet", "history")])
@given(days=st.lists(extracts, min_size=1, max_size=5), data=st.data())
@settings(max_examples=choose(3, 6), deadline=None)
def test_the_table_is_the_newest_extract(
    kind: str, engine: str, days: list[Rows], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The oracle: a dict of the last extract. What differs from the one before is counted, and nothing else."""
    root = tmp_path_factory.mktemp("extracts")
    source = kind if kind != "csv" else 'csv, "null": [""]'
    pipeline = make(root, "extract: {marker: _SUCCESS, min_rows: 0, max_deletes: 1}", source, f"merge: {engine}")
    before: Rows = {}
    for day, rows in enumerate(days, 1):
        land_any(root, kind, day, rows, data.draw(st.integers(1, 3)))
        outcome = take(pipeline)
        assert outcome.error_code is None, outcome
        gone = len(before.keys() - rows.keys())
        same = sum(item in before and before[item] == text for item, text in rows.items())
        assert counts(outcome) == (len(rows) - same + gone, gone, same)
        assert live(pipeline) == rows
        before = rows
        if data.draw(st.booleans()):
            fold(pipeline, f"run-{day}")
            assert live(pipeline) == rows
    fold(pipeline, "last")
    assert live(pipeline) == before
    landed = state_of(pipeline).landed
    names = ("changes", "tombstones", "repeated", "resent", "unproved", "quarantined", "ignored")
    assert all(entry.records == sum(getattr(entry, name) for name in names) for entry in landed)


def fed_by_table(root: Path, more: str = "", extract: str = "{max_deletes: 1}") -> Pipeline:
    text = delta_tables.CONFIG.format(options=f", extract: {extract}", columns=COLUMNS, table="table")
    path = root / "tidefold.yaml"
    path.write_text(text.replace("format: delta-cdf", "format: delta") + more)
    return open_pipeline(path)


@pytest.mark.parametrize("engine", ["last", "history"])
def test_the_newest_version_of_a_delta_table_is_an_extract(engine: str, tmp_path: Path) -> None:
    """Without a change feed, and whatever the versions between did."""
    row, plain = delta_tables.row, {"configuration": {}}
    delta_tables.write(tmp_path, [row(1), row(2), row(3)], **plain)
    pipeline = fed_by_table(tmp_path, f"    merge: {engine}\n")
    assert counts(take(pipeline)) == (3, 0, 0)
    fold(pipeline, "one")
    delta_tables.write(tmp_path, [row(9)], **plain)
    delta_tables.write(tmp_path, [row(1), row(2, "b"), row(4)], mode="overwrite", **plain)
    outcome = take(pipeline)
    assert (counts(outcome), outcome.facts["extracts"]) == ((3, 1, 1), ["version 2"])
    assert live(pipeline) == {1: "a", 2: "b", 4: "a"}
    assert take(pipeline).status is Status.NOTHING
    assert {change["_ts"] is None for change in changes_of(pipeline)} == {False}
    delta_tables.write(tmp_path, [], mode="overwrite", **plain)
    assert take(pipeline).error_code == "EXTRACT_ROWS"


def test_a_delta_table_that_was_replaced_or_lacks_many_rows_stops(tmp_path: Path) -> None:
    delta_tables.write(tmp_path, [delta_tables.row(i) for i in range(4)])
    pipeline = fed_by_table(tmp_path, extract="full")
    take(pipeline)
    delta_tables.write(tmp_path, [delta_tables.row(1)], mode="overwrite")
    assert take(pipeline).error_code == "EXTRACT_DELETES"
    shutil.rmtree(tmp_path / "table")
    delta_tables.write(tmp_path, [delta_tables.row(1)])
    assert take(pipeline).error_code == "DELTA_SOURCE_REPLACED"
