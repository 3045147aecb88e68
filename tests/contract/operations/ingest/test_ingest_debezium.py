"""Debezium end to end, from landed files to change sets: clears, snapshots, repeats, layouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.landing import TOPIC, changes_of, land, make_landing, quarantined, record, state_of, take, tombstone
from support.older import older_program
from tidefold.changelog.schema import CLEAR, DELETE, MERGE, UPSERT
from tidefold.compute.runners import in_process
from tidefold.config import load_config
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.quarantine.retry import retry
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.materialize import materialize
from tidefold.storage import open_store

GROUPS = 16


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return make_landing(tmp_path)


def snapshot(offset: int, *items: int, order: int, first: bool = True) -> list[dict[str, Any]]:
    marks = ["first" if first else "true", *["true"] * len(items)]
    return [record(offset + i, item, "r", order=order, snapshot=marks[i]) for i, item in enumerate(items)]


def truncate(offset: int, **changes: Any) -> dict[str, Any]:
    return record(offset, op="t", key=None, before=None, after=None, **changes)


def rows_after(pipeline: Pipeline) -> set[int]:
    """The ids of the rows after all changes, one by one in their order."""
    changes = changes_of(pipeline)
    rows: dict[int, tuple[int, ...]] = {}
    for change in sorted(changes, key=lambda c: (c["_o0"], c["_o1"], c["_partition"], c["_offset"], -c["_op"])):
        order = (change["_o0"], change["_o1"])
        if change["_op"] == CLEAR:
            rows = {key: of for key, of in rows.items() if of >= order}
        elif change["_op"] == DELETE:
            rows.pop(change["id"], None)
        else:
            rows[change["id"]] = order
    return set(rows)


def test_a_truncate_is_one_change_that_every_key_group_sees(pipeline: Pipeline, tmp_path: Path) -> None:
    land(tmp_path, 0, [record(0, 1), record(1, 2), truncate(2), record(3, 3)])
    outcome = take(pipeline)
    assert outcome.facts["changes"] == 4
    clears = [c for c in changes_of(pipeline) if c["_op"] == CLEAR]
    assert sorted(c["_kg"] for c in clears) == list(range(GROUPS))
    assert {(c["_o0"], c["_o1"], c["_offset"], c["id"], c["text"]) for c in clears} == {(1002, 1002, 2, None, None)}
    assert rows_after(pipeline) == {3}
    [change_set] = state_of(pipeline).change_sets
    assert change_set.rows == 4, "it counts once"


def test_a_truncate_below_the_floor_is_counted_as_one_repeat(pipeline: Pipeline, tmp_path: Path) -> None:
    first = [record(0, 1), truncate(1), record(2, 2)]
    again = [r | {"offset": r["offset"] + 3} for r in first]
    land(tmp_path, 0, first)
    land(tmp_path, 3, [*again, record(6, 3)])
    outcome = take(pipeline)
    assert (outcome.facts["changes"], outcome.facts["resent"]) == (5, 2)
    assert rows_after(pipeline) == {2, 3}


@pytest.mark.parametrize("files", [[11], [3, 5, 6, 9, 11], [6, 7, 11], list(range(1, 12))])
def test_a_new_snapshot_replaces_what_was_there_whichever_files_it_lies_in(
    pipeline: Pipeline, tmp_path: Path, files: list[int]
) -> None:
    stream = [
        *snapshot(0, 0, 1, 2, order=50),
        *snapshot(3, 3, 4, order=50, first=False),
        record(5, 1, "u", sequence='["60","65"]', ts_us=65_000),
        *snapshot(6, 0, 1, order=90),
        record(8, 7, order=91),
        record(9, 0, "d", order=92),
        tombstone(10, 0),
    ]
    start = 0
    for end in files:
        land(tmp_path, start, stream[start:end])
        start = end
    outcome = take(pipeline)
    assert outcome.facts["changes"] == 10
    assert rows_after(pipeline) == {1, 7}
    assert len([c for c in changes_of(pipeline) if c["_op"] == CLEAR]) == GROUPS
    # An interrupted snapshot that is made anew: its rows are not in the next one's way.
    land(tmp_path, 11, snapshot(11, 1, 2, order=120))
    take(pipeline)
    assert rows_after(pipeline) == {1, 2}


def test_a_truncate_that_other_partitions_went_beyond_is_refused_until_the_log_is_begun_anew(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    name = "{topic}+1+{start:010d}.{extension}"
    land(tmp_path, 0, [record(0, 1, order=10)])
    land(tmp_path, 0, [record(0, 2, order=30, partition=1)], name=name)
    assert take(pipeline).error_code is None
    land(tmp_path, 1, [truncate(1, order=20)])
    before = state_of(pipeline)
    outcome = take(pipeline)
    assert outcome.error_code == "TABLE_EVENT"
    assert "partition 1" in outcome.message
    assert "tidefold retain drop LOG" in outcome.message
    assert state_of(pipeline) == before
    # A truncate that is later than all that was taken is no problem.
    land(tmp_path, 1, [truncate(1, order=40)])
    assert take(pipeline).error_code is None
    assert rows_after(pipeline) == set()


def wrapped(value: dict[str, Any] | None, columns: list[dict[str, Any]]) -> dict[str, Any]:
    row = {"type": "struct", "fields": columns}
    fields = [{**row, "field": "before"}, {**row, "field": "after"}, {"type": "string", "field": "op"}]
    return {"schema": {"type": "struct", "fields": fields}, "payload": value}


def test_values_alone_have_the_offsets_of_their_lines(pipeline: Pipeline, tmp_path: Path) -> None:
    """As Confluent's S3 sink writes JSON: neither keys nor offsets, and with a schema beside each value or without."""
    columns = [{"field": "id", "type": "int32"}, {"field": "text", "type": "string", "optional": True}]
    values = [record(i, i)["value"] for i in range(3)]
    land(tmp_path, 100, [values[0], wrapped(values[1], columns), "null", "{bad", {"ts_ms": 5}], "json")
    outcome = take(pipeline)
    assert [outcome.facts[name] for name in ("changes", "tombstones", "quarantined", "ignored")] == [2, 1, 1, 1]
    assert [(c["_offset"], c["id"]) for c in changes_of(pipeline)] == [(100, 0), (101, 1)]
    land(tmp_path, 105, [values[2]], "json.gz")
    take(pipeline)
    assert [c["_offset"] for c in changes_of(pipeline)] == [100, 101, 105]
    assert state_of(pipeline).positions[0].next_offset == 106


