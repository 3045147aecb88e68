"""`init` assumes only what the sample proves: a feed becomes its rows, or a question says why not (decision 0026)."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from support.person import Person, take_first
from tidefold.cli.app import app

Files = Mapping[str, str | bytes]


def begin(person: Person, files: Files) -> list[str]:
    """Lands the files of a new log `o`, and returns what `init` says."""
    (person.folder / "tidefold.yaml").unlink()
    for file in (person.folder / "landing").rglob("*.*"):
        file.unlink()
    for name, text in files.items():
        person.land(f"o/{name}", text)
    done = person.call("init", "landing")
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


def configured(person: Person, name: str) -> str:
    """Returns the line of a key in the file that `init` wrote, also in a comment."""
    found = re.search(
        rf"(?m)^(?:  # )? *{re.escape(name)}: (.*?)(?: # .*)?$", (person.folder / "tidefold.yaml").read_text()
    )
    return found[1] if found else ""


def answer(person: Person, **answers: str) -> None:
    """Takes the comment signs of the log away. answers: the new value of a line."""
    path = person.folder / "tidefold.yaml"
    text = take_first(re.sub(r"(?m)^  # (?!#)", "  ", path.read_text()))
    for name, value in answers.items():
        text, count = re.subn(rf"(?m)^( *){name}: .*\n", rf"\1{name}: {value}\n" if value else "", text)
        assert count == 1, (name, text)
    path.write_text(text)


def table(person: Person, *names: str, code: int = 0) -> list[tuple[Any, ...]]:
    done = person.call("run")
    assert done.exit_code == code, done.output
    rows = DeltaTable(str(person.folder / "var/store/tables/o")).to_pyarrow_table().to_pylist()
    return sorted((tuple(row[name] for name in names) for row in rows), key=str)


def lines(*rows: Mapping[str, Any]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def asked(said: Sequence[str], about: str) -> str:
    """Returns the question about a key; empty: there is none."""
    return next((line for line in said if line.startswith(f"question: o: {about}: ")), "")


AT = datetime(2026, 11, 1, 10, tzinfo=UTC), datetime(2026, 11, 1, 11, 3, 20, tzinfo=UTC)


def parts_of(micros: int) -> tuple[datetime, ...]:
    return tuple(at + timedelta(microseconds=micros) for at in AT)


@pytest.mark.rotates(6)
@pytest.mark.parametrize(
    ("texts", "times"),
    [
        (("1793527200", "1793531000"), AT),
        (("1793527200123", "1793531000123"), parts_of(123_000)),
        (("1793527200123456", "1793531000123456"), parts_of(123_456)),
        (("20261101100000", "20261101110320"), AT),
        (("179353100", "17935272000"), (179_353_100, 17_935_272_000)),
    ],
)
@pytest.mark.parametrize("form", ["csv", "json"])
def test_digits_are_a_time_only_if_they_have_all_digits_of_one(
    texts: Sequence[str], times: Sequence[Any], form: str, person: Person
) -> None:
    """Seconds since 1970 became the year 1793, and the older row won."""
    if form == "csv":
        begin(person, {"o.csv": "id,updated_at\n" + "".join(f"{n},{text}\n" for n, text in enumerate(texts))})
    else:
        begin(person, {"o.jsonl": lines(*({"id": n, "updated_at": int(text)} for n, text in enumerate(texts)))})
        times = [int(text) for text in texts] if texts[0].startswith("2026") else times
    answer(person)
    assert table(person, "updated_at") == sorted(((time,) for time in times), key=str)


def test_a_format_of_digits_demands_all_of_them(person: Person) -> None:
    config = "version: 1\nstore: var/store\nlogs:\n  o:\n    source: {format: csv, path: landing/o, FORMATS}\n"
    config += "    key: [id]\n    columns: {id: long, d: date, t: timestamp}\n    order: file\n"
    formats = 'timestamp_formats: ["%Y%m%d", "%Y%m%d%H%M", "%d.%m.%Y %H%M"]'
    begin(person, {"o-2026-11-01.csv": "id,d,t\n1,20261101,202611010930\n2,20261101,1.2.2026 0930\n"})
    (person.folder / "tidefold.yaml").write_text(config.replace("FORMATS", formats))
    assert len(table(person, "id")) == 2
    bad = ("2026111,", "202611,", "1012026,", ",20261101930", ",1.2.2026 930")
    person.land("o/o-2026-11-02.csv", "id,d,t\n" + "".join(f"{n},{text}\n" for n, text in enumerate(bad, 3)))
    assert person.call("run").exit_code == 2
    shown = person.call("quarantine", "show", "o", "--format", "json").stdout
    assert shown.count('"VALUE_INVALID"') == len(bad)


@pytest.mark.parametrize("form", ["csv", "json"])
@pytest.mark.parametrize(
    ("days", "said"),
    [
        (("13/02/2026", "02/13/2026"), "no one format fits 13/02/2026 and 02/13/2026"),
        (("13/02/2026 at 9", "14/02/2026 at 10"), "timestamp_formats"),
        (("13/02/2026", "14/02/2026"), ""),
    ],
)
def test_days_that_stay_text_have_a_remark(person: Person, form: str, days: Sequence[str], said: str) -> None:
    """Fault: in JSON they had none. Days that contradict each other were said to need their format."""
    if form == "csv":
        begin(person, {"o.csv": "id,d\n" + "".join(f"{n},{day}\n" for n, day in enumerate(days))})
    else:
        begin(person, {"o.jsonl": lines(*({"id": n, "d": day} for n, day in enumerate(days)))})
        said = said if said.startswith("no one") else "unless the source writes ISO 8601, or numbers since 1970"
    [line] = re.findall(r"(?m)^ +d: .*$", (person.folder / "tidefold.yaml").read_text())
    assert (configured(person, "d"), said in line) == ("string" if said else "date", True), line
    assert ("if these are times" in line) == bool(said)


def test_double_is_an_assumption_that_a_person_can_answer(person: Person) -> None:
    """Fault: 2.5 and 2.50 became `double` without a word, and may be money."""
    files = {"o.csv": "id,v\n1,2.5\n2,2.50\n"}
    said = begin(person, files)
    assert any("o: columns.v = double. Reason: some have more digits" in line for line in said)
    assert any("Other candidates: decimal(38,9)" in line for line in said)
    assert configured(person, "v") == "double"
    (person.folder / "tidefold.yaml").unlink()
    done = CliRunner().invoke(app, ["init", "landing", "--interactive"], input="\ndecimal(38,9)\n\n\n\n")
    assert done.exit_code == 0, done.output
    assert configured(person, "v") == '"decimal(38,9)"'
    assert table(person, "v") == [(Decimal("2.500000000"),)] * 2


def test_the_order_of_day_and_month_stays_open_until_a_person_writes_it(person: Person) -> None:
    said = begin(person, {"o-2026-11-01.csv": "id,d,e\n1,11/03/2026,01.12.2026\n2,11/04/2026,25.11.2026\n"})
    assert "Candidates: %d/%m/%Y; %m/%d/%Y" in asked(said, "timestamp_formats")
    choice = '# "%d/%m/%Y": the day comes first; "%m/%d/%Y": the month'
    assert f'timestamp_formats: ["%d.%m.%Y", ?] {choice}' in (person.folder / "tidefold.yaml").read_text()
    answer(person)
    assert "error [CONFIG_UNDECIDED]" in person.call("validate").output
    answer(person, timestamp_formats='["%d.%m.%Y", "%m/%d/%Y"]')
    assert person.call("validate").exit_code == 0
    assert [row[0].isoformat() for row in table(person, "d")] == ["2026-11-03", "2026-11-04"]


def test_the_mark_before_a_fraction_stays_open_until_a_person_writes_it(person: Person) -> None:
    """Fault: the block named one of two marks; without an answer 1,234 was published as about one."""
    begin(person, {"o-2026-11-01.csv": 'id,d\n1,"1,234"\n2,"2,500"\n'})
    assert 'decimal: [?] # "," or "."' in (person.folder / "tidefold.yaml").read_text()
    answer(person)
    assert "error [CONFIG_UNDECIDED]" in person.call("validate").output
    answer(person, decimal='"."\n      thousands: ","', d="long")
    assert table(person, "d") == [(1234,), (2500,)]


def test_the_hint_of_seconds_reads_them(person: Person) -> None:
    begin(person, {"o.csv": "id,updated_at\n1,2026-11-01\n"})
    answer(person)
    path = person.folder / "tidefold.yaml"
    path.write_text(path.read_text().replace("updated_at: date", "updated_at: timestamp"))
    person.land("o/o.csv", "id,updated_at\n1,1793531000\n")
    assert person.call("run").exit_code == 2
    [hint] = re.findall(r"set `updated_at: (\{.*\})` under", person.call("quarantine", "show", "o").output)
    path.write_text(path.read_text().replace("updated_at: timestamp", f"updated_at: {hint}"))
    assert person.call("quarantine", "retry", "o").exit_code == 0
    assert table(person, "updated_at") == [(datetime(2026, 11, 1, 11, 3, 20, tzinfo=UTC),)]


def changelog(op: str, *ops: str, gaps: int = 0) -> Files:
    """Rows 1 to 3, of which 1 is updated and 2 deleted. gaps: rows without an operation in front, in a file alone."""
    events = [(1, "new"), (2, "new"), (3, "new"), (1, "paid"), (2, "new")]
    rows = [
        f"{id_},{v},2026-11-01 09:00:0{at},{said}" for at, ((id_, v), said) in enumerate(zip(events, ops, strict=True))
    ]
    if not gaps:
        return {"o.csv": "\n".join([f"id,v,ts,{op}", *rows, ""])}
    load = [row.rpartition(",")[0] for row in rows[:gaps]]
    return {"a.csv": "\n".join(["id,v,ts", *load, ""]), "b.csv": "\n".join([f"id,v,ts,{op}", *rows[gaps:], ""])}


@pytest.mark.rotates(6)
@pytest.mark.parametrize(
    "files",
    [
        changelog("op", "I ", "I ", "I ", "U ", "D "),
        changelog("op", "insert", "INSERT", "insert", "Update", "DELETE"),
        changelog("op", "+I", "+I", "+I", "+U", "-D"),
        changelog("row_kind", "+I", "+I", "+I", "+U", "-D"),
        changelog("_change_type", "INSERT", "INSERT", "INSERT", "UPDATE_AFTER", "DELETE"),
        changelog("ENTTYP", "PT", "PT", "PT", "UP", "DL"),
        changelog("Op", "", "", "", "U", "D", gaps=3),
        changelog("Op", "", "", "", "U", "D"),
        changelog("hvr_op", "1", "1", "1", "2", "0"),
        changelog("_sign", "1", "1", "1", "1", "-1"),
        changelog("what", "", "created", "created", "updated", "deleted"),
        changelog("op", "new", "new", "new", "paid", "X"),
    ],
)
def test_a_column_that_looks_like_an_operation_is_no_data_without_a_question(files: Files, person: Person) -> None:
    said = begin(person, files)
    if question := asked(said, "op"):
        assert "Candidates: " in question
        return
    assert table(person, "id", "v") == [(1, "paid"), (3, "new")]


def test_a_full_load_without_the_operation_is_proposed_as_one(person: Person) -> None:
    said = begin(person, changelog("Op", "", "", "", "U", "D", gaps=3))
    assert "rows without it would be upserts" in asked(said, "op")
    answer(person)
    assert table(person, "id", "v") == [(1, "paid"), (3, "new")]


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_flags_with_nulls_are_flags(form: str, person: Person) -> None:
    frame = pl.DataFrame({"id": [1, 2, 3], "updated_at": [7, 8, 9], "_fivetran_deleted": [True, None, False]})
    stream = io.BytesIO()
    frame.write_ndjson(stream) if form == "jsonl" else frame.write_parquet(stream)
    begin(person, {f"o.{form}": stream.getvalue()})
    answer(person)
    assert table(person, "id") == [(2,), (3,)]


LACKS = [
    {"o+0+0000000000.jsonl": lines({"id": 1, "a": "x"}, {"id": 1, "b": "y"}, {"id": 2, "a": "v", "b": "w"})},
    {"o-1.csv": "id,a,b\n1,x,y\n2,v,w\n", "o-2.csv": "id,a\n1,x\n"},
]


@pytest.mark.parametrize("files", LACKS)
@pytest.mark.parametrize("keeps", [True, False])
def test_what_an_update_does_not_bring_is_asked(files: Files, keeps: bool, person: Person) -> None:
    assert "null there, or as they were" in asked(begin(person, files), "merge")
    answer(person, **({} if keeps else {"merge": ""}))
    is_json = "o-1.csv" not in files
    assert table(person, "id", "a", "b") == [
        (1, "x" if keeps or not is_json else None, "y" if keeps or is_json else None),
        (2, "v", "w"),
    ]


def test_only_older_files_without_a_column_are_null(person: Person) -> None:
    said = begin(person, {"o-2026-11-01.csv": "id,a\n1,x\n2,v\n", "o-2026-11-02.csv": "id,a,b\n1,x,y\n"})
    assert not asked(said, "merge")
    assert table(person, "id", "b") == [(1, "y"), (2, None)]


def test_rows_in_a_field_lack_nothing(person: Person) -> None:
    rows = [{"type": "RECORD", "stream": "o", "record": {"id": n, "v": "a", "updated_at": n}} for n in range(3)]
    begin(person, {"o.jsonl": lines({"type": "SCHEMA", "stream": "o"}, *rows, {"type": "STATE", "value": {}})})
    assert configured(person, "v") == "string"


def test_deletes_with_their_key_alone_make_no_column_null(person: Person) -> None:
    rows = [
        {"op": op, "id": id_, "n": "a", "ts": f"2026-11-01T10:00:0{id_}Z"} for op, id_ in (("insert", 1), ("insert", 2))
    ]
    said = begin(person, {"o.jsonl": lines(*rows, {"op": "delete", "id": 2, "ts": "2026-11-01T11:00:00Z"})})
    assert (asked(said, "merge"), configured(person, "n")) == ("", "string")
    assert table(person, "id", "n") == [(1, "a")]
    person.land("o/o-2.jsonl", lines({"op": "update", "id": 1, "ts": "2026-11-02T10:00:00Z"}))
    assert table(person, "id", "n", code=2) == [(1, "a")]


ENVELOPE = {"before": None, "op": "r", "source": {"connector": "postgresql", "sequence": '[null,"10"]', "lsn": 10}}


@pytest.mark.parametrize(
    "files",
    [
        {"o+0+0000000000.jsonl": lines(*(
            {**ENVELOPE, "after": {"id": id_, "kind": kind}} for id_, kind in ((1, "x"), (1, "y"), (2, "x"))))},
        {"o.jsonl": lines(*(
            {"op": "r", "id": id_, "kind": kind, "ts": "2026-11-01"} for id_, kind in ((1, "x"), (1, "y"), (2, "x"))))},
        {"o.csv": "id,kind\n1,x\n1,y\n2,x\n"},
        {f"o-2026-11-0{day}.csv": f"id,kind,v\n1,x,{day}\n1,y,2\n2,x,3\n" for day in (1, 2)},
    ],
)  # fmt: skip
def test_a_key_by_name_that_comes_twice_in_one_snapshot_is_asked(files: Files, person: Person) -> None:
    question = asked(begin(person, files), "key")
    assert "`id` alone does not" in question
    assert "Candidates: id, kind" in question


def test_a_column_with_few_values_is_no_key(person: Person) -> None:
    rows = [f"{op},{order},{line},{order * 7 % 5},{at}" for at, (op, order, line) in enumerate(
        (op, order, line) for op in ("I", "U", "U") for order in range(40) for line in range(3))]  # fmt: skip
    # Few inserts, whose lines differ by chance.
    text = "Op,order_id,line,qty,seq\n" + "\n".join([*rows[:2], *rows[120:]]) + "\n"
    said = begin(person, {"lines.csv": text})
    question = asked(said, "key")
    assert "Candidates: line" not in question
    assert "order_id, line" in question


@pytest.mark.parametrize(
    ("form", "column", "values"),
    [
        ("csv", "_ab_cdc_cursor", (100, 103, 101)),
        ("csv", "_ab_cdc_lsn", (1_000_000, 1_000_300, 1_000_100)),
        ("csv", "pos", ("00000000010000000100", "00000000010000000300", "00000000010000000200")),
        ("json", "pos", ("00000000010000000100", "00000000010000000300", "00000000010000000200")),
    ],
)
def test_the_order_of_the_source_comes_before_that_of_files(
    form: str, column: str, values: Sequence[Any], person: Person
) -> None:
    rows = [{"op": op, "id": 1, "v": v, column: at} for op, v, at in zip("IDU", ("a", "", "b"), values, strict=True)]
    rows += [{"op": "I", "id": 2, "v": "c", column: values[0]}]
    text = "\n".join([f"op,id,v,{column}", *(",".join(map(str, row.values())) for row in rows), ""])
    begin(person, {"o-2026-11-01.csv": text} if form == "csv" else {"o-2026-11-01.jsonl": lines(*rows)})
    assert configured(person, "order") == f"[{column.strip('_')}]"
    assert table(person, "id", "v") == [(2, "c")]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("updated_at", "2026-11-02 10:00:00.1234567"),
        ("header__change_seq", "20261101100000000000000000000000001"),
        ("__$start_lsn", "0x0000002C000001A80003"),
        ("lsn", "0/16B2D50"),
    ],
)
def test_a_column_that_says_when_but_cannot_be_read_is_asked(column: str, value: str, person: Person) -> None:
    question = asked(begin(person, {"o.csv": f"id,v,{column}\n1,new,{value}\n2,b,{value}\n"}), "order")
    assert f"`{column}` says it, but as text" in question
    assert value in question


def test_a_change_time_beside_an_lsn_is_enough(person: Person) -> None:
    said = begin(person, {"o.csv": "id,v,lsn,updated_at\n1,a,0/16B2D50,2026-11-01\n2,b,0/16B2D51,2026-11-02\n"})
    assert not asked(said, "order")


def test_an_order_that_begins_again_in_each_scan_is_asked(person: Person) -> None:
    said = begin(person, {"o.csv": "id,v,_change_type,_change_ordinal\n1,a,INSERT,0\n2,a,INSERT,0\n1,a,DELETE,1\n"})
    assert "begins again" in asked(said, "order")


def test_numbers_of_json_have_room_and_may_be_double(person: Person) -> None:
    said = begin(person, {"o-1.jsonl": lines(*({"id": n, "v": n + 0.5, "updated_at": n} for n in range(3)))})
    assert configured(person, "v") == '"decimal(38,9)"'
    assert any(line.startswith("assumed: o: columns.v = decimal(38,9). ") and line.endswith("double.") for line in said)
    person.land("o/o-2.jsonl", lines({"id": 1, "v": 123456789.12345679, "updated_at": 9}))
    assert (Decimal("123456789.12345679"),) in table(person, "v")


def test_the_schema_beside_a_row_says_that_a_number_is_double(person: Person) -> None:
    fields = [{"field": "id", "type": "int64"}, {"field": "v", "type": "double"}]
    rows = [{"schema": {"type": "struct", "fields": fields}, "payload": {"id": n, "v": n + 0.5}} for n in range(3)]
    begin(person, {"o+0+0000000000.json": lines(*rows)})
    assert configured(person, "v") == "double"


def test_part_files_of_any_job_are_one_kind(person: Person) -> None:
    ids = (
        "5bc8fbbc-bde5-4099-8164-d8399f767c45",
        "8f0c1a2e-1111-4bbb-8ccc-0123456789ab",
        "cd613e30-d8f1-4adf-91b7-584a2265b1f5",
    )
    for form in (
        "part-00000-{}-c000.csv",
        "20261101_08000{n}_00012_x7k2p_{}.csv",
        "{}.csv",
        "shop-1-2026-11-01-10-00-0{n}-de11cc9{n}.csv",
    ):
        files = {
            form.format(id_, n=n) + ".csv": f"id,updated_at\n{n},2026-11-01 10:00:00\n" for n, id_ in enumerate(ids)
        }
        said = begin(person, files)
        assert said[0].endswith("names 1 log: o."), (form, said)


def test_two_extracts_of_a_day_are_two(person: Person) -> None:
    names = ("c-20261101-100000123.csv", "c-20261101-120000456.csv")
    begin(person, {name: "id,v\n" + "".join(f"{n},a\n" for n in range(at, 10)) for at, name in enumerate(names)})
    assert configured(person, "extract") == "full"
    person.call("run")
    assert [id_ for (id_,) in table(person, "id")] == [*range(1, 10)]


def test_init_says_what_is_proved_and_what_is_answered(person: Person) -> None:
    said = begin(person, {"o.csv": "id,status,is_deleted\n1,a,false\n2,b,true\n"})
    assert "proved: o: format, columns" in said
    (person.folder / "tidefold.yaml").unlink()
    done = CliRunner().invoke(app, ["init", "landing", "-i"], input="\n\n\n\n")
    assert "proved: o: format, columns; answered: op, key, order" in done.output, done.output


def test_what_a_person_answers_of_numbers_is_written(person: Person) -> None:
    begin(person, {"o.jsonl": lines(*({"id": n, "v": n + 0.5, "updated_at": n} for n in range(3)))})
    (person.folder / "tidefold.yaml").unlink()
    done = CliRunner().invoke(app, ["init", "landing", "-i"], input="\ndouble\n\n\n")
    assert done.exit_code == 0, done.output
    assert configured(person, "v") == "double"


def test_a_refused_json_value_is_named_with_the_form_that_is_read(person: Person) -> None:
    begin(person, {"o.jsonl": lines({"id": 1, "d": "2026-11-01", "t": "2026-11-01T10:00:00Z", "w": 2.5})})
    answer(person)
    bad = ({"d": "25/11/2026"}, {"t": "25/11/2026 10:00"}, {"w": "heavy"})
    row = {"id": 2, "d": "2026-11-02", "t": "2026-11-02T10:00:00Z", "w": 1.5}
    person.land("o/p.jsonl", lines(*(row | one for one in bad)))
    person.call("run")
    shown = person.call("quarantine", "show", "o").stdout
    assert "'25/11/2026' is not a date of ISO 8601 such as 2026-01-31: let the source write that" in shown
    assert "'25/11/2026 10:00' is not an instant of ISO 8601 such as 2026-01-31T12:00:00Z: let the" in shown
    assert "`w` is 'heavy': Invalid decimal string" in shown
