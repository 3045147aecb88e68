"""Values, names and files at the edge of what there is: refused by name, in their row only, or read as they are."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Context, Decimal

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from deltalake import write_deltalake

from support.person import HEAD, ROWS, Person, take_first
from tidefold.sources.records.lossless_text import format_unscaled

SOURCE = {"connector": "postgresql", "lsn": 1, "txId": 1, "sequence": '["1","1"]', "ts_ms": 1, "snapshot": "false"}
FAR = (("America/New_York", "9999-12-31 23:59:59"), ("Europe/Berlin", "0001-01-01 00:00:00"))


def write(person: Person, source: str, columns: str, order: str = "file", log: str = "o") -> None:
    """A configuration of one log, whose key is id."""
    (person.folder / "tidefold.yaml").write_text(
        f"version: 1\nstore: var/store\nlogs:\n  {log}:\n    source: {{{source}, path: landing/{log}}}\n    key: [id]\n"
        f"    columns: {{id: long, {columns}}}\n    order: [{order}]\n"
    )


def init(person: Person, *answers: tuple[str, str]) -> str:
    """Proposes the landing folder. A log with questions takes the first candidates, then these replacements."""
    (person.folder / "tidefold.yaml").unlink()
    done = person.call("init", "landing")
    assert done.exit_code == 0, done.output
    path = person.folder / "tidefold.yaml"
    lines = [
        line.removeprefix("  # ").replace("#   ", "  ") if line.startswith("  # ") else line
        for line in path.read_text().splitlines()
    ]
    text = "\n".join(
        f"  {line}" if raw.startswith("  # ") else line
        for raw, line in zip(path.read_text().splitlines(), lines, strict=True)
    )
    text = take_first(text)
    for old, new in answers:
        assert old in text, text
        text = text.replace(old, new)
    path.write_text(text + "\n")
    return done.output


@pytest.fixture(autouse=True)
def _nothing_landed(person: Person) -> None:
    for name in ("orders/o1.csv", "lines/l1.jsonl"):
        (person.folder / "landing" / name).unlink()
        (person.folder / "landing" / name).parent.rmdir()


@pytest.mark.rotates(4)
@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
@pytest.mark.parametrize(("zone", "far"), FAR)
def test_a_time_that_utc_does_not_have_is_refused_in_its_row(person: Person, format_: str, zone: str, far: str) -> None:
    good = "2026-11-01 10:00:00"
    if format_ == "json":
        rows = ({"id": i, "until": at.replace(" ", "T")} for i, at in enumerate((good, far, good)))
        person.land("o/o-2026-11-01.json", "".join(json.dumps(row) + "\n" for row in rows))
    elif format_ == "csv":
        person.land(
            "o/o-2026-11-01.csv", "id,until\n" + "".join(f"{i},{at}\n" for i, at in enumerate((good, far, good)))
        )
    else:
        (person.folder / "landing/o").mkdir()
        times = [datetime.fromisoformat(at) for at in (good, far, good)]
        pq.write_table(
            pa.table({"id": [0, 1, 2], "until": pa.array(times, pa.timestamp("us"))}), "landing/o/o-2026-11-01.parquet"
        )
    more = ", record: value" if format_ == "json" else ""
    kind = "{type: timestamp, encoding: iso}" if format_ == "json" else "timestamp"
    write(person, f"format: {format_}, time_zone: {zone}{more}", f"until: {kind}")
    done = person.call("run", "o")
    assert "1 quarantined" in done.stdout, done.output
    shown = person.call("quarantine", "show", "o").stdout
    assert "VALUE_INVALID" in shown
    assert far[:10] in shown
    person.call("quarantine", "settle", "o", "--reason", "for ever")
    assert [row["id"] for row in person.rows("o")] == [0, 2]


def test_a_value_of_200000_characters_stops_no_other_folder(person: Person) -> None:
    rows = "id,v,updated_at\n1,{},2026-11-01 10:00:00\n2,b,2026-11-01 10:00:00\n"
    person.land("good/good-1.csv", rows.format("a"))
    person.land("long/long-1.csv", rows.format("x" * 200_000))
    person.land("open/open-1.csv", rows.format('"never closed' + "\ny" * 100_000))
    init(person)
    assert {"good", "long", "open"} == set(yaml.safe_load((person.folder / "tidefold.yaml").read_text())["logs"])
    assert [len(row["v"]) for row in person.rows("long")] == [200_000, 1]


def test_a_column_of_nulls_alone_fits_every_type(person: Person) -> None:
    (person.folder / "landing/o").mkdir()
    kinds = {"n": "long", "d": "decimal(12,2)", "s": "string", "t": "timestamp", "l": "array<string>", "b": "binary"}
    pl.DataFrame({"id": [1, 2], "at": ["2026-11-01T10:00:00Z"] * 2, **dict.fromkeys(kinds)}).write_parquet(
        "landing/o/o1.parquet"
    )
    pl.DataFrame({"id": [2], "at": ["2026-11-02T10:00:00Z"], "n": [5], **dict.fromkeys([*kinds][1:])}).write_parquet(
        "landing/o/o2.parquet"
    )
    init(person)
    columns = yaml.safe_load((person.folder / "tidefold.yaml").read_text())["logs"]["o"]["columns"]
    assert columns["n"] == "long", "one of two files shows its type"
    assert [row["n"] for row in person.rows("o")] == [None, 5]
    write(
        person,
        "format: parquet",
        ", ".join(["at: timestamp", *(f"{name}: '{kind}'" for name, kind in kinds.items())]),
        "at",
    )
    person.call("retain", "drop", "o", "--yes")
    assert [row["n"] for row in person.rows("o")] == [None, 5]


def test_odd_names_of_columns_become_aliases_in_every_format(person: Person) -> None:
    odd = {"Preis €/kWh": "a", "id": 1}
    record = {
        "key": {"id": 1},
        "value": {"op": "c", "before": None, "after": odd, "source": SOURCE, "ts_ms": 1796673394000},
    }
    lines = {"topic": "s.a.deb", "partition": 0, "offset": 0, "timestamp": 1796673394000, **record}
    person.land("s.a.deb/s.a.deb+0+0000000000.jsonl", json.dumps(lines) + "\n")
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake("landing/delta", pa.Table.from_pylist([odd, {**odd, "id": 2}]), configuration=feed)
    person.land("js/js-2026-11-01.json", json.dumps(odd) + "\n" + json.dumps({**odd, "id": 2}) + "\n")
    init(person)
    logs = yaml.safe_load((person.folder / "tidefold.yaml").read_text())["logs"]
    assert len(logs) == 3
    for log, told in logs.items():
        assert told["columns"]["Preis_kWh"]["aliases"] == ["Preis €/kWh"], log
        assert {row["Preis_kWh"] for row in person.rows(log)} == {"a"}


@pytest.mark.parametrize("digits", [4_800, 5_000])
def test_numbers_of_thousands_of_digits(person: Person, digits: int) -> None:
    number = "7" * digits
    person.land("o/o-2026-11-01.csv", f"id,n,at\n1,{number},2026-11-01\n2,5,2026-11-01\n")
    person.land(
        "j/j-2026-11-01.json", f'{{"id":1,"n":{number},"at":"2026-11-01"}}\n{{"id":2,"n":5,"at":"2026-11-01"}}\n'
    )
    for said in (init(person), person.call("run", "o").output, person.call("quarantine", "show", "o").output):
        assert "set_int_max_str_digits" not in said
        assert "UNFORESEEN" not in said
    write(person, "format: csv", "n: long, at: date")
    assert person.call("run", "o").exit_code in (0, 2, 3)
    said = person.call("quarantine", "show", "o").output
    assert "VALUE_INVALID" in said
    assert "set_int_max_str_digits" not in said


def test_a_decimal_of_thousands_of_digits_is_a_text_with_all_of_them() -> None:
    for number in (10**4_799 + 7, -(10**4_999)):
        data = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
        text = format_unscaled(data, 2)
        assert Decimal(text).scaleb(2, Context(prec=6_000)) == Decimal(number)
        assert text[-3] == "."


def test_a_key_with_a_zone_is_no_refusal_of_init(person: Person) -> None:
    zoned = {"type": "string", "name": "io.debezium.time.ZonedTimestamp", "field": "id"}
    row = {"type": "struct", "fields": [zoned, {"type": "string", "field": "v", "optional": True}], "field": "after"}
    schema = {"type": "struct", "fields": [row, {"type": "string", "field": "op"}]}
    after = {"id": "2026-11-01T10:00:00Z", "v": "a"}
    value = {"schema": schema, "payload": {"op": "c", "before": None, "after": after, "source": SOURCE}}
    key = {"schema": {"type": "struct", "fields": [zoned]}, "payload": {"id": after["id"]}}
    line = {"topic": "s.a.z", "partition": 0, "offset": 0, "timestamp": 1, "key": key, "value": value}
    person.land("s.a.z/s.a.z+0+0000000000.jsonl", json.dumps(line) + "\n")
    assert "would be refused" not in init(person)
    assert len(person.rows("z" if "  z:" in (person.folder / "tidefold.yaml").read_text() else "s.a.z")) == 1


@pytest.mark.parametrize(
    ("edit", "meant"),
    [
        (("order_id: long", "order_id: bigint"), "long"),
        (("customer: string", "customer: varchar(20)"), "string"),
        (("path: landing/orders", "path: landing/orders\n      time_zone: CEST"), "Europe/Berlin"),
        (("path: landing/orders", "path: landing/orders\n      time_zone: EDT"), "America/New_York"),
    ],
)
def test_a_name_of_another_system_is_understood(person: Person, edit: tuple[str, str], meant: str) -> None:
    person.edit(*edit)
    assert f"Did you mean `{meant}`?" in person.call("validate").output


def test_a_decimal_that_is_too_narrow_before_the_point_gets_the_one_that_holds_both(person: Person) -> None:
    person.land("orders/o1.csv", HEAD + ROWS)
    assert person.call("run", "orders").exit_code == 0
    person.edit("decimal(12,2)", "decimal(12,4)")
    refused = person.call("run", "orders").stderr
    assert "next: Set `total: 'decimal(14,4)'`" in refused
    person.edit("decimal(12,4)", "decimal(14,4)")
    done = person.call("run", "orders")
    assert "[SHAPE_CHANGED]" not in done.stderr or "schema_evolution: {widen: evolve}" in done.stderr


def test_rows_of_many_columns_are_shown_field_by_field(person: Person) -> None:
    names = [f"f{number:03d}" for number in range(198)]
    person.land("o/o-2026-11-01.csv", ",".join(["id", *names]) + "\n7," + ",".join(f"v{name}" for name in names) + "\n")
    write(person, "format: csv", ", ".join(f"{name}: string" for name in names))
    shown = person.call("run", "o").stdout, person.call("read", "o").stdout
    for text in shown:
        assert all(f"\n{name}    v{name}\n" in text for name in names), text[:500]


def test_status_names_failed_runs_without_alarms(person: Person) -> None:
    person.land("orders/o1.csv", HEAD + ROWS)
    assert person.call("run", "orders").exit_code == 0
    person.land("orders/o1.csv", HEAD + ROWS.replace("Ann", "Eva"))
    assert person.call("run", "orders").exit_code == 2
    assert "orders: the newest run failed" in person.call("status", "orders").stdout
    person.land("orders/o1.csv", HEAD + ROWS)
    assert person.call("run", "orders").exit_code == 0
    assert "failed" not in person.call("status", "orders").stdout


def test_an_older_program_says_that_a_newer_one_wrote_the_store(person: Person) -> None:
    person.land("orders/o1.csv", HEAD + ROWS)
    assert person.call("run", "orders").exit_code == 0
    newest = max((person.folder / "var/store/logs/orders/ledger").iterdir())
    newest.chmod(0o644)
    newest.write_bytes(newest.read_bytes().replace(b'{"format"', b'{"colour":"red","format"', 1))
    for words in (
        ("run",),
        ("status",),
        ("read",),
        (
            "snapshot",
            "history",
        ),
    ):
        told = person.call(*words, "orders").output
        assert "written by a newer tidefold" in told, told
        assert "backup" not in told


def test_singer_with_deletes_is_read_by_its_rules(person: Person) -> None:
    rows = [{"id": 1, "v": "a", "_sdc_deleted_at": None}, {"id": 2, "v": "b", "_sdc_deleted_at": None}]
    rows.append({**rows[0], "_sdc_deleted_at": "2026-11-01T11:00:00Z"})
    lines = [{"type": "SCHEMA", "stream": "o", "schema": {}, "key_properties": ["id"]}]
    lines += [{"type": "RECORD", "stream": "o", "record": row} for row in rows] + [{"type": "STATE", "value": {}}]
    person.land("o/o-2026-11-01.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    init(person)
    assert [row["id"] for row in person.rows("o")] == [2]


def test_quoted_empty_texts_are_null_where_a_typed_column_needs_it(person: Person) -> None:
    person.land("o/o-2026-11-01.csv", '"id","d","n"\n"1","2026-11-01","5"\n"2","",""\n')
    person.land("s/s-2026-11-01.csv", '"id","v"\n"1","a"\n"2",""\n')
    init(person)
    logs = yaml.safe_load((person.folder / "tidefold.yaml").read_text())["logs"]
    assert logs["o"]["source"]["quoted_null"] is True
    assert "quoted_null" not in logs["s"]["source"], "an empty text is a value"
    assert [(row["d"], row["n"]) for row in person.rows("o")] == [("2026-11-01", 5), (None, None)]
    assert [row["v"] for row in person.rows("s")] == ["a", ""]


def test_nan_among_numbers_is_double_and_said_to_be_refused(person: Person) -> None:
    person.land("o/o-2026-11-01.json", '{"id":1,"t":1.5}\n{"id":2,"t":NaN}\n{"id":3,"t":2.25}\n')
    person.land("c/c-2026-11-01.csv", "id,t\n1,1.5\n2,NaN\n3,2.25\n")
    said = init(person)
    assert "look at o: 1 of 3 sampled rows would be refused" in said
    logs = yaml.safe_load((person.folder / "tidefold.yaml").read_text())["logs"]
    assert logs["o"]["columns"]["t"] == "double"
    assert logs["c"]["source"][None] == ["", "NaN"], "YAML reads the name of the option as null"
    assert [row["t"] for row in person.rows("c")][1] is None


def test_feeds_that_cannot_be_read_are_named(person: Person) -> None:
    data = [
        {
            "Keys": {"id": {"S": "a"}},
            "NewImage": {"id": {"S": "a"}, "n": {"N": "9007199254740993"}, "x": {"NULL": True}},
        }
    ]
    data.append({"Keys": {"id": {"S": "b"}}, "OldImage": {"id": {"S": "b"}, "n": {"N": "1"}}})
    stamped = [{"Metadata": {"WriteTimestampMicros": {"N": "1793530800000000"}}, **line} for line in data]
    dms = [
        {"metadata": {"record-type": "control", "operation": "create-table", "timestamp": "2026-11-01T10:00:00Z"}},
        {
            "data": {"id": 1},
            "metadata": {"record-type": "data", "operation": "load", "timestamp": "2026-11-01T10:00:00Z"},
        },
    ]
    kinds = ("bootstrap-start", "bootstrap-insert", "bootstrap-complete", "insert")
    maxwell = [
        {"database": "s", "table": "o", "type": kind, "ts": 1, "data": {"id": at} if "insert" in kind else {}}
        for at, kind in enumerate(kinds)
    ]
    for log, lines in (("dynamo", stamped), ("dms", dms), ("maxwell", maxwell)):
        person.land(f"{log}/{log}-2026-11-01.json", "".join(json.dumps(line) + "\n" for line in lines))
    person.land(
        "airbyte/2026_11_01_1793530800000_0.csv",
        '_airbyte_ab_id,_airbyte_emitted_at,_airbyte_data\nx,1,"{""id"": 1}"\n',
    )
    person.land("fire/shop-1-2026-11-01-10-00-00-de11cc9d", '{"id":1}{"id":2}')
    person.land("bars/bars-2026-11-01.csv", "id||v||x\n1||a||b\n2||c||d\n")
    change = {"op": "c", "before": None, "after": {"id": 1}, "source": {"connector": "mysql", "file": "f", "pos": 1}}
    person.land("days/o-2026-11-01.jsonl", json.dumps(change) + "\n")
    said = init(person)
    for text in (
        "airbyte: its rows are texts in `_airbyte_data`",
        "bars: `||` separates its values",
        "days: its lines are Debezium's envelopes",
    ):
        assert text in said, said
    logs = yaml.safe_load((person.folder / "tidefold.yaml").read_text())["logs"]
    assert (logs["maxwell"]["source"]["profile"], logs["dynamo"]["source"]["profile"]) == ("maxwell", "dynamodb-export")
    assert logs["fire"]["source"]["record_path"] == "."
    assert logs["fire"]["source"]["files"]


def test_a_column_of_few_values_is_no_key_for_its_name(person: Person) -> None:
    keys = [(order, line) for order in range(98) for line in (1, 2, 3)]
    rows = [f"I,{order},{line},a,2026-11-01 10:00:00\n" for order, line in keys]
    rows += [f"U,{order},{line},b,2026-11-02 10:00:00\n" for order, line in keys]
    person.land("order_lines/c-2026-11-01.csv", "op,order_id,line,v,at\n" + "".join(rows))
    init(person)
    assert set(yaml.safe_load((person.folder / "tidefold.yaml").read_text())["logs"]["order_lines"]["key"]) == {
        "line",
        "order_id",
    }
    assert f"with {len(keys)} rows" in person.call("run", "order_lines").stdout


def test_a_key_is_explained_as_it_is_shown(person: Person) -> None:
    person.land("o/o-2026-11-01.csv", "id,d,at\n1,5.50,2026-11-01 10:00:00\n")
    write(person, "format: csv", "d: 'decimal(12,2)', at: timestamp")
    person.edit("key: [id]", "key: [d, at]")
    assert person.call("run", "o").exit_code == 0
    for words in (("d=5.5", "at=2026-11-01 10:00:00"), ("d=5.50", "at=2026-11-01T11:00:00+01:00")):
        told = person.call("explain", "o", *words)
        assert told.exit_code == 0, told.output
    wrong = person.call("explain", "o", "d=5.5", "at=soon").stderr
    assert "`at` is of type timestamp" in wrong
    assert "decimal" not in wrong
