"""CSV and Parquet files of changes through a whole ingest: what counts, what is refused, files that are not whole."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import choose
from support.landing import changes_of, quarantined, state_of, take
from support.landing_rows import land_parquet, land_text, make_rows_landing
from tidefold.changelog.schema import DELETE, MERGE, UPSERT
from tidefold.operations.inspect.explain_key import explain_key
from tidefold.operations.quarantine.retry import retry
from tidefold.wiring import Pipeline

pytestmark = pytest.mark.usefixtures("place")

OP = "op: {column: op, upsert: [I, U], delete: [D]}"
SCHEMA = pa.schema([("id", pa.int32()), ("text", pa.string()), ("seq", pa.int64()), ("op", pa.string())])


def counted(pipeline: Pipeline) -> set[tuple[Any, ...]]:
    """The set of changes that the log has, by their place: what the fold sees."""
    names = ("_op", "_kg", "_o0", "_partition", "_offset", "id", "text", "seq")
    return {tuple(row[name] for name in names) for row in changes_of(pipeline)}


def problems(pipeline: Pipeline) -> list[str]:
    return [p["code"] for p in take(pipeline).facts["problems"]]


def test_rows_with_ops(tmp_path: Path) -> None:
    pipeline = make_rows_landing(tmp_path, f"csv, {OP}")
    land_text(tmp_path, "any name.csv", 'op,seq,id,text\nI,1,1,a\nU,2,1,\nI,3,2,""\nD,4,1,whatever\n')
    assert take(pipeline).facts["changes"] == 4
    rows = sorted((r["_o0"], r["_op"], r["id"], r["text"], r["_partition"]) for r in changes_of(pipeline))
    assert rows == [(1, UPSERT, 1, "a", 0), (2, UPSERT, 1, None, 0), (3, UPSERT, 2, "", 0), (4, DELETE, 1, None, 0)]
    assert [(p.partition, p.next_offset, p.high) for p in state_of(pipeline).positions] == [(0, 0, ())]


_ROWS = st.lists(st.tuples(st.integers(0, 3), st.text('ab,"\n é', max_size=3), st.integers(0, 5)), max_size=8)


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


@given(rows=_ROWS, data=st.data())
@settings(max_examples=choose(5, 12), deadline=None)
def test_the_changes_do_not_depend_on_files_names_order_growth_or_repetition(
    rows: list[tuple[int, str, int]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """I25: the place of a row is made of its content alone."""
    root = tmp_path_factory.mktemp("rows")
    lines = [f"{i},{quoted(text)},{seq}" for i, text, seq in rows]
    once = make_rows_landing(root / "once")
    land_text(root / "once", "all.csv", "\n".join(["id,text,seq", *lines, ""]))
    if rows:
        take(once)
    other = make_rows_landing(root / "other")
    again = data.draw(st.permutations([*lines, *data.draw(st.lists(st.sampled_from(lines)) if lines else st.just([]))]))
    for number, line in enumerate(again):
        name = data.draw(st.sampled_from(["a.csv", "b/c.csv", "z.csv.gz"]))
        path = root / "other/landing/items" / name
        before = path.read_bytes() if path.exists() else b""
        text = (b"" if before else b"id,text,seq\n") + line.encode() + b"\n"
        land_text(root / "other", name, before + (gzip.compress(text) if name.endswith(".gz") else text))
        if number % 3 == 0:
            take(other)
    if again:
        take(other)
        assert counted(other) == counted(once)


def test_a_csv_file_that_grows(tmp_path: Path) -> None:
    pipeline = make_rows_landing(tmp_path)
    path = land_text(tmp_path, "a.csv", 'id,text,seq\n1,a,1\n2,"torn\n')
    outcome = take(pipeline)
    assert (outcome.facts["changes"], outcome.facts["still_writing"]) == (1, ["a.csv"])
    with path.open("a") as end:
        end.write('here",2\n3,c\n4,d,4\n5,e')
    outcome = take(pipeline)
    assert (outcome.facts["changes"], outcome.facts["refused"], outcome.facts["records"]) == (2, {"FIELD_COUNT": 1}, 3)
    with path.open("a") as end:
        end.write(",5\n")
    assert take(pipeline).facts["changes"] == 1
    assert sorted(r["text"] for r in changes_of(pipeline)) == ["a", "d", "e", "torn\nhere"]
    assert [(e["line"], e["record"]) for e in quarantined(pipeline)] == [(3, "3,c")]


def test_marks_line_ends_and_other_delimiters(tmp_path: Path) -> None:
    """Bad input: a byte order mark, CRLF, empty lines."""
    pipeline = make_rows_landing(tmp_path, 'csv, delimiter: ";", null: ["", "NULL"]')
    land_text(tmp_path, "a.csv", b'\xef\xbb\xbfid;text;seq\r\n1;NULL;1\r\n\r\n2;"NULL";2\r\n3;a,b;3\r\n')
    take(pipeline)
    assert sorted((r["id"], r["text"]) for r in changes_of(pipeline)) == [(1, None), (2, "NULL"), (3, "a,b")]


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ("boolean", "true", True),
        ("int", "-7", -7),
        ("long", "9223372036854775807", 2**63 - 1),
        ("double", "1.5e3", 1500.0),
        ("double", "-Infinity", float("-inf")),
        ("decimal(5,2)", "-1.5", Decimal("-1.50")),
        ("date", "2024-02-29", date(2024, 2, 29)),
        ("timestamp", "2024-01-01T02:00:00.123456+02:00", datetime(2024, 1, 1, 0, 0, 0, 123456, UTC)),
        ("string", " a ", " a "),
    ],
)
def test_text_becomes_a_value_of_exactly_its_type(type_: str, text: str, value: Any, tmp_path: Path) -> None:
    pipeline = make_rows_landing(tmp_path, columns=f'{{id: int, seq: long, v: "{type_}"}}')
    land_text(tmp_path, "a.csv", f"id,seq,v\n1,1,{text}\n2,2,\n")
    take(pipeline)
    assert {r["id"]: r["v"] for r in changes_of(pipeline)} == {1: value, 2: None}


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        *(("boolean", text) for text in ("1", "T", "yes")),
        *(("int", text) for text in ("1.0", "0x1F", " 1", "+1", "2147483648", "1e3", "NULL")),
        *(("long", text) for text in ("9223372036854775808", "")),
        *(("double", text) for text in ("1e999", "nan", "1,5", "0x1p3", ".")),
        ("float", "1e39"),
        *(("decimal(5,2)", text) for text in ("1.234", "1234.5", "1e2")),
        *(("date", text) for text in ("2023-02-29", "0000-01-01", "2024-1-1", "01.02.2024", "20000")),
        *(("timestamp", text) for text in ("2024-01-01T25:00:00", "2024-02-30", "2024-01-01T00:00:00.1234567Z", "5")),
    ],
)
def test_text_that_is_no_value_is_refused_and_never_null(type_: str, text: str, tmp_path: Path) -> None:
    """I5: no value becomes null; each such row is in the quarantine, the others are taken."""
    pipeline = make_rows_landing(tmp_path, columns=f'{{id: int, seq: long, v: "{type_}"}}')
    land_text(tmp_path, "a.csv", f'id,seq,v\n1,1,"{text}"\n2,2,\n')
    take(pipeline)
    assert [(r["id"], r["v"]) for r in changes_of(pipeline)] == [(2, None)]
    [entry] = quarantined(pipeline)
    assert (entry["reason"], entry["line"]) == ("VALUE_INVALID", 1)
    assert json.loads(entry["record"])["v"] == text


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("I,1,,a", "KEY_NULL"),
        ("I,,1,a", "ORDER_MISSING"),
        ("X,1,1,a", "OP_UNKNOWN"),
        (",1,1,a", "OP_UNKNOWN"),
        ("I,1,1", "FIELD_COUNT"),
        ("I,1,1,a,b", "FIELD_COUNT"),
        (b"I,1,1,\xff", "VALUE_INVALID"),
    ],
)
def test_rows_that_are_refused(line: str | bytes, reason: str, tmp_path: Path) -> None:
    pipeline = make_rows_landing(tmp_path, f"csv, {OP}")
    text = line.encode() if isinstance(line, str) else line
    land_text(tmp_path, "a.csv", b"op,seq,id,text\n" + text + b"\nI,9,9,z\n")
    assert (take(pipeline).facts["refused"], len(changes_of(pipeline))) == ({reason: 1}, 1)


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("a.csv", b"id,text\n1,a\n", "LANDED_SCHEMA"),
        ("a.csv", b"id,text,seq,more\n1,a,1,x\n", "LANDED_SCHEMA"),
        ("a.csv", b"id,text,seq,id\n1,a,1,2\n", "LANDED_SCHEMA"),
        ("a.csv", b"PAR1 and more\n", "LANDED_FORMAT"),
        ("a.csv", gzip.compress(b"id,text,seq\n1,a,1\n", mtime=0), "LANDED_FORMAT"),
        ("a.csv.gz", b"id,text,seq\n1,a,1\n", "LANDED_FORMAT"),
        ("a.csv.gz", gzip.compress(b"id,text,seq\n1,a,1\n", mtime=0)[:-4] + b"\0\0\0\0", "LANDED_DAMAGED"),
        ("a.txt", b"id,text,seq\n1,a,1\n", "FOREIGN_FILE"),
    ],
)
def test_csv_files_that_are_not_taken(name: str, content: bytes, code: str, tmp_path: Path) -> None:
    """Bad input: another schema, content that is not what the name says, damage. The other files are taken."""
    pipeline = make_rows_landing(tmp_path)
    land_text(tmp_path, name, content)
    land_text(tmp_path, "z.csv", "id,text,seq\n9,z,9\n")
    assert problems(pipeline) == [code]
    assert [r["id"] for r in changes_of(pipeline)] == [9]


@pytest.mark.parametrize(
    "content", [b"", b"id,text", b"id,text,seq", gzip.compress(b"id,text,seq\n1,a,1\n", mtime=0)[:-9]]
)
def test_files_without_an_end_are_still_being_written(content: bytes, tmp_path: Path) -> None:
    """Bad input: zero bytes, a header without its end, a zipped file that is cut off."""
    pipeline = make_rows_landing(tmp_path)
    name = "a.csv.gz" if content.startswith(b"\x1f") else "a.csv"
    land_text(tmp_path, name, content)
    assert take(pipeline).facts["still_writing"] == [name]
    assert not list((tmp_path / "store").rglob("*.seg"))


def test_files_that_were_replaced_or_cut(tmp_path: Path) -> None:
    pipeline = make_rows_landing(tmp_path)
    land_text(tmp_path, "a.csv", "id,text,seq\n1,a,1\n")
    land_text(tmp_path, "b.csv", "id,text,seq\n2,b,2\n")
    land_text(tmp_path, "c.csv", "id,text,seq\n3,c,3\n")
    take(pipeline)
    before = counted(pipeline)
    land_text(tmp_path, "a.csv", "id,text,seq\n1,b,1\n")
    land_text(tmp_path, "b.csv", "id,text,seq\n9,b,2\n4,d,4\n")
    land_text(tmp_path, "c.csv", "id,text,seq\n")
    assert problems(pipeline) == ["LANDED_CHANGED"] * 3
    assert counted(pipeline) == before


def test_parquet_rows(tmp_path: Path) -> None:
    pipeline = make_rows_landing(tmp_path, f"parquet, {OP}")
    rows = [
        {"id": 1, "text": "a", "seq": 1, "op": "I"},
        {"id": None, "text": "b", "seq": 2, "op": "I"},
        {"id": 1, "text": None, "seq": 3, "op": "D"},
    ]
    land_parquet(tmp_path, "part-0.snappy.parquet", rows, SCHEMA)
    assert take(pipeline).facts["refused"] == {"KEY_NULL": 1}
    assert sorted((r["_o0"], r["_op"], r["text"]) for r in changes_of(pipeline)) == [
        (1, UPSERT, "a"),
        (3, DELETE, None),
    ]
    assert take(pipeline).status == "nothing"


def test_a_row_is_the_same_whichever_format_brings_it(tmp_path: Path) -> None:
    as_csv, as_parquet = make_rows_landing(tmp_path / "c"), make_rows_landing(tmp_path / "p", "parquet")
    land_text(tmp_path / "c", "a.csv", "id,text,seq\n1,a,7\n2,,8\n")
    rows = [{"id": 1, "text": "a", "seq": 7}, {"id": 2, "text": None, "seq": 8}]
    land_parquet(
        tmp_path / "p", "a.parquet", rows, pa.schema([("seq", pa.int32()), ("id", pa.int16()), ("text", pa.string())])
    )
    take(as_csv)
    take(as_parquet)
    assert counted(as_csv) == counted(as_parquet)


@pytest.mark.parametrize(
    ("type_", "given", "fits"),
    [
        ("long", pa.array([5, None], pa.int32()), True),
        ("int", pa.array([5, None], pa.int64()), False),
        ("int", pa.array(["5", None]), False),
        ("double", pa.array([5.5, None], pa.float32()), True),
        ("string", pa.array([5, None]), False),
        ("string", pa.array(["a", None]).dictionary_encode(), True),
        ("string", pa.array(["a", None], pa.string_view()), True),
        ("date", pa.array([date(2024, 1, 1), None]), True),
        ("date", pa.array([datetime(2024, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")), False),
        ("timestamp", pa.array([datetime(2024, 1, 1, tzinfo=UTC), None], pa.timestamp("ms", "Europe/Paris")), True),
        ("decimal(10,2)", pa.array([Decimal("1.5"), None], pa.decimal128(5, 1)), True),
        ("decimal(10,2)", pa.array([Decimal("1.5"), None], pa.decimal128(10, 3)), False),
        ("array<long>", pa.array([[1, None], None], pa.list_(pa.int32())), True),
        ("binary", pa.array([b"\xff", None], pa.large_binary()), True),
    ],
)
def test_types_of_parquet_columns(type_: str, given: pa.Array, fits: bool, tmp_path: Path) -> None:
    """I28: a narrower type is taken, another one refuses the file."""
    pipeline = make_rows_landing(tmp_path, "parquet", columns=f'{{id: int, seq: long, v: "{type_}"}}')
    table = pa.table({"id": pa.array([1, 2], pa.int32()), "seq": pa.array([1, 2]), "v": given})
    land_parquet(tmp_path, "a.parquet", table)
    assert problems(pipeline) == ([] if fits else ["LANDED_SCHEMA"])
    if fits:
        found = {r["id"]: r["v"] for r in changes_of(pipeline)}
        assert (found[1], found[2]) == (given.cast(given.type)[0].as_py(), None)


def test_an_instant_of_parquet_without_a_zone_is_utc(tmp_path: Path) -> None:
    """As pandas writes it."""
    pipeline = make_rows_landing(tmp_path, "parquet", columns="{id: int, seq: long, v: timestamp}")
    at = pa.array([datetime(2024, 1, 1)], pa.timestamp("ns"))
    land_parquet(tmp_path, "a.parquet", pa.table({"id": pa.array([1], pa.int32()), "seq": pa.array([1]), "v": at}))
    take(pipeline)
    assert [row["v"] for row in changes_of(pipeline)] == [datetime(2024, 1, 1, tzinfo=UTC)]


def test_an_instant_of_less_than_a_microsecond_is_refused(tmp_path: Path) -> None:
    pipeline = make_rows_landing(tmp_path, "parquet", columns="{id: int, seq: long, v: timestamp}")
    values = pa.array([1_000_000_001, 1_000_000_000], pa.int64()).cast(pa.timestamp("ns", "UTC"))
    table = pa.table({"id": pa.array([1, 2], pa.int32()), "seq": pa.array([1, 2]), "v": values})
    land_parquet(tmp_path, "a.parquet", table)
    assert take(pipeline).facts["refused"] == {"VALUE_INVALID": 1}
    assert [r["id"] for r in changes_of(pipeline)] == [2]


@pytest.mark.parametrize(
    ("content", "codes", "left"),
    [
        (b"", [], ["a.parquet"]),
        (b"PA", [], ["a.parquet"]),
        (b"PAR1 cut off in the middle", [], ["a.parquet"]),
        (b"id,text,seq\n", ["LANDED_FORMAT"], []),
        (b"PAR1 garbage in between \xff\xff\xff\x00PAR1", ["LANDED_DAMAGED"], []),
    ],
)
def test_parquet_files_that_are_not_whole(content: bytes, codes: list[str], left: list[str], tmp_path: Path) -> None:
    pipeline = make_rows_landing(tmp_path, "parquet")
    land_text(tmp_path, "a.parquet", content)
    outcome = take(pipeline)
    assert [p["code"] for p in outcome.facts["problems"]] == codes
    assert outcome.facts.get("still_writing", []) == left
    assert not list((tmp_path / "store").rglob("*.seg"))


def test_a_parquet_file_with_bytes_lost_within_is_damaged(tmp_path: Path) -> None:
    pipeline = make_rows_landing(tmp_path, "parquet")
    rows = [{"id": i, "text": f"t{i}" * 9, "seq": i} for i in range(500)]
    path = land_parquet(tmp_path, "a.parquet", rows, pa.schema(list(SCHEMA)[:3]))
    data = bytearray(path.read_bytes())
    data[100:140] = bytes(40)
    path.write_bytes(data)
    assert problems(pipeline) == ["LANDED_DAMAGED"]
    assert not list((tmp_path / "store").rglob("*.seg"))


def test_partial_updates_from_files_with_fewer_columns(tmp_path: Path) -> None:
    pipeline = make_rows_landing(tmp_path, more="order: [seq]\n    merge: partial")
    land_text(tmp_path, "a.csv", "id,seq\n1,1\n")
    land_text(tmp_path, "b.csv", "id,seq,text\n1,1,\n")
    take(pipeline)
    rows = sorted(((r["_absent"], r["text"], r["_offset"]) for r in changes_of(pipeline)), key=str)
    assert [row[:2] for row in rows] == [(None, None), (["text"], None)]
    assert rows[0][2] != rows[1][2], "null and absent are different contents"


def test_an_offset_column_gives_rows_their_place(tmp_path: Path) -> None:
    pipeline = make_rows_landing(tmp_path, "csv, offset: seq", more="merge: aggregate")
    land_text(tmp_path, "a.csv", "id,text,seq\n1,a,7\n1,a,8\n1,a,\n1,a,-1\n")
    assert take(pipeline).facts["refused"] == {"OFFSET_MISSING": 2}
    assert [(r["_offset"], r["_op"]) for r in changes_of(pipeline)] == [(7, MERGE), (8, MERGE)]


@pytest.mark.parametrize(
    ("deletes", "facts"),
    [("ignore", {"ignored": 1, "quarantined": 0}), ("quarantine", {"ignored": 0, "quarantined": 1})],
)
def test_logs_that_take_no_deletes(deletes: str, facts: dict[str, int], tmp_path: Path) -> None:
    pipeline = make_rows_landing(tmp_path, f"csv, {OP}", more=f"order: [seq]\n    merge: {{deletes: {deletes}}}")
    land_text(tmp_path, "a.csv", "op,id,text,seq\nI,1,a,1\nD,1,,2\n")
    outcome = take(pipeline)
    assert ({name: outcome.facts[name] for name in facts}, outcome.facts["changes"]) == (facts, 1)


def test_a_refused_row_stays_refused_and_a_corrected_one_comes_in_a_file_of_its_own(tmp_path: Path) -> None:
    pipeline = make_rows_landing(tmp_path)
    land_text(tmp_path, "a.csv", "id,text,seq\n1,a,1\nx,b,2\n")
    take(pipeline)
    outcome = retry(pipeline, "items")
    assert (outcome.facts["staying"], outcome.facts["reasons"]) == (1, {"VALUE_INVALID": 1})
    land_text(tmp_path, "b.csv", "id,text,seq\n2,b,2\n")
    assert take(pipeline).facts["changes"] == 1
    assert sorted(r["id"] for r in changes_of(pipeline)) == [1, 2]


def test_explain_names_the_file_of_a_row(tmp_path: Path) -> None:
    pipeline = make_rows_landing(tmp_path)
    land_text(tmp_path, "a.csv", "id,text,seq\n1,old,1\n2,z,5\n")
    take(pipeline)
    land_text(tmp_path, "b.csv", "id,text,seq\n1,new,2\n")
    take(pipeline)
    found = explain_key(pipeline, "items", '{"id": 1}', live=True)
    assert [(one.landed, one.values["text"]) for one in found.changes] == [("a.csv", "old"), ("b.csv", "new")]