def test_records_may_leave_topic_and_partition_to_the_name_of_the_file(tmp_path: Path) -> None:
    """As Aiven's S3 sink writes them: key, value, offset, timestamp, headers, as far as it is told to."""
    pipeline = make_landing(tmp_path, more=", names: kafka-dash")
    lines = []
    for i in range(3):
        whole = record(2 * i, i)
        lines.append(
            {n: whole[n] for n in ("key", "value", "offset", "headers")} | {"timestamp": "2026-01-01T00:00:00Z"}
        )
    land(tmp_path, 0, [*lines[:2], {"key": {"id": 9}, "value": None, "offset": 3}, lines[2]], name="{topic}-0-0.jsonl")
    land(tmp_path, 5, [{"value": record(5, 5)["value"]}], name="{topic}-0-5.jsonl")
    take(pipeline)
    assert [(c["_offset"], c["id"]) for c in changes_of(pipeline)] == [(0, 0), (2, 1), (4, 2), (5, 5)]
    # One that lacks its offset among others that have it.
    land(tmp_path, 6, [record(6, 6), {"value": record(7, 7)["value"]}])
    take(pipeline)
    assert [q["reason"] for q in quarantined(pipeline)] == ["NOT_A_RECORD"]


def test_a_line_that_grew_and_was_retried_keeps_its_offset(pipeline: Pipeline, tmp_path: Path) -> None:
    first, second, third = ({"value": record(i, i)["value"]} for i in range(3))
    land(tmp_path, 10, [first])
    take(pipeline)
    land(tmp_path, 10, [first, second, third])
    take(pipeline)
    assert [c["_offset"] for c in changes_of(pipeline)] == [10, 11, 12]


def test_an_unavailable_value_is_absent_which_is_not_null(tmp_path: Path) -> None:
    """apache/hudi#19748: a value that was not sent must not overwrite the one that is there."""
    pipeline = make_landing(tmp_path, columns="{id: int, text: string, data: binary, tags: array<string>}")
    row = {"id": 1, "text": "t", "data": "YQ==", "tags": ["a"]}
    gone = "__debezium_unavailable_value"
    data = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
    moved = [{"key": "__debezium.oldkey", "value": {"id": 1}}]
    land(
        tmp_path,
        0,
        [
            record(0, after=row),
            record(1, op="u", after=row | {"text": gone, "data": data, "tags": [gone]}),
            record(2, op="u", after=row | {"text": None}),
            record(3, op="c", after=row | {"text": gone}),
            record(4, 2, op="c", after=row | {"id": 2, "text": gone}, headers=moved),
        ],
    )
    take(pipeline)
    found = [(c["_absent"], c["text"], c["data"], c["tags"]) for c in changes_of(pipeline)]
    assert found == [
        (None, "t", b"a", ["a"]),
        (["text", "data", "tags"], None, None, None),
        (None, None, b"a", ["a"]),
    ]
    # The refused record of the old key might hold the value.
    assert [q["reason"] for q in quarantined(pipeline)] == ["UNAVAILABLE_VALUE", "UNAVAILABLE_AFTER_KEY_CHANGE"]


