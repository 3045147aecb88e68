"""What `tidefold init` gets to know from landed files."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.landing import record, text_of
from tidefold.errors import NotFoundError
from tidefold.sources.inference.propose import ProposedLog, propose

BANK = Path(__file__).parents[2] / "data" / "bank" / "landing"


def put(root: Path, topic: str, rows: list[dict[str, Any]], folder: str | None = None, **changes: Any) -> None:
    target = root / (topic if folder is None else folder) / f"{topic}+0+0000000000.jsonl.gz"
    target.parent.mkdir(parents=True, exist_ok=True)
    records = [record(i, after=row, topic=topic, connector="postgresql", **changes) for i, row in enumerate(rows)]
    target.write_bytes(gzip.compress(text_of(records)))


def test_the_bank_is_proposed_as_three_logs_and_one_to_decide_on() -> None:
    found = {p.id: p for p in propose(BANK / "phase2")}
    assert list(found) == ["pgbench_accounts", "pgbench_branches", "pgbench_history", "pgbench_tellers"]
    assert not found["pgbench_history"].usable
    assert "merge: append" in found["pgbench_history"].questions[0].text
    accounts = found["pgbench_accounts"]
    assert (accounts.key, accounts.path, accounts.connector, accounts.order, accounts.usable) == (
        ("aid",),
        "bank.public.pgbench_accounts",
        "postgresql",
        "postgresql",
        True,
    )
    assert {c.name: c.type for c in accounts.columns} == {
        "aid": "long",
        "bid": "long",
        "abalance": "long",
        "filler": "string",
    }
    assert "`int` would fit" in accounts.columns[0].note
    assert found["pgbench_tellers"].columns[3].note == "only nulls seen: check the type"


def one(root: Path, **rows: Any) -> ProposedLog:
    put(
        root,
        "a.b.t",
        [{"id": 1, **dict(zip(rows, values, strict=True))} for values in zip(*rows.values(), strict=True)],
    )
    [found] = propose(root)
    return found


def test_types_follow_from_all_values_and_what_fits_none_is_said(tmp_path: Path) -> None:
    found = one(tmp_path, f=[True], d=[1.5], t=[1_795_226_336_485_714], ms=[2**40], big=[2**45], deep=[{"x": 1}])
    assert {c.name: (c.type, c.note) for c in found.columns} == {
        "id": ("long", "1 to 1 seen: `int` would fit"),
        "f": ("boolean", ""),
        "d": ("double", ""),
        "t": ("long", "1795226336485714 to 1795226336485714 seen: microseconds since 1970? then `timestamp`"),
        "ms": (
            "long",
            f"{2**40} to {2**40} seen: milliseconds since 1970? then `{{type: timestamp, encoding: millis}}`",
        ),
        "big": ("long", f"{2**45} to {2**45} seen"),
        "deep": ("string", "values of several kinds, as JSON"),
    }
    assert found.usable


def test_whole_and_broken_numbers_make_a_double_and_other_mixtures_nothing(tmp_path: Path) -> None:
    found = one(tmp_path, n=[1, 2.5, None], m=[1, "x", None])
    assert [(c.type, c.encoding) for c in found.columns] == [("long", ""), ("double", ""), ("string", "json")]


def test_without_a_key_the_log_is_not_usable(tmp_path: Path) -> None:
    put(tmp_path, "a.b.t", [{"n": 1, "text": "a"}, {"n": 1, "text": "b"}], key=None)
    [found] = propose(tmp_path)
    assert (found.questions[0].about, found.questions[0].sure, found.usable) == ("key", False, False)


def test_a_key_that_the_inserted_rows_show_is_assumed(tmp_path: Path) -> None:
    put(tmp_path, "a.b.orders", [{"order_id": i, "text": "a"} for i in range(5)], key=None)
    [found] = propose(tmp_path)
    assert (found.key, found.questions[0].candidates, found.usable) == (("order_id",), ("order_id",), True)


def test_ids_are_made_of_table_names_and_stay_apart(tmp_path: Path) -> None:
    for topic in ("a.x.Order-Lines", "a.y.order_lines", "a.x.2024"):
        put(tmp_path, topic, [{"id": 1}])
    assert {p.topic: p.id for p in propose(tmp_path)} == {
        "a.x.2024": "log_2024",
        "a.x.Order-Lines": "order_lines",
        "a.y.order_lines": "y_order_lines",
    }


def test_topics_that_share_a_folder_are_named(tmp_path: Path) -> None:
    put(tmp_path, "a", [{"id": 1}], folder="all")
    put(tmp_path, "b", [{"id": 1}], folder="all")
    assert [(p.path, p.usable) for p in propose(tmp_path)] == [("all", False), ("all", False)]
    assert "folder" in propose(tmp_path)[0].notes[0]


def test_broken_files_give_what_they_have(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    data = text_of([record(i) for i in range(50)])
    (folder / "t+0+0000000000.jsonl").write_bytes(data[:-20] + b"\n[1]\nnonsense\n")
    (folder / "t+0+0000000050.jsonl.gz").write_bytes(gzip.compress(data)[:-10])
    (folder / "t+0+0000000100.jsonl").write_bytes(b"")
    [found] = propose(tmp_path)
    assert (found.usable, found.key, found.records > 49) == (True, ("id",), True)


def test_an_empty_file_gives_a_log_without_columns_and_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "t+0+0000000000.jsonl").write_bytes(b"")
    [found] = propose(tmp_path)
    assert (found.columns, found.usable) == ((), False)
    with pytest.raises(NotFoundError):
        propose(tmp_path / "missing")


def test_plain_json_is_proposed_with_the_key_of_its_records(tmp_path: Path) -> None:
    folder = tmp_path / "shop.items"
    folder.mkdir()
    rows = [{"id": 1, "text": "a"}, {"id": 2, "text": None}]
    place = {"topic": "shop.items", "partition": 0}
    lines = [{**place, "offset": i, "key": {"id": i}, "value": row} for i, row in enumerate(rows)]
    (folder / "shop.items+0+0000000000.jsonl").write_bytes(text_of(lines))
    (folder / "shop.items+0+0000000002.jsonl").write_bytes(text_of([{**lines[0], "offset": 2, "value": None}]))
    [found] = propose(tmp_path)
    assert (found.format, found.options, found.key, found.order, found.usable) == (
        "json",
        (),
        ("id",),
        "position",
        True,
    )
    assert {c.name: c.type for c in found.columns} == {"id": "long", "text": "string"}


@pytest.mark.parametrize("line", [{"id": 1, "value": 5}, {"id": 1, "op": "I"}])
def test_values_alone_have_no_key(line: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "items+0+0000000000.jsonl").write_bytes(text_of([line]))
    [found] = propose(tmp_path)
    assert [column.name for column in found.columns] == [name for name in line if name != "op"]
    assert (found.format, found.options[0], found.usable) == ("json", ("record", "value"), False)
    assert [question.about for question in found.questions if not question.sure] == ["key"]


def test_files_of_rows_are_proposed_by_their_schema(tmp_path: Path) -> None:
    """What orders rows and tells them apart is a person's to say."""
    for folder in ("a/items", "b/items"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "a/items/x.csv").write_text("id,text,at\n1,a,2026-01-01T00:00:00Z\n")
    columns = {"id": pa.array([1], pa.int16()), "price": pa.array([Decimal("1.50")]), "deep": pa.array([{"x": 1}])}
    pq.write_table(pa.table(columns), tmp_path / "b/items/part-0.parquet")
    (tmp_path / "b/items/part-1.parquet").write_bytes(b"")
    one, two = propose(tmp_path)
    assert (one.id, one.format, one.path, one.usable) == ("items", "csv", "a/items", False)
    assert {c.name: c.type for c in one.columns} == {"id": "long", "text": "string", "at": "timestamp"}
    assert (two.format, two.id != one.id) == ("parquet", True)
    assert {c.name: c.type for c in two.columns} == {"id": "int", "price": "decimal(3,2)"}
    assert two.ignored == ("deep",)


