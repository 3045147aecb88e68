"""What the names of landed files may be, and what a log reads in them: no record vanishes behind a name (I30)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.arrival import Landing
from support.effort import choose
from support.landing import TOPIC, ingest_items, land, make_landing, record
from support.landing_rows import land_text, make_rows_landing
from tidefold.changelog.segment import read_change_set
from tidefold.domain.source_progress import NameReading
from tidefold.errors import InvalidInputError
from tidefold.operations.ground.pipeline import Pipeline

ORDERED = "json, record: value"


def rows(first: int, count: int) -> str:
    return "".join(json.dumps({"id": i, "text": "t", "seq": i}) + "\n" for i in range(first, first + count))


def ids(pipeline: Pipeline) -> list[int]:
    state = pipeline.ledger("items").read()
    return sorted(i for c in state.change_sets for i in read_change_set(pipeline.store, c).column("id").to_pylist())


def names_of(pipeline: Pipeline) -> NameReading | None:
    return pipeline.ledger("items").read().names


def test_daily_files_of_json_lines_are_taken_whole(tmp_path: Path) -> None:
    """`customers-2026-11-01` was read as topic, partition 11 and offset 1: three files of 5 records gave 7 rows."""
    pipeline = make_rows_landing(tmp_path, ORDERED)
    for day in range(3):
        land_text(tmp_path, f"customers-2026-11-{day + 1:02d}.jsonl", rows(5 * day, 5))
    outcome = ingest_items(pipeline)
    assert (outcome.status, outcome.facts["changes"], outcome.facts["repeated"]) == ("taken", 15, 0)
    assert ids(pipeline) == list(range(15))
    assert names_of(pipeline) is NameReading.ANY
    assert ingest_items(pipeline).message == "nothing new"


NAMES = st.one_of(
    st.from_regex(r"[\w+ -][\w.+ -]{0,20}\.(jsonl|json|ndjson)(\.gz)?", fullmatch=True),
    st.from_regex(r"[a-z]{1,5}[-+_.]20\d\d-[01]\d-[0-3]\d\.jsonl", fullmatch=True),
    st.from_regex(r"[a-z]{1,5}-\d{1,3}-\d{1,10}\.jsonl", fullmatch=True),
)


@given(names=st.lists(NAMES, min_size=1, max_size=6, unique_by=str.lower))
@settings(max_examples=choose(10, 25), deadline=None)
def test_whatever_files_are_called_each_record_is_in_one_count(
    names: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    import gzip

    root = tmp_path_factory.mktemp("names")
    pipeline = make_rows_landing(root, ORDERED)
    hidden = [n for n in names if n.startswith((".", "_")) or len(n.encode()) > 200]
    visible = [n for n in names if n not in hidden]
    for number, name in enumerate(names):
        text = rows(10 * number, 3).encode()
        land_text(root, name, gzip.compress(text) if name.endswith(".gz") else text)
    outcome = ingest_items(pipeline)
    if not visible:
        assert outcome.status == "nothing"
        return
    problems = {problem["file"] for problem in outcome.facts["problems"]}
    entries = pipeline.ledger("items").read().landed
    assert {e.name for e in entries} | problems == set(visible)
    assert all(e.records == 3 == e.changes for e in entries)
    expected = [10 * names.index(e.name) + i for e in entries for i in range(3)]
    assert ids(pipeline) == sorted(expected)


def test_a_log_that_needs_positions_names_the_line_to_set(tmp_path: Path) -> None:
    pipeline = make_rows_landing(tmp_path, ORDERED, more="")
    land_text(tmp_path, "customers-2026-11-01.jsonl", rows(0, 5))
    outcome = ingest_items(pipeline)
    assert (outcome.status, outcome.error_code) == ("error", "LANDED_NAME")
    assert "order: [COLUMN]" in outcome.message
    assert "names: kafka-dash" in outcome.message
    assert not pipeline.ledger("items").exists()
    # The advice, followed to the letter, mends it.
    pipeline = make_rows_landing(tmp_path, ORDERED, more="order: [seq]")
    assert ingest_items(pipeline).facts["changes"] == 5


@pytest.mark.parametrize("record", ["value", "kafka"])
def test_a_keyless_log_takes_any_name_where_a_line_is_a_row(tmp_path: Path, record: str) -> None:
    source = ORDERED.replace("record: value", f"record: {record}")
    pipeline = make_rows_landing(tmp_path, source, more="merge: append", key="[]")
    land_text(tmp_path, "clicks.jsonl", rows(0, 2))
    outcome = ingest_items(pipeline)
    if record == "value":
        assert outcome.facts["changes"] == 2
        return
    assert outcome.error_code == "LANDED_NAME"
    assert "set `names: any`" in outcome.message


def test_any_names_are_refused_in_the_configuration_where_nothing_orders_rows(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="SOURCE_ORDER"):
        make_rows_landing(tmp_path, f"{ORDERED}, names: any", more="", key="[id]")


def test_the_dash_form_is_read_only_where_the_configuration_says_so(tmp_path: Path) -> None:
    pipeline = make_landing(tmp_path)
    land(tmp_path, 0, [record(0)], name="{topic}-0-0000000000.jsonl")
    assert ingest_items(pipeline).error_code == "LANDED_NAME"
    path = tmp_path / "tidefold.yaml"
    path.write_text(path.read_text().replace("postgresql,", "postgresql, names: kafka-dash,"))
    from tidefold.wiring import open_pipeline

    pipeline = open_pipeline(path)
    assert ingest_items(pipeline).facts["changes"] == 1
    assert names_of(pipeline) is NameReading.KAFKA_DASH
    # What was configured once stays, also when the line is gone.
    path.write_text(path.read_text().replace(" names: kafka-dash,", ""))
    pipeline = open_pipeline(path)
    land(tmp_path, 1, [record(1)], name="{topic}-0-{start}.jsonl")
    assert ingest_items(pipeline).facts["changes"] == 1
    path.write_text(path.read_text().replace("postgresql,", "postgresql, names: kafka,"))
    outcome = ingest_items(open_pipeline(path))
    assert outcome.error_code == "NAMES_CHANGED"
    assert "Set `names: kafka-dash`" in outcome.message


def test_kafka_names_may_become_the_wider_form_and_never_any(tmp_path: Path) -> None:
    pipeline = make_rows_landing(tmp_path, ORDERED)
    land_text(tmp_path, "items+0+0000000000.jsonl", rows(0, 2))
    land_text(tmp_path, "notes-of-today.jsonl", rows(50, 1))
    outcome = ingest_items(pipeline)
    assert (outcome.facts["changes"], names_of(pipeline)) == (2, NameReading.KAFKA)
    [problem] = outcome.facts["problems"]
    assert problem["code"] == "LANDED_NAME"
    assert not problem["hint"].startswith("Otherwise")
    # The advice for a stray copy, followed to the letter, mends it.
    assert 'set `leave_out: ["notes-of-today.jsonl"]` under `source`' in problem["hint"]
    stray = make_rows_landing(tmp_path, f'{ORDERED}, leave_out: ["notes-of-today.jsonl"]')
    assert ingest_items(stray).facts["problems"] == []
    (tmp_path / "landing/items/notes-of-today.jsonl").unlink()
    assert ingest_items(make_rows_landing(tmp_path, f"{ORDERED}, names: any")).error_code == "NAMES_CHANGED"
    land_text(tmp_path, "items-0-2.jsonl", rows(2, 1))
    pipeline = make_rows_landing(tmp_path, f"{ORDERED}, names: kafka-dash")
    assert (ingest_items(pipeline).facts["changes"], names_of(pipeline)) == (1, NameReading.KAFKA_DASH)


def test_rows_of_any_file_are_placed_by_their_arrival(tmp_path: Path) -> None:
    """I25: the number of the file in the log, then the line. The same bytes in another file are nothing new."""
    pipeline = make_rows_landing(tmp_path, ORDERED)
    for run, files in enumerate([{"b": rows(0, 2), "a": rows(1, 2)}, {"aa": rows(3, 1)}, {"c": rows(0, 2)}]):
        for name, text in files.items():
            land_text(tmp_path, f"{name} {run}.json", text)
        ingest_items(pipeline)
    state = pipeline.ledger("items").read()
    tables = [read_change_set(pipeline.store, c) for c in state.change_sets]
    found = [(r["_partition"], r["_offset"], r["id"]) for t in tables for r in t.to_pylist()]
    assert sorted(found) == [(1, 1, 1), (1, 2, 2), (2, 1, 0), (2, 2, 1), (3, 1, 3)]
    assert [(e.number, e.name, e.changes, e.repeated) for e in state.landed] == [
        (1, "a 0.json", 2, 0), (2, "b 0.json", 2, 0), (3, "aa 1.json", 1, 0), (4, "c 2.json", 0, 2),
    ]  # fmt: skip


def test_a_copy_that_grows_was_none(tmp_path: Path) -> None:
    """Two files that begin alike: the second is still being written when its first rows are those of the first."""
    pipeline = make_rows_landing(tmp_path, ORDERED, more="merge: append", key="[]")
    land_text(tmp_path, "a.jsonl", rows(0, 2))
    land_text(tmp_path, "b.jsonl", rows(0, 2))
    assert ingest_items(pipeline).facts["changes"] == 2
    assert ingest_items(pipeline).status == "nothing"
    land_text(tmp_path, "b.jsonl", rows(0, 3))
    assert ingest_items(pipeline).facts["changes"] == 3
    land_text(tmp_path, "b.jsonl", rows(0, 4))
    assert ingest_items(pipeline).facts["changes"] == 1
    state = pipeline.ledger("items").read()
    found = [r["_offset"] for c in state.change_sets for r in read_change_set(pipeline.store, c).to_pylist()]
    assert sorted(found) == [1, 1, 2, 2, 3, 4]


def test_an_ordinary_file_may_grow_and_a_refused_row_says_where_it_stands(tmp_path: Path) -> None:
    pipeline = make_rows_landing(tmp_path, ORDERED)
    land_text(tmp_path, "all.jsonl", rows(0, 2) + "{broken\n")
    assert (ingest_items(pipeline).facts["changes"], ingest_items(pipeline).status) == (2, "nothing")
    land_text(tmp_path, "all.jsonl", rows(0, 2) + "{broken\n" + rows(2, 1) + "{torn")
    outcome = ingest_items(pipeline)
    assert (outcome.facts["records"], outcome.facts["changes"]) == (1, 1)
    assert ids(pipeline) == [0, 1, 2]


def test_two_topics_in_one_folder_are_still_told_apart(tmp_path: Path) -> None:
    pipeline = make_landing(tmp_path)
    land(tmp_path, 0, [record(0)])
    (tmp_path / "landing" / TOPIC / "other+0+0000000000.jsonl").write_text("{}\n")
    assert [p["code"] for p in ingest_items(pipeline).facts["problems"]] == ["FOREIGN_FILE"]


def test_a_run_that_ignores_every_landed_file_for_its_name_is_an_error(tmp_path: Path) -> None:
    at = Landing.make(
        tmp_path / "at", {"o": "key: [id]\ncolumns: {id: long, v: string, day: date}\norder: [day]"}, "format: csv"
    )
    at.land("rows.txt", "id,v,day\n1,a,2026-11-01\n")
    assert "FOREIGN_FILE" in at.run(code=2).output
    at.land("a.csv", [{"id": 1, "v": "a", "day": "2026-11-01"}])
    assert "LOAD_INCOMPLETE" in at.run(code=2).output  # It is still there.
    at.edit("format: csv", "format: csv, leave_out: [rows.txt]")
    at.run()
    assert [row["v"] for row in at.rows("o")] == ["a"]