def test_types_come_from_the_schema_beside_the_record_whatever_is_configured(tmp_path: Path) -> None:
    pipeline = make_landing(tmp_path, columns="{id: int, at: timestamp, amount: 'decimal(10,3)'}")
    columns = [
        {"field": "id", "type": "int32"},
        {"field": "at", "type": "int64", "name": "io.debezium.time.Timestamp"},
        {
            "field": "amount",
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "1"},
        },
    ]
    value = wrapped(record(0)["value"] | {"after": {"id": 1, "at": 1500, "amount": "AJY="}}, columns)
    key = {"schema": {"type": "struct"}, "payload": {"id": 1}}
    nanos_at = {"field": "at", "type": "int64", "name": "io.debezium.time.NanoTimestamp"}
    after = {"id": 1, "at": 1500, "amount": None}
    nanos = wrapped(record(1)["value"] | {"after": after}, [columns[0], nanos_at, columns[2]])
    wrong = wrapped(record(2)["value"], [{"field": "at", "type": "int64", "name": "io.debezium.time.MicroTime"}])
    land(tmp_path, 0, [record(0, key=key, value=value), record(1, value=nanos), record(2, value=wrong)])
    take(pipeline)
    [change] = changes_of(pipeline)
    assert (change["at"].isoformat(), str(change["amount"])) == ("1970-01-01T00:00:01.500000+00:00", "15.000")
    assert [json.loads(q["record"])["offset"] for q in quarantined(pipeline)] == [1, 2]
    assert [q["detail"] for q in quarantined(pipeline)] == [
        "Column `at` has fractions of a microsecond.",
        "By the record's schema `at` is io.debezium.time.MicroTime, which cannot be a column of timestamp.",
    ]


def test_a_key_change_is_a_delete_and_an_insert(pipeline: Pipeline, tmp_path: Path) -> None:
    new, old = ([{"key": f"__debezium.{w}key", "value": {"id": i}}] for w, i in (("new", 2), ("old", 1)))
    land(
        tmp_path,
        0,
        [record(0, 1), record(1, 1, "d", headers=new), tombstone(2, 1), record(3, 2, headers=old)],
    )
    outcome = take(pipeline)
    assert (outcome.facts["changes"], outcome.facts["tombstones"]) == (3, 1)
    assert [c["_op"] for c in changes_of(pipeline)] == [UPSERT, DELETE, UPSERT]
    assert rows_after(pipeline) == {2}
    assert TOPIC in state_of(pipeline).positions[0].topic


def binlog(offset: int, item: int, file: int, pos: int, row: int = 0, **changes: Any) -> dict[str, Any]:
    place = {"sequence": None, "file": f"mysql-bin.{file:06d}", "pos": pos, "row": row, "ts_us": None}
    one = record(offset, item, **{"ts_ms": 1_000_000 + file * 1000, **changes})
    one["value"]["source"] |= place
    return one


@pytest.mark.parametrize("connector", ["mysql", "mariadb"])
def test_the_binlog_orders_mysql_and_mariadb(tmp_path: Path, connector: str) -> None:
    make_landing(tmp_path)
    path = tmp_path / "tidefold.yaml"
    path.write_text(path.read_text().replace("connector: postgresql", f"connector: {connector}"))
    pipeline = Pipeline(load_config(path), open_store("store", tmp_path))
    first = [binlog(i, i, 9, 400, op="r", snapshot="true") for i in range(2)]
    stream = [binlog(2, 5, 9, 500), binlog(3, 5, 9, 500, 1, op="u"), binlog(4, 6, 10, 4), binlog(5, 7, 999_999, 4)]
    land(tmp_path, 0, [*first, *stream])
    again = [r | {"offset": r["offset"] + 4} for r in stream]
    land(tmp_path, 6, [*again, binlog(10, 8, 1_000_000, 4), binlog(11, 8, 1_000_000, 5)])
    assert take(pipeline).facts["resent"] == 3  # The one with the highest order is kept a second time: the same row.
    assert [(c["_o0"], c["_o1"], c["_o2"], c["id"]) for c in changes_of(pipeline)][:4] == [
        (9, 400, 0, 0),
        (9, 400, 0, 1),
        (9, 500, 0, 5),
        (9, 500, 1, 5),
    ]
    assert state_of(pipeline).positions[0].stream.max_order == (1_000_000, 5, 0)
    # A replica took over: its binlog begins at 1, and what it writes is later than all before.
    land(tmp_path, 12, [binlog(12, 9, 1, 4, ts_ms=2_000_000_000)])
    outcome = take(pipeline)
    assert (outcome.error_code, outcome.facts["refused"]) == ("TABLE_EVENT", {"ORDER_RESTART": 1})
    assert "(1, 4, 0) is below (1000000, 5, 0)" in outcome.message
    land(tmp_path, 12, [record(12)])
    assert take(pipeline).facts["refused"] == {"ORDER_MISSING": 1}