def test_where_a_schema_stands_beside_the_records_it_says_the_types(tmp_path: Path) -> None:
    """With the value alone on each line, as a sink may write it."""
    time, connect = "io.debezium.time", "org.apache.kafka.connect.data"
    decimal = {"type": "bytes", "name": f"{connect}.Decimal"}
    fields = [
        {"field": "id", "type": "int64"},
        {"field": "at", "type": "int64", "name": f"{time}.MicroTimestamp"},
        {"field": "day", "type": "int32", "name": f"{time}.Date"},
        {"field": "price", **decimal, "parameters": {"scale": "2", "connect.decimal.precision": "12"}},
        {"field": "tags", "type": "array", "items": {"type": "string"}},
        {"field": "shape", "type": "struct", "name": "io.debezium.data.geometry.Geometry"},
    ]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    row = {"id": 1, "at": 5, "day": 7, "price": "AQ==", "tags": [], "shape": {}}
    value = record(0, after=row, connector="postgresql")["value"]
    (tmp_path / "a.b.t").mkdir()
    line = json.dumps({"schema": schema, "payload": value})
    (tmp_path / "a.b.t" / "a.b.t+0+0000000000.json").write_text(line)
    [found] = propose(tmp_path)
    types = ["long", "timestamp", "date", "decimal(12,2)", "array<string>", "string"]
    assert [column.type for column in found.columns] == types
    assert not found.usable  # Its records have no key.


def test_records_without_a_schema_get_all_columns_and_are_read_with_them(tmp_path: Path) -> None:
    """Fault: one decimal with its own scale, one list or one object left the whole table out."""
    found = one(
        tmp_path,
        price=[{"scale": 2, "value": "AfQ="}, None],
        tags=[["a", None], []],
        at=[[1, 2], None],
        grid=[[[1], [2]], None],
        place=[{"wkb": "AQE=", "srid": None}, "__debezium_unavailable_value"],
    )
    assert {c.name: (c.type, c.encoding) for c in found.columns} == {
        "id": ("long", ""),
        "price": ("string", "decimal"),
        "tags": ("array<string>", ""),
        "at": ("array<long>", ""),
        "grid": ("string", "json"),
        "place": ("string", "json"),
    }
    assert found.usable
    assert found.warnings == ()  # The value that was not sent is looked up by ingest.


def test_a_sample_is_read_with_its_own_proposal(tmp_path: Path) -> None:
    put(tmp_path, "a.b.t", [{"id": 1, "text": "a"}, {"id": 1, "text": "b", "more": 1}])
    [found] = propose(tmp_path)
    assert "1 of 2 sampled records would be refused (1 MISSING_COLUMN)" in found.warnings[0]
    assert "default: null" in found.warnings[0]
