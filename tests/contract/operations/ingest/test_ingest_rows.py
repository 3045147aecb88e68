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
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from support.effort import choose
from support.landing import changes_of, quarantined, state_of, take
from support.landing_rows import land_parquet, land_text, make_rows_landing
from tidefold.changelog.schema import DELETE, UPSERT
from tidefold.operations.inspect.explain_key import explain_key
from tidefold.operations.quarantine.retry import retry
from tidefold.sources.landing import streams
from tidefold.sources.records import parse_file
from tidefold.sources.records.change_batches import TableBuilder
from tidefold.wiring import Pipeline

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
    assert rows == [(1, UPSERT, 1, "a", 1), (2, UPSERT, 1, None, 1), (3, UPSERT, 2, "", 1), (4, DELETE, 1, None, 1)]
    assert [(p.partition, p.next_offset, p.stream.max_order) for p in state_of(pipeline).positions] == [(0, 0, ())]


_ROWS = st.lists(st.tuples(st.integers(0, 3), st.text('ab,"\n é', max_size=3), st.integers(0, 5)), max_size=8)


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


@given(rows=_ROWS, data=st.data())
@settings(max_examples=choose(5, 12), deadline=None)
def test_each_row_of_each_part_of_a_file_has_its_place(
    rows: list[tuple[int, str, int]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """I25: the number of the part that was taken, then the row in the file; whatever grows, and when it is taken."""
    assume(rows)
    root = tmp_path_factory.mktemp("rows")
    pipeline = make_rows_landing(root)
    lines = [f"{i},{quoted(text)},{seq}" for i, text, seq in rows]
    expected, number, ends = list[Any](), 0, dict[str, int]()
    waiting, held = dict[str, list[Any]](), dict[str, list[Any]]()
    for line, row in zip(lines, rows, strict=True):
        name = data.draw(st.sampled_from(["a.csv", "b/c.csv", "z.csv.gz"]))
        path = root / "landing/items" / name
        before = path.read_bytes() if path.exists() else b""
        text = (b"" if before else b"id,text,seq\n") + line.encode() + b"\n"
        land_text(root, name, before + (gzip.compress(text) if name.endswith(".gz") else text))
        ends[name] = ends.get(name, 0) + 1
        waiting.setdefault(name, []).append((ends[name], row))
        if data.draw(st.booleans()) or line is lines[-1]:
            take(pipeline)
            copies = _find_copies(pipeline)
            for name in sorted(waiting):
                number += 1
                mine = [*held.pop(name, []), *waiting.pop(name)]
                if number in copies:  # It is taken when it grows.
                    held[name] = mine
                else:
                    expected += [(number, *one) for one in mine]
    found = [(r["_partition"], r["_offset"], (r["id"], r["text"] or "", r["seq"])) for r in changes_of(pipeline)]
    assert sorted(found) == sorted(expected)


def _find_copies(pipeline: Pipeline) -> set[int]:
    """The numbers of files whose bytes another file had."""
    return {entry.number for entry in state_of(pipeline).landed if entry.repeated}


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


# (type, text, value): a text that is exactly one value.
VALUES = [
    ("boolean", "true", True),
    ("int", "-7", -7),
    ("int", "0", 0),
    ("int", "-0", 0),
    ("long", "9223372036854775807", 2**63 - 1),
    ("double", "1.5e3", 1500.0),
    ("float", "-0.0e5", 0.0),
    ("float", "1e-45", 1.401298464324817e-45),
    ("double", "-Infinity", float("-inf")),
    ("decimal(5,2)", "-1.5", Decimal("-1.50")),
    ("date", "2024-02-29", date(2024, 2, 29)),
    ("timestamp", "2024-01-01T02:00:00.123456+02:00", datetime(2024, 1, 1, 0, 0, 0, 123456, UTC)),
    ("string", " a ", " a "),
]
# Texts that are no value of the type.
NO_VALUES = {
    "boolean": ("1", "T", "yes"),
    "int": ("1.0", "0x1F", " 1", "+1", "2147483648", "1e3", "NULL", "00", "-07", "07-"),
    "long": ("9223372036854775808", "", "01067"),
    "double": ("1e999", "1e-999", "nan", "1,5", "0x1p3", "."),
    "float": ("1e39", "1e-46", "-0.00000000000000000000000000000000000000000000007"),
    "decimal(5,2)": ("1.234", "1234.5", "1e2"),
    "date": ("2023-02-29", "0000-01-01", "2024-1-1", "01.02.2024", "20000"),
    "timestamp": ("2024-01-01T25:00:00", "2024-02-30", "2024-01-01T00:00:00.1234567Z", "5"),
}


def test_text_becomes_a_value_of_exactly_its_type_or_is_refused_and_never_null(tmp_path: Path) -> None:
    """I5: one file with a row for each text. What is no value is in the quarantine as it was; no value becomes null."""
    types = list(dict.fromkeys([*(type_ for type_, *_ in VALUES), *NO_VALUES]))
    columns = ", ".join(f"v{number}: '{type_}'" for number, type_ in enumerate(types))
    cases = [(type_, text) for type_, text, _ in VALUES]
    cases += [(type_, text) for type_, texts in NO_VALUES.items() for text in texts]
    pipeline = make_rows_landing(tmp_path, columns=f"{{id: int, seq: long, {columns}}}")
    lines = [",".join(["id,seq", *(f"v{number}" for number in range(len(types)))]), "99,99" + "," * len(types)]
    for number, (type_, text) in enumerate(cases):
        lines.append(",".join([f"{number},1", *(quoted(text) if one == type_ else "" for one in types)]))
    land_text(tmp_path, "a.csv", "\n".join([*lines, ""]))
    take(pipeline)
    taken = {}
    for row in changes_of(pipeline):
        taken[row["id"]] = {t: row[f"v{n}"] for n, t in enumerate(types) if row[f"v{n}"] is not None}
    assert taken == {number: {type_: value} for number, (type_, _, value) in enumerate(VALUES)} | {99: {}}
    found = []
    for entry in quarantined(pipeline):
        row = json.loads(entry["record"])
        [(type_, text)] = [(t, row[f"v{n}"]) for n, t in enumerate(types) if row[f"v{n}"] is not None]
        found.append((entry["line"] - 2, entry["reason"], type_, text))
    assert found == [(number, "VALUE_INVALID", *case) for number, case in enumerate(cases)][len(VALUES) :]


def test_a_number_keeps_its_leading_zeros_or_is_refused_where_its_text_may_count(tmp_path: Path) -> None:
    """A postcode would become another one. What orders rows, and the name of a folder, is a number."""
    pipeline = make_rows_landing(
        tmp_path, "csv, folder_columns: [month]", "{id: int, plz: long, n: 'decimal(19,0)', seq: long, month: int}"
    )
    land_text(tmp_path, "month=07/a.csv", "id,plz,n,seq\n1,80331,007,007\n2,01067,1,8\n")
    take(pipeline)
    assert [(row["id"], row["n"], row["seq"], row["month"]) for row in changes_of(pipeline)] == [(1, 7, 7, 7)]
    assert [entry["detail"] for entry in quarantined(pipeline)] == [
        "`plz` is '01067'. A long has no leading zeros: make the column a `string`, or a `decimal(19,0)` to drop them."
    ]


def test_rows_that_are_refused(tmp_path: Path) -> None:
    rows = {
        b"I,1,,a": "KEY_NULL",
        b"I,,1,a": "ORDER_MISSING",
        b"X,1,1,a": "OP_UNKNOWN",
        b",1,1,a": "OP_UNKNOWN",
        b"I,1,1": "FIELD_COUNT",
        b"I,1,1,a,b": "FIELD_COUNT",
        b"I,1,1,\xff": "VALUE_INVALID",
    }
    pipeline = make_rows_landing(tmp_path, f"csv, {OP}")
    land_text(tmp_path, "a.csv", b"\n".join([b"op,seq,id,text", *rows, b"I,9,9,z", b""]))
    take(pipeline)
    found = {list(rows)[entry["line"] - 1]: entry["reason"] for entry in quarantined(pipeline)}
    assert (found, [r["id"] for r in changes_of(pipeline)]) == (rows, [9])


ZIPPED = gzip.compress(b"id,text,seq\n1,a,1\n", mtime=0)


def test_csv_files_that_are_not_taken(tmp_path: Path) -> None:
    """Bad input: another schema, content that is not what the name says, damage. The other files are taken."""
    files = {
        "less.csv": (b"id,text\n1,a\n", "LANDED_SCHEMA"),
        "more.csv": (b"id,text,seq,more\n1,a,1,x\n", "LANDED_SCHEMA"),
        "twice.csv": (b"id,text,seq,id\n1,a,1,2\n", "LANDED_SCHEMA"),
        "parquet.csv": (b"PAR1 and more\n", "LANDED_FORMAT"),
        "zipped.csv": (ZIPPED, "LANDED_FORMAT"),
        "plain.csv.gz": (b"id,text,seq\n1,a,1\n", "LANDED_FORMAT"),
        "damaged.csv.gz": (ZIPPED[:-4] + b"\0\0\0\0", "LANDED_DAMAGED"),
        "a.txt": (b"id,text,seq\n1,a,1\n", "FOREIGN_FILE"),
    }
    pipeline = make_rows_landing(tmp_path)
    for name, (content, _) in files.items():
        land_text(tmp_path, name, content)
    land_text(tmp_path, "z.csv", "id,text,seq\n9,z,9\n")
    found = {problem["file"]: problem["code"] for problem in take(pipeline).facts["problems"]}
    assert found == {name: code for name, (_, code) in files.items()}
    assert [r["id"] for r in changes_of(pipeline)] == [9]


def test_files_without_an_end_are_still_being_written(tmp_path: Path) -> None:
    """Bad input: zero bytes, a header without its end, a zipped file that is cut off."""
    files = {"a.csv": b"", "b.csv": b"id,text", "c.csv": b"id,text,seq", "d.csv.gz": ZIPPED[:-9]}
    pipeline = make_rows_landing(tmp_path)
    for name, content in files.items():
        land_text(tmp_path, name, content)
    assert take(pipeline).facts["still_writing"] == list(files)
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


# (type of the column, values of the file, whether they fit)
COLUMN_TYPES = [
    ("long", pa.array([5, None], pa.int32()), True),
    ("int", pa.array([5, None], pa.int64()), False),
    ("int", pa.array(["5", None]), False),
    ("double", pa.array([5.5, None], pa.float32()), True),
    ("string", pa.array([5, None]), False),
    ("string", pa.array(["a", None]).dictionary_encode(), True),
    # pyarrow writes views since 21.
    *[("string", pa.array(["a", None], pa.string_view()), True)] * (int(pa.__version__.partition(".")[0]) >= 21),
    ("date", pa.array([date(2024, 1, 1), None]), True),
    ("date", pa.array([datetime(2024, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")), False),
    ("timestamp", pa.array([datetime(2024, 1, 1, tzinfo=UTC), None], pa.timestamp("ms", "Europe/Paris")), True),
    ("decimal(10,2)", pa.array([Decimal("1.5"), None], pa.decimal128(5, 1)), True),
    ("decimal(10,2)", pa.array([Decimal("1.5"), None], pa.decimal128(10, 3)), False),
    ("array<long>", pa.array([[1, None], None], pa.list_(pa.int32())), True),
    ("binary", pa.array([b"\xff", None], pa.large_binary()), True),
    # As pandas writes an instant: without a zone, it is UTC.
    ("timestamp", pa.array([datetime(2024, 1, 1), None], pa.timestamp("ns")), True),
]


def test_the_line_for_a_new_column_has_the_type_of_the_file(tmp_path: Path) -> None:
    """Fault: it proposed `string` for a float. That line fixed the schema, and the column could not become right."""
    pipeline = make_rows_landing(tmp_path, "parquet", "{id: int, seq: long}", "order: [seq]")
    rows = {"id": pa.array([1], pa.int32()), "seq": pa.array([1]), "battery": pa.array([0.5], pa.float32())}
    land_parquet(tmp_path, "a.parquet", pa.table(rows))
    [problem] = take(pipeline).facts["problems"]
    assert "add `battery: {type: 'float', default: null}` to `columns`" in problem["hint"]


def test_types_of_parquet_columns(tmp_path: Path) -> None:
    """I28: a narrower type is taken, another one refuses the file. One file for each case, with its column alone."""
    columns = ", ".join(f"v{number}: '{type_}'" for number, (type_, *_) in enumerate(COLUMN_TYPES))
    pipeline = make_rows_landing(
        tmp_path, "parquet", f"{{id: int, seq: long, {columns}}}", "order: [seq]\n    merge: partial"
    )
    for n, (_, values, _) in enumerate(COLUMN_TYPES):
        ids = pa.array([2 * n, 2 * n + 1], pa.int32())
        land_parquet(tmp_path, f"{n}.parquet", pa.table({"id": ids, "seq": pa.array([1, 2]), f"v{n}": values}))
    refused = {(problem["file"], problem["code"]) for problem in take(pipeline).facts["problems"]}
    assert refused == {(f"{n}.parquet", "LANDED_SCHEMA") for n, (*_, fits) in enumerate(COLUMN_TYPES) if not fits}
    found = {row["id"]: row[f"v{row['id'] // 2}"] for row in changes_of(pipeline)}
    expected = {}
    for n, (_, values, fits) in enumerate(COLUMN_TYPES):
        if fits:
            value = values[0].as_py()
            is_naive = values.type == pa.timestamp("ns")
            expected |= {2 * n: value.replace(tzinfo=UTC) if is_naive else value, 2 * n + 1: None}
    assert found == expected


def test_long_lines_fill_no_more_memory_than_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse_file, "BATCH_BYTES", 4_000)
    batches: list[int] = []
    add = TableBuilder.add
    monkeypatch.setattr(TableBuilder, "add", lambda self, batch: (batches.append(len(batch.ops)), add(self, batch))[1])
    pipeline = make_rows_landing(tmp_path, "json, record: value, names: any")
    monkeypatch.setattr(streams, "BLOCK", 1_500)
    lines = "".join(json.dumps({"id": i, "text": "x" * 1_000, "seq": i}) + "\n" for i in range(20))
    land_text(tmp_path, "a.json", lines)
    assert take(pipeline).facts["changes"] == 20
    assert sum(batches) == 20
    assert max(batches) <= 5


def test_an_instant_of_less_than_a_microsecond_is_refused(tmp_path: Path) -> None:
    pipeline = make_rows_landing(tmp_path, "parquet", columns="{id: int, seq: long, v: timestamp}")
    values = pa.array([1_000_000_001, 1_000_000_000], pa.int64()).cast(pa.timestamp("ns", "UTC"))
    table = pa.table({"id": pa.array([1, 2], pa.int32()), "seq": pa.array([1, 2]), "v": values})
    land_parquet(tmp_path, "a.parquet", table)
    assert take(pipeline).facts["refused"] == {"VALUE_INVALID": 1}
    assert [r["id"] for r in changes_of(pipeline)] == [2]


def test_parquet_files_that_are_not_whole(tmp_path: Path) -> None:
    unfinished = {"a.parquet": b"", "b.parquet": b"PA", "c.parquet": b"PAR1 cut off in the middle"}
    bad = {
        "d.parquet": (b"id,text,seq\n", "LANDED_FORMAT"),
        "e.parquet": (b"PAR1 garbage in between \xff\xff\xff\x00PAR1", "LANDED_DAMAGED"),
    }
    pipeline = make_rows_landing(tmp_path, "parquet")
    for name, content in unfinished.items():
        land_text(tmp_path, name, content)
    assert take(pipeline).facts["still_writing"] == list(unfinished)
    for name, (content, _) in bad.items():
        land_text(tmp_path, name, content)
    land_parquet(tmp_path, "f.parquet", [{"id": 1, "text": "x" * (65 << 20), "seq": 1}], pa.schema(list(SCHEMA)[:3]))
    found = {problem["file"]: problem["code"] for problem in take(pipeline).facts["problems"]}
    assert found == {"f.parquet": "LANDED_TOO_LARGE"} | {name: code for name, (_, code) in bad.items()}
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


@pytest.mark.parametrize(
    ("source", "text"), [("csv", "id,seq\n1,1\n"), ("json, record: value, names: any", '{"id": 1, "seq": 1}\n')]
)
def test_the_same_bytes_in_another_folder_are_other_rows(tmp_path: Path, source: str, text: str) -> None:
    """Fault: the second shop's file brought nothing, because another file had its bytes."""
    columns, key = "{shop: string, id: int, seq: long}", "[shop, id]"
    pipeline = make_rows_landing(tmp_path, f"{source}, folder_columns: [shop]", columns=columns, key=key)
    for folder in ("shop=berlin", "shop=paris", "day=1/shop=paris"):
        land_text(tmp_path, f"{folder}/a.{'csv' if source == 'csv' else 'jsonl'}", text)
    assert take(pipeline).facts["repeated"] == 1
    assert [row["shop"] for row in changes_of(pipeline)] == ["paris", "berlin"]


@pytest.mark.parametrize("text", ["string", "{type: string, default: null}"])
def test_partial_updates_from_files_with_fewer_columns(tmp_path: Path, text: str) -> None:
    columns = f"{{id: int, seq: long, text: {text}}}"
    pipeline = make_rows_landing(tmp_path, columns=columns, more="order: [seq]\n    merge: partial")
    land_text(tmp_path, "a.csv", "id,seq\n1,1\n")
    land_text(tmp_path, "b.csv", "id,seq,text\n1,1,\n")
    take(pipeline)
    rows = sorted(((r["_absent"], r["text"]) for r in changes_of(pipeline)), key=str)
    assert rows == [(None, None), (["text"], None)]


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