def test_a_refused_record_that_can_be_read_now_does_not_come_back_after_a_truncate(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """apache/paimon#5387: rows come back after a delete. A clear is newer than every row before it, of any key."""
    with older_program(monkeypatch, most=100):
        land(tmp_path, 0, [record(0, 1), record(1, 500), truncate(2), record(3, 600), record(4, 2)])
        assert take(pipeline).facts["refused"] == {"VALUE_INVALID": 2}
    found = retry(pipeline, "items").facts
    assert (found["repeated"], found["changes"], found["staying"]) == (1, 1, 0)
    assert rows_after(pipeline) == {2, 600}


def test_a_truncate_that_was_sent_again_is_in_nobodys_way(pipeline: Pipeline, tmp_path: Path) -> None:
    """Below what its own partition brought it is a repeat, whatever the other partitions went on to."""
    name = "{topic}+1+{start:010d}.{extension}"
    land(tmp_path, 0, [record(0, 1, order=10), truncate(1, order=20)])
    land(tmp_path, 0, [record(0, 2, order=30, partition=1)], name=name)
    assert take(pipeline).error_code is None
    land(tmp_path, 2, [record(2, 3, order=40)])
    land(tmp_path, 3, [truncate(3, order=20), record(4, 4, order=50)])
    assert take(pipeline).facts["resent"] == 1
    assert rows_after(pipeline) == {2, 3, 4}


def test_another_encoding_counts_for_what_comes_from_then_on(pipeline: Pipeline, tmp_path: Path) -> None:
    columns = "{id: int, text: {type: timestamp, encoding: millis}}"
    first = make_landing(tmp_path, columns=columns)
    land(tmp_path, 0, [record(0, after={"id": 1, "text": 5})])
    take(first)
    second = make_landing(tmp_path, columns=columns.replace("millis", "iso"))
    land(
        tmp_path,
        1,
        [record(1, after={"id": 1, "text": "1970-01-01T00:00:00.005Z"}), record(2, after={"id": 1, "text": 5})],
    )
    assert take(second).facts["refused"] == {"VALUE_INVALID": 1}
    [before, after] = changes_of(second)
    assert before["text"] == after["text"]


def test_values_that_are_added_up_count_once_although_they_came_again(tmp_path: Path) -> None:
    """Several rows of one statement share a position: what came again is left out by their number."""
    make_landing(tmp_path, columns="{id: int, n: long}")
    path = tmp_path / "tidefold.yaml"
    merge = "merge: {engine: aggregate, aggregates: {n: sum}, deletes: quarantine}\n    key: [id]"
    path.write_text(path.read_text().replace("key: [id]", merge))
    pipeline = Pipeline(load_config(path), open_store("store", tmp_path))

    def add(offset: int, order: int, n: int) -> dict[str, Any]:
        return record(offset, 1, order=order, after={"id": 1, "n": n})

    land(tmp_path, 0, [add(0, 10, 1), add(1, 20, 2), add(2, 20, 2)])
    land(tmp_path, 3, [add(3, 10, 1), add(4, 20, 2), add(5, 20, 2), add(6, 20, 2), add(7, 30, 4)])
    outcome = take(pipeline)
    assert (outcome.facts["changes"], outcome.facts["resent"]) == (5, 3)
    assert {change["_op"] for change in changes_of(pipeline)} == {MERGE}
    _, batches = read_rows(pipeline, "items", ReadRequest(What.LIVE))
    assert [row for batch in batches for row in batch.to_pylist()] == [{"id": 1, "n": 1 + 2 + 2 + 2 + 4}]


def test_a_clear_counts_once(pipeline: Pipeline, tmp_path: Path) -> None:
    """It stands once for each key group, so that every bucket has it."""
    land(tmp_path, 0, [record(0, 1), record(1, 2), truncate(2), record(3, 5)])
    assert take(pipeline).facts["changes"] == 4
    assert [change_set.rows for change_set in state_of(pipeline).change_sets] == [4]
    [outcome] = materialize(pipeline, ["items"], Fold("run"), in_process)
    assert (outcome.facts["changes"], outcome.facts["rows"]) == (4, 1)
