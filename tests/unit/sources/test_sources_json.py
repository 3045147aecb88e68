"""Plain JSON records, one at a time: rows, ops, tombstones, order, absent fields, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from support.reading import FileReading
from tidefold.changelog.schema import DELETE, MERGE, UPSERT
from tidefold.domain.log_state import Column, TableSpec
from tidefold.domain.table.table_spec import COLUMNS, POSITION, Deletes, Engine, Merge
from tidefold.sources.feed import Feed
from tidefold.sources.json_lines.source import Json
from tidefold.sources.records.accounting import FilePosition, LateOffsetError, ReaderPosition
from tidefold.sources.records.change_batches import TableBuilder
from tidefold.sources.records.errors import RefusedRecordError, head_of

TOPIC = "shop.items"
COLUMNS_ = (Column("id", "int"), Column("text", "string"), Column("seq", "long"))
SHAPE = TableSpec(("id",), COLUMNS_, POSITION, 16, 4)
ORDERED = replace(SHAPE, order=COLUMNS, order_by=("seq",))
PARTIAL = replace(SHAPE, merge=Merge(Engine.PARTIAL))
OP = {"column": "op", "upsert": ["I", "U"], "delete": ["D"]}


def reader(shape: TableSpec = SHAPE, place: dict[str, Any] | None = None, **options: Any) -> FileReading:
    take = Json(Feed("json", "/landing", options)).reader(shape)
    return FileReading(take, ReaderPosition(FilePosition(TOPIC, 0, **(place or {})), shape))


def record(value: Any, offset: int = 0, **more: Any) -> dict[str, Any]:
    return {"topic": TOPIC, "partition": 0, "offset": offset, "timestamp": 5, "key": None, "value": value, **more}


def row(**changes: Any) -> dict[str, Any]:
    return {"id": 1, "text": "a", "seq": 7, **changes}


def feed(into: FileReading, *lines: Any) -> list[str]:
    """Takes lines; answers what became of each: the name of the count that rose, or the reason of the refusal."""
    became = []
    names = ("changes", "tombstones", "repeated", "resent", "unproved", "ignored")
    for line in lines:
        before = [getattr(into.account, name) for name in names]
        try:
            into.take(line if isinstance(line, bytes) else json.dumps(line).encode())
        except RefusedRecordError as refused:
            into.at.refuse(refused.reason)
            became.append(refused.reason)
            continue
        became += [n for n, was in zip(names, before, strict=True) if getattr(into.account, n) != was]
    return became


def changes(into: FileReading, shape: TableSpec = SHAPE) -> list[dict[str, Any]]:
    builder = TableBuilder(shape, 0)
    builder.add(into.at.drain_batch())
    table = builder.to_table()
    return table.to_pylist() if table else []


def test_a_value_is_a_row() -> None:
    into = reader()
    assert feed(into, record(row()), record(row(id=2, text=None), 4)) == ["changes", "changes"]
    one, two = changes(into)
    assert (one["_op"], one["id"], one["text"], one["_offset"], one["_ts"]) == (UPSERT, 1, "a", 0, 5000)
    assert (two["text"], two["_offset"], two["_absent"]) == (None, 4, None)
    assert (into.account.first, into.account.last, into.account.stream.max_order) == (0, 4, ())


def test_a_value_alone_is_placed_by_the_name_of_its_file_and_its_line() -> None:
    into = reader(place={"start": 100, "records": 3}, record="value")
    assert feed(into, row(), b"{broken", row(id=2)) == ["changes", "BROKEN_JSON", "changes"]
    assert [one["_offset"] for one in changes(into)] == [103, 105]


@pytest.mark.parametrize("key", [{"id": 3}, {"id": 3, "other": "x"}, 3])
def test_a_null_value_deletes_by_key(key: Any) -> None:
    into = reader()
    assert feed(into, record(None, key=key)) == ["changes"]
    [one] = changes(into)
    assert (one["_op"], one["id"], one["text"]) == (DELETE, 3, None)


def test_an_op_beside_the_columns() -> None:
    into = reader(op=OP)
    assert feed(into, record({**row(), "op": "I"}), record({"id": 1, "op": "D"}, 1)) == ["changes", "changes"]
    assert [(one["_op"], one["id"], one["text"]) for one in changes(into)] == [(UPSERT, 1, "a"), (DELETE, 1, None)]


def test_an_op_with_the_row_within() -> None:
    into = reader(op={**OP, "row": "row"})
    lines = [record({"op": "U", "row": row()}), record({"op": "D"}, 1, key={"id": 1})]
    assert feed(into, *lines) == ["changes", "changes"]
    assert [one["_op"] for one in changes(into)] == [UPSERT, DELETE]


def test_an_op_may_be_a_column_too() -> None:
    shape = replace(SHAPE, columns=(*COLUMNS_, Column("op", "string")))
    into = reader(shape, op=OP)
    assert feed(into, record({**row(), "op": "I"})) == ["changes"]
    assert changes(into, shape)[0]["op"] == "I"


def test_columns_order() -> None:
    into = reader(ORDERED, op=OP)
    assert feed(into, record({**row(seq=-9), "op": "I"}), record({"id": 1, "seq": 8, "op": "D"}, 1)) == ["changes"] * 2
    assert [one["_o0"] for one in changes(into, ORDERED)] == [-9, 8]


def test_absent_differs_from_null_in_partial_updates() -> None:
    into = reader(PARTIAL)
    assert feed(into, record({"id": 1, "text": None}), record(row(), 1)) == ["changes", "changes"]
    assert [(one["text"], one["_absent"]) for one in changes(into, PARTIAL)] == [(None, ["seq"]), ("a", None)]


def test_aggregates_are_fed_by_merges() -> None:
    shape = replace(SHAPE, merge=Merge(Engine.AGGREGATE))
    into = reader(shape)
    feed(into, record(row()), record(None, 1, key={"id": 1}))
    assert [one["_op"] for one in changes(into, shape)] == [MERGE, DELETE]


@pytest.mark.parametrize(
    ("merge", "became"),
    [
        (Merge(deletes=Deletes.IGNORE), "ignored"),
        (Merge(deletes=Deletes.QUARANTINE), "DELETE_REFUSED"),
        (Merge(Engine.APPEND), "KEYLESS_CHANGE"),
    ],
)
def test_logs_that_take_no_deletes(merge: Merge, became: str) -> None:
    shape = replace(SHAPE, merge=merge, key=() if merge.engine is Engine.APPEND else ("id",))
    assert feed(reader(shape), record(None, key={"id": 1})) == [became]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "BROKEN_JSON"),
        (b"[]", "NOT_A_RECORD"),
        ({"value": row()}, "NOT_A_RECORD"),
        (record(row(), -1), "NOT_A_RECORD"),
        (record(row(), topic="other"), "WRONG_PARTITION"),
        (record(row(), partition=1), "WRONG_PARTITION"),
        (record("text"), "NOT_A_RECORD"),
        (record([1]), "NOT_A_RECORD"),
        (record(row(id=None)), "KEY_NULL"),
        (record({"text": "a", "seq": 1}), "KEY_NULL"),
        (record({"id": 1, "text": "a"}), "MISSING_COLUMN"),
        (record(row(more=1)), "UNKNOWN_COLUMN"),
        (record(row(id="1")), "VALUE_INVALID"),
        (record(row(id=2**31)), "VALUE_INVALID"),
        (record(row(id=2**70)), "VALUE_INVALID"),
        (record(row(text=1)), "VALUE_INVALID"),
        (record(row(seq=1.5)), "VALUE_INVALID"),
        (record(None), "KEY_NULL"),
        (record(None, key={"other": 1}), "KEY_NULL"),
        (record(None, key="one"), "VALUE_INVALID"),
    ],
)
def test_what_is_refused(line: Any, reason: str) -> None:
    into = reader()
    assert feed(into, line, record(row(), 9)) == [reason, "changes"]
    assert len(changes(into)) == 1


def test_a_line_that_is_a_value_alone_names_the_setting() -> None:
    with pytest.raises(RefusedRecordError, match="set `record: value`"):
        head_of(b'{"id": 1, "text": "a"}')


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({**row(), "op": "X"}, "OP_UNKNOWN"),
        ({**row(), "op": "i"}, "OP_UNKNOWN"),
        ({**row(), "op": None}, "OP_UNKNOWN"),
        (row(), "OP_UNKNOWN"),
        ({"op": "I"}, "KEY_NULL"),
        ({"op": "D"}, "KEY_NULL"),
        ({**row(), "op": "I", "more": 1}, "UNKNOWN_COLUMN"),
    ],
)
def test_ops_that_are_refused(value: Any, reason: str) -> None:
    assert feed(reader(op=OP), record(value)) == [reason]


def test_order_columns_are_never_null() -> None:
    into = reader(ORDERED, op=OP)
    lines = [{**row(seq=None), "op": "I"}, {"id": 1, "op": "D"}]
    assert feed(into, *(record(value, i) for i, value in enumerate(lines))) == ["ORDER_MISSING"] * 2
    assert feed(into, record(None, 9, key={"id": 1})) == ["ORDER_MISSING"]


def test_offsets_are_taken_once_and_in_order() -> None:
    into = reader(place={"next_offset": 5, "taken": ((0, 5),)})
    lines = [record(row(), 3), record(row(), 3), record(row(), 6), record(row(), 5), record(row(), 7)]
    assert feed(into, *lines) == ["unproved", "repeated", "changes", "OFFSET_ORDER", "changes"]
    with pytest.raises(LateOffsetError):
        feed(reader(place={"next_offset": 5, "taken": ((2, 5),)}), record(row(), 1))
