"""CSV as other programs write it: delimiters, quotes, headers, encodings, nulls, times; what a wrong one says."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from support.landing import changes_of, quarantined, take
from support.landing_rows import FOLDER, land_text, make_rows_landing

AT = datetime(2026, 11, 1, 8, 0, tzinfo=UTC)


def taken(root: Path, source: str, data: str | bytes, columns: str, order: str = "seq") -> list[dict[str, Any]]:
    pipeline = make_rows_landing(root, source, columns, f"order: [{order}]")
    land_text(root, "a.csv", data)
    outcome = take(pipeline)
    assert outcome.error_code is None, outcome.message
    assert quarantined(pipeline) == []
    names = [column.strip("{ ").split(":")[0] for column in columns.split(", ")]
    return sorted(({name: row[name] for name in names} for row in changes_of(pipeline)), key=lambda row: row["id"])


PLAIN = "{id: int, text: string, seq: long}"


@pytest.mark.parametrize(
    ("source", "data", "text"),
    [
        ("csv, delimiter: ';'", "id;text;seq\n1;a,b;5\n", "a,b"),
        ("csv, delimiter: '\\t'", "id\ttext\tseq\n1\ta\t5\n", "a"),
        ("csv, delimiter: \"\\t\", null: ['\\N']", "id\ttext\tseq\n1\t\\N\t5\n", None),
        ("csv, delimiter: '|', quote: \"'\"", "id|text|seq\n1|'a|\"b'|5\n", 'a|"b'),
        ("csv, quote: ''", 'id,text,seq\n1,5" disk,5\n', '5" disk'),
        ("csv, header: [seq, id, text]", "5,1,a\n", "a"),
        ("csv, header: false", "1,a,5\n", "a"),
        ("csv, encoding: latin-1", "id,text,seq\n1,Müller,5\n".encode("latin-1"), "Müller"),
        ("csv, encoding: cp1252", "id,text,seq\n1,5 €,5\n".encode("cp1252"), "5 €"),
        ("csv", "\ufeffid,text,seq\r\n1,a,5\r\n", "a"),
        ("csv, header: false", "\ufeff1,a,5\n", "a"),
        ("csv, op: {column: id, upsert: any, delete: [], ignore: [Sum, Total]}", "id,text,seq\n1,a,5\nTotal,,5\n", "a"),
    ],
)
def test_a_dialect_is_read_as_it_is_configured(
    source: str, data: str | bytes, text: str | None, tmp_path: Path
) -> None:
    assert taken(tmp_path, source, data, PLAIN) == [{"id": 1, "text": text, "seq": 5}]


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-01 08:00:00",  # pandas, MySQL, PostgreSQL
        "2026-11-01T08:00:00",
        "2026-11-01 08:00",
        "2026-11-01 08:00:00+00",  # PostgreSQL with a zone
        "2026-11-01 09:00:00.000000+0100",
        "2026-11-01 08:00:00+00:00",
        "2026-11-01T08:00:00Z",
    ],
)
def test_usual_instants_are_read_by_default_and_are_utc_without_a_zone(text: str, tmp_path: Path) -> None:
    assert taken(tmp_path, "csv", f"id,at\n1,{text}\n", "{id: int, at: timestamp}", "at") == [{"id": 1, "at": AT}]


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        ("%d.%m.%Y %H:%M", "01.11.2026 08:00"),
        ("%m/%d/%Y %I:%M:%S %p", "11/01/2026 08:00:00 AM"),
        ("%Y%m%d%H%M%S", "20261101080000"),
        ("%d-%b-%Y %H:%M:%S %z", "01-Nov-2026 09:00:00 +0100"),
    ],
)
def test_times_in_a_configured_format(format_: str, text: str, tmp_path: Path) -> None:
    source = f'csv, timestamp_formats: ["{format_}", "%d.%m.%Y"]'
    columns = "{id: int, at: timestamp, day: date}"
    data = f"id,at,day\n1,{text},01.11.2026\n2,2026-11-01 08:00:00,2026-11-01\n"
    day = date(2026, 11, 1)
    found = taken(tmp_path, source, data, columns, "at")
    assert found == [{"id": 1, "at": AT, "day": day}, {"id": 2, "at": AT, "day": day}]


def test_days_that_there_are_not_and_times_in_dates_are_refused_and_say_what_is_right(tmp_path: Path) -> None:
    columns = "{id: int, day: date, amount: 'decimal(8,2)'}"
    source = 'csv, timestamp_formats: ["%d.%m.%Y", "%d.%m.%Y %H:%M"]'
    pipeline = make_rows_landing(tmp_path, source, columns, "order: [id]")
    data = b'id,day,amount\n1,31.02.2026,1\n2,01.02.2026 08:00,1\n3,01.02.2026,"1,284.60"\n4,01.02.2026,\xfc\n'
    land_text(tmp_path, "a.csv", data)
    take(pipeline)
    assert [entry["detail"] for entry in quarantined(pipeline)] == [
        "`day` is '31.02.2026', not a valid date. Expected: a date such as 31.01.2026.",
        "`day` is '01.02.2026 08:00', not a valid date. Expected: a date such as 31.01.2026.",
        "`amount` is '1,284.60', not a valid decimal(8,2). "
        "Expected: a number such as 1284.60, with no more digits than the type has. "
        'To read it, set `thousands: ","` under `source`.',
        "`amount` is '\\xfc', which is not UTF-8 text: set `encoding` under `source`, such as `encoding: cp1252`.",
    ]


def test_booleans_as_programs_write_them(tmp_path: Path) -> None:
    lines = "".join(f"{i},{text}\n" for i, text in enumerate(("true", "False", "TRUE", "t", "f")))
    found = taken(tmp_path, "csv", f"id,ok\n{lines}", "{id: int, ok: boolean}", "id")
    assert [row["ok"] for row in found] == [True, False, True, True, False]


def test_what_pandas_writes_is_read(tmp_path: Path) -> None:
    frame = pd.DataFrame({"id": [1, 2], "at": [AT.replace(tzinfo=None)] * 2, "ok": [True, False]})
    (tmp_path / FOLDER).mkdir(parents=True)
    frame.to_csv(tmp_path / FOLDER / "a.csv", index=False)
    pipeline = make_rows_landing(tmp_path, "csv", "{id: int, at: timestamp, ok: boolean}", "order: [at]")
    take(pipeline)
    assert [(r["id"], r["at"], r["ok"]) for r in changes_of(pipeline)] == [(1, AT, True), (2, AT, False)]


@pytest.mark.parametrize(
    ("source", "data", "message", "hint"),
    [
        ("csv", "id;text;seq\n1;a;5\n", 'not separated by ","', 'delimiter: ";"'),
        ("csv, delimiter: ';'", "id\ttext\tseq\n", 'not separated by ";"', 'delimiter: "\\t"'),
        ("csv", "1,a,5\n2,b,6\n", "has column 1, a, 5, which is not configured", "header: [id, text, seq]"),
    ],
)
def test_a_wrong_dialect_is_named_with_the_line_to_set(
    source: str, data: str, message: str, hint: str, tmp_path: Path
) -> None:
    """Followed to the letter, the hint mends it."""
    pipeline = make_rows_landing(tmp_path, source, PLAIN, "order: [seq]")
    land_text(tmp_path, "a.csv", data)
    [problem] = take(pipeline).facts["problems"]
    assert problem["code"] == "LANDED_SCHEMA"
    assert (message in problem["message"], hint in problem["hint"]) == (True, True), problem
    line = problem["hint"].split("`")[1]
    mended = make_rows_landing(tmp_path, f"csv, {line}", PLAIN, "order: [seq]")
    assert take(mended).error_code is None


def test_line_ends_in_quotes_of_another_kind_do_not_end_a_row(tmp_path: Path) -> None:
    pipeline = make_rows_landing(tmp_path, 'csv, quote: "\'"', PLAIN, "order: [seq]")
    path = land_text(tmp_path, "a.csv", "id,text,seq\n1,'a\nb',5\n2,'half\n")
    take(pipeline)
    assert sorted(row["text"] for row in changes_of(pipeline)) == ["a\nb"]
    path.write_bytes(path.read_bytes() + b"way',6\n")
    take(pipeline)
    assert sorted(row["text"] for row in changes_of(pipeline)) == ["a\nb", "half\nway"]
