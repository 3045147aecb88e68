"""Mistakes of a first hour. Each message must be right: a test reads its advice and does what it says, nothing else."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from deltalake import DeltaTable

from support.person import CODED, CONFIG, HEAD, LINE, ROWS, Person
from tidefold.compute.runners import in_process
from tidefold.operations.ingest import ingest as ingests
from tidefold.operations.snapshot import materialize as materializes
from tidefold.wiring import open_pipeline


def fails(done: Result, code: str, exit_code: int = 2) -> str:
    """What a failed call says, on one line each: the error, then the next step."""
    assert done.exit_code == exit_code, done.output
    assert f"[{code}]" in done.stderr, done.stderr
    assert not re.search(r"\bb['\"]", done.output)
    return done.stderr


def advice_of(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("next: "))


def meant(text: str) -> str:
    found = re.search(r"Did you mean `([^`]+)`", text)
    assert found, text
    return found[1]


def test_1_the_key_names_no_column(person: Person) -> None:
    person.edit("key: [order_id]", "key: [orderid]")
    said = fails(person.call("validate"), "KEY_COLUMN_UNKNOWN")
    assert "tidefold.yaml:9" in said
    person.edit("key: [orderid]", f"key: [{meant(said)}]")
    assert person.call("validate").exit_code == 0


def test_1b_the_key_is_changed_after_data_came(person: Person) -> None:
    assert person.call("step", "ingest", "orders").exit_code == 0
    person.edit("key: [order_id]", "key: [customer]")
    assert person.call("validate").exit_code == 0  # Without the store nobody knows.
    for words in (("validate", "--online"), ("step", "ingest", "orders")):
        said = fails(person.call(*words), "SHAPE_CHANGED", 3)
    assert "order_id before, customer now" in said
    plan, apply = CODED.findall(advice_of(said))
    assert person.follow_command(plan).exit_code == 0
    assert person.follow_command(apply).exit_code == 0
    assert [row["customer"] for row in person.rows()] == ["Ann", "Bob"]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("format: csv", "format: cvs"), ("    columns:\n", "    colums:\n"), ("customer: string", "customer: strng"),
     ("logs:", "log:")],
)  # fmt: skip
def test_2_a_word_is_misspelt(person: Person, right: str, wrong: str) -> None:
    person.edit(right, wrong)
    done = person.call("validate")
    assert done.exit_code == 2
    number = next(i for i, line in enumerate(CONFIG.splitlines(), 1) if right.strip() in line)
    # A key that is missing stands at the line of what it should be in; the wrong one has its own.
    said = next(line for line in done.stderr.splitlines() if f"tidefold.yaml:{number}:" in line)
    said = said if "Did you mean" in said else done.stderr
    before, after = wrong.strip(" :\n").split(": ")[-1], meant(said)
    person.edit(before, after)
    assert person.call("validate").exit_code == 0, person.call("validate").stderr


def test_2_a_tab(person: Person) -> None:
    person.edit("      format: csv", "\tformat: csv")
    said = fails(person.call("validate"), "CONFIG_TAB")
    assert "Indent with spaces" in said
    person.edit("\t", "      ")
    assert person.call("validate").exit_code == 0


def test_3_a_file_lacks_a_column(person: Person) -> None:
    person.land("orders/o2.csv", "op,order_id,total,updated_at\nI,3,1.00,2026-11-01 09:00:00\n")
    said = fails(person.call("step", "ingest", "orders"), "LANDED_SCHEMA")
    assert "[LANDED_SCHEMA] `o2.csv` lacks column customer" in person.call("status").stdout
    line = next(text for text in CODED.findall(advice_of(said)) if "default" in text)
    person.set(line, below="columns")
    assert [row["customer"] for row in person.rows()] == ["Ann", "Bob", None]


def test_3_a_file_has_a_column_more(person: Person) -> None:
    person.land("orders/o2.csv", HEAD.replace("\n", ",note\n") + "I,3,Eve,1.00,2026-11-01 09:00:00,x\n")
    said = fails(person.call("step", "ingest", "orders"), "LANDED_SCHEMA")
    add, leave_out = (text for text in CODED.findall(advice_of(said)) if ":" in text)
    person.set(leave_out)
    assert len(person.rows()) == 3
    person.set("ignored: []")
    person.set(add, below="columns")
    assert person.call("validate", "--online").exit_code == 0


def test_4_a_line_has_a_field_more(person: Person) -> None:
    person.land("lines/l2.jsonl", LINE.replace('"id":1', '"id":2').replace("}", ',"extra":1}'))
    said = fails(person.call("step", "ingest", "lines"), "UNKNOWN_COLUMN")
    assert "Line 1 of `l2.jsonl`" in said
    person.set(next(text for text in CODED.findall(said) if "default" in text), log="lines", below="columns")
    assert [row["id"] for row in person.rows("lines")] == [1, 2]


def test_4_a_line_lacks_a_field(person: Person) -> None:
    person.land("lines/l2.jsonl", LINE.replace('"id":1', '"id":2').replace(',"text":"a"', ""))
    person.call("step", "ingest", "lines")
    shown = person.call("quarantine", "show", "lines").stdout
    assert "line 1 of l2.jsonl: MISSING_COLUMN" in shown
    person.set(next(text for text in CODED.findall(shown) if "default" in text), log="lines", below="columns")
    assert "1 became changes" in person.call("quarantine", "retry", "lines").stdout
    assert [row["id"] for row in person.rows("lines")] == [1, 2]


def test_4_a_line_cannot_be_read(person: Person) -> None:
    person.land("lines/l2.jsonl", "{bad\n" + LINE.replace('"I"', '"X"').replace('"id":1', '"id":2'))
    assert person.call("step", "ingest", "lines").exit_code == 0
    shown = person.call("quarantine", "show", "lines").stdout
    assert "line 1 of l2.jsonl: BROKEN_JSON" in shown
    assert "line 2 of l2.jsonl: OP_UNKNOWN: `op` is 'X', not one of upsert, insert" in shown
    said = person.call("quarantine", "retry", "lines").stdout
    assert "land corrected ones in a new file" in said
    person.land("lines/l3.jsonl", LINE.replace('"id":1', '"id":2'))
    person.call("step", "ingest", "lines")
    settle = next(text for text in CODED.findall(said) if "settle" in text)
    settle = settle.replace("LOG", "lines").replace("FILE", "l2.jsonl").replace("REASON", "corrected")
    assert person.follow_command(settle).exit_code == 0
    assert [row["id"] for row in person.rows("lines")] == [1, 2]


@pytest.mark.parametrize(
    ("row", "reason", "option"),
    [
        ("I,3,Zo\xeb,1.00,2026-11-01 09:00:00\n".encode("latin-1"), "VALUE_INVALID", "encoding"),
        (b"I,3,Eve,1.00,01.11.2026 09:00\n", "VALUE_INVALID", "timestamp_formats"),
    ],
)
def test_5_a_value_is_written_in_another_way(person: Person, row: bytes, reason: str, option: str) -> None:
    person.land("orders/o2.csv", HEAD.encode() + row)
    person.call("step", "ingest", "orders")
    shown = person.call("quarantine", "show", "orders").stdout
    assert f"row 1 of o2.csv: {reason}: " in shown
    assert not re.search(r"\bb['\"]", shown)
    line = next(text for text in CODED.findall(shown) if text.startswith(f"{option}:"))
    person.set(line, below="source")
    said = person.call("step", "ingest", "orders")
    assert "[LANDED_REFUSED]" in said.output
    retry = next(text for text in CODED.findall(said.output) if "quarantine retry" in text)
    assert "1 became changes" in person.follow_command(retry).stdout
    assert [row["order_id"] for row in person.rows()] == [1, 2, 3]


@pytest.mark.parametrize(
    ("row", "right"),
    [
        ("I,3,Eve,x,2026-11-01 09:00:00\n", "Expected: a number such as 1284.60"),
        ("I,3,Eve,1,284.60,2026-11-01 09:00:00\n", "A value that contains the delimiter must be in quotes."),
        ("I,,Eve,1.00,2026-11-01 09:00:00\n", "KEY_NULL: `order_id` is null"),
        ("I,3,Eve\n", "The row has 3 values, but the header has 5."),
    ],
)
def test_5_a_value_is_none(person: Person, row: str, right: str) -> None:
    person.land("orders/o2.csv", HEAD + row)
    person.call("step", "ingest", "orders")
    assert right in person.call("quarantine", "show", "orders").stdout
    advice = advice_of(fails(person.call("step", "ingest", "orders"), "LANDED_REFUSED"))
    show, retry, settle, _ = CODED.findall(advice)
    assert right in person.follow_command(show).stdout
    assert "still cannot be read" in person.follow_command(retry).stdout
    assert "land corrected ones in a new file" in advice
    person.land("orders/o3.csv", HEAD + 'I,3,Eve,"1284.60",2026-11-01 09:00:00\n')
    person.call("step", "ingest", "orders")
    assert person.follow_command(settle.replace("REASON", "corrected")).exit_code == 0
    assert [row["order_id"] for row in person.rows()] == [1, 2, 3]


def test_6_another_delimiter(person: Person) -> None:
    person.land("orders/o1.csv", (HEAD + ROWS).replace(",", ";"))
    said = fails(person.call("step", "ingest", "orders"), "LANDED_SCHEMA")
    person.set(CODED.findall(advice_of(said))[0], below="source")
    assert len(person.rows()) == 2


def test_7_no_line_end_and_an_empty_file(person: Person) -> None:
    person.land("orders/o1.csv", (HEAD + ROWS).rstrip("\n"))
    person.land("orders/o0.csv", "")
    said = person.call("step", "ingest", "orders")
    assert "`o0.csv`, `o1.csv`" in said.stdout
    status = person.call("status", "orders").stdout
    assert "`o1.csv` does not end with a complete record" in status
    assert "`o0.csv`" in status
    advice = advice_of(fails(person.call("step", "ingest", "orders"), "LANDED_WAITING"))
    assert "the last line is whole, end it with a line end" in advice
    person.land("orders/o1.csv", HEAD + ROWS)
    assert len(person.rows()) == 2


def test_7_a_quote_is_not_closed(person: Person) -> None:
    person.land("orders/o1.csv", HEAD + ROWS.replace("Bob", '"Bob'))
    assert "`o1.csv` (an open quote, line 3)" in person.call("run", "orders").stdout
    advice = advice_of(fails(person.call("run", "orders"), "LANDED_WAITING"))
    assert "Line 3 of `o1.csv`, or a later one, opens a quote" in person.call("status", "orders").stdout
    assert "close the quote" in advice
    person.land("orders/o1.csv", HEAD + ROWS.replace("Bob", '"Bob"'))
    assert len(person.rows()) == 2


@pytest.mark.parametrize("name", ["orders/o1.csv", "lines/l1.jsonl"])
def test_8_a_file_is_renamed(person: Person, name: str) -> None:
    log = name.partition("/")[0]
    before = person.rows(log)
    os.rename(person.folder / "landing" / name, person.folder / "landing" / log / f"x{Path(name).suffix}")
    assert person.rows(log) == before


def test_9_a_file_is_edited_after_it_was_taken(person: Person) -> None:
    person.rows()
    person.land("orders/o1.csv", (HEAD + ROWS).replace("Ann", "Eve"))
    for other in ("", "o2.csv"):  # Also beside a new file, in the second run at the latest.
        if other:
            person.land(f"orders/{other}", HEAD + ROWS.replace("Bob", "Cid").replace("08:01", "08:02"))
            person.call("step", "ingest", "orders")
        said = fails(person.call("step", "ingest", "orders"), "LANDED_CHANGED")
    assert "Restore the earlier file" in advice_of(said)
    assert "another name" in advice_of(said)
    person.land("orders/o1.csv", HEAD + ROWS)
    person.land("orders/o3.csv", (HEAD + ROWS).replace("Ann", "Eve").replace("08:00", "08:30"))
    assert [row["customer"] for row in person.rows()] == ["Eve", "Cid"]


def test_10_the_landing_folder_is_misspelt(person: Person) -> None:
    person.edit("landing/orders", "landing/oders")
    assert "landing/oders does not exist yet" in person.call("validate").stderr
    said = fails(person.call("step", "ingest", "orders"), "LANDING_MISSING", 4)
    assert "Check `source.path`" in advice_of(said)
    person.edit("landing/oders", "landing/orders")
    assert len(person.rows()) == 2


def test_11_the_log_is_misspelt(person: Person) -> None:
    said = fails(person.call("step", "ingest", "oders"), "LOG_NOT_CONFIGURED", 4)
    listed = advice_of(said).removeprefix("next: Configured logs: ").rstrip(".").split(", ")
    assert listed == ["orders", "lines"]
    assert person.call("step", "ingest", *listed).exit_code == 0


def test_12_a_run_is_made_twice(person: Person) -> None:
    before = person.rows()
    assert person.rows() == before
    assert "nothing new" in person.call("step", "ingest", "orders").stdout


def test_12_two_runs_at_once(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one takes the same records between the first one's plan and its commit."""

    def parse_slowly(*given: Any, **named: Any) -> Any:
        found = parse_round(*given, **named)
        monkeypatch.setattr(ingests, "parse_round", parse_round)
        [other] = ingests.ingest(open_pipeline(person.folder / "tidefold.yaml"), ["orders"], in_process)
        assert other.error_code is None
        return found

    parse_round = ingests.parse_round
    monkeypatch.setattr(ingests, "parse_round", parse_slowly)
    said = fails(person.call("step", "ingest", "orders"), "OFFSETS_TAKEN", 7)
    assert "Run ingest again" in advice_of(said)
    assert "nothing new" in person.call("step", "ingest", "orders").stdout
    assert len(person.rows()) == 2


@pytest.mark.parametrize(
    ("name", "code", "exit_code"),
    [("nope.yaml", "CONFIG_NOT_FOUND", 4), ("landing", "CONFIG_NOT_A_FILE", 2), ("", "CONFIG_NOT_FOUND", 4)],
)
def test_13_there_is_no_configuration(person: Person, name: str, code: str, exit_code: int) -> None:
    if not name:
        (person.folder / "tidefold.yaml").unlink()
    said = fails(person.call("status", *(["-c", name] if name else [])), code, exit_code)
    if code == "CONFIG_NOT_FOUND" and not name:
        [init] = (text for text in CODED.findall(advice_of(said)))
        assert person.follow_command(init.replace("DIR", "landing")).exit_code == 0
        assert person.call("validate").exit_code == 0
    elif code == "CONFIG_NOT_FOUND":
        assert "--config or TIDEFOLD_CONFIG names another file" in advice_of(said)
        assert person.call("status", "--config", "tidefold.yaml").exit_code == 0
    else:
        assert "Name the YAML file itself" in advice_of(said)
        assert person.call("status", "-c", "tidefold.yaml").exit_code == 0


def test_14_somebody_presses_control_c(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as pressed:
        pressed.setattr(materializes, "stage", _press_control_c)
        assert person.call("run", "orders").exit_code == 130
    left = [path for path in (person.folder / "var/store/tables").rglob("*") if path.suffix == ".parquet"]
    assert left == []
    assert len(person.rows()) == 2


def _press_control_c(*given: Any, **named: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("flip", [True, False])
def test_15_a_data_file_is_damaged_or_gone(person: Person, flip: bool) -> None:
    before = person.rows()
    file = max((person.folder / "var/store/tables/orders").rglob("*.parquet"), key=lambda path: path.stat().st_size)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    for path in list((person.folder / "var/store").rglob(file.name)):
        if flip:
            path.chmod(0o644)
            path.write_bytes(data)
        else:
            path.unlink()
    done = person.call("check", "verify", "orders")
    assert done.exit_code != 0
    commands = [text for text in CODED.findall(done.output) if text.startswith("tidefold restore")]
    assert commands, done.output
    told = person.follow_command(commands[0])
    assert told.exit_code == 0, told.output
    for words in (("step", "quality", "orders"), ("step", "confirm", "orders")):
        assert person.call(*words).exit_code == 0
    assert person.rows() == before


def test_18_the_store_is_not_mounted(person: Person) -> None:
    said = person.call("run", "orders").stderr
    line = next(text for text in CODED.findall(said) if text.startswith("store_id"))
    path = person.folder / "tidefold.yaml"
    path.write_text(path.read_text().replace("store: var/store\n", f"store: var/store\n{line}\n"))
    os.rename("var/store", "var/elsewhere")
    for words in (("status",), ("run", "orders")):
        assert "STORE_UNKNOWN" in person.call(*words).output
    assert not (person.folder / "var/store").exists()
    os.rename("var/elsewhere", "var/store")
    assert len(person.rows()) == 2


def test_19_a_column_is_retyped(person: Person) -> None:
    assert person.call("step", "ingest", "lines").exit_code == 0
    person.edit("text: string", "text: long")
    said = fails(person.call("step", "ingest", "lines"), "SHAPE_CHANGED", 3)
    assert "Put the old columns back" in advice_of(said)
    person.edit("text: long", "text: string")
    assert len(person.rows("lines")) == 1


def test_20_the_time_zone_is_added_after_data_came(person: Person) -> None:
    """Rows of both readings would mix without a word."""
    before = person.rows()
    person.set("time_zone: UTC", below="source")
    assert person.rows() == before
    person.set("time_zone: Europe/Berlin", below="source")
    advice = advice_of(fails(person.call("run", "orders"), "SHAPE_CHANGED", 3))
    plan, apply = (text for text in CODED.findall(advice) if text.startswith("tidefold"))
    assert person.follow_command(plan).exit_code == 0
    assert person.follow_command(apply).exit_code == 0
    assert [row["updated_at"][:19] for row in person.rows()] == ["2026-11-01 07:00:00", "2026-11-01 07:01:00"]


@pytest.mark.rotates(3)
@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("timestamp_formats: ['%Y-%d-%m %H:%M:%S']", "timestamp_formats"),
        ("decimal: ','", "decimal"),
        ("'null': ['', Ann]", "null"),
        ("quote: ''", "quote"),
        ("header: [op, order_id, customer, updated_at, total]", "header"),
        ("op: {column: op, upsert: [U], delete: [I]}", "op.upsert"),
        ("delimiter: ;", "delimiter"),
    ],
)
def test_22_values_are_read_in_another_way_after_data_came(person: Person, line: str, shown: str) -> None:
    """Rows of both readings would mix without a word, unless the person says that they may."""
    before = person.rows()
    person.set(line, below="source")
    assert person.call("validate").exit_code == 0  # Without the store nobody knows.
    for words in (("validate", "--online"), ("step", "ingest", "orders"), ("run", "orders")):
        said = fails(person.call(*words), "SHAPE_CHANGED", 3)
        assert f"read `{shown}` from" in said
    allowed = next(text for text in CODED.findall(advice_of(said)) if "schema_evolution" in text)
    person.set(allowed)
    assert person.rows() == before
    person.set("schema_evolution: {}")
    assert person.rows() == before  # It is the reading of the log now.


def test_22_an_encoding_is_changed_after_data_came(person: Person) -> None:
    person.edit("encoding: iso", "encoding: micros")
    person.land("lines/l1.jsonl", '{"op":"I","id":1,"text":"a","ts":1767225600000}\n')
    assert len(person.rows("lines")) == 1
    person.edit("encoding: micros", "encoding: millis")
    said = fails(person.call("step", "ingest", "lines"), "SHAPE_CHANGED", 3)
    assert "read `ts` from encoding micros to encoding millis" in said
    person.edit("encoding: millis", "encoding: any")
    assert len(person.rows("lines")) == 1  # It reads what micros read, and more.


@pytest.mark.parametrize("line", ["timestamp_formats: ['%d.%m.%Y %H:%M']", "thousands: ','"])
def test_22_what_was_refused_before_may_be_read_now(person: Person, line: str) -> None:
    row = 'I,3,Cid,"1,000.00",2026-11-02 08:00:00' if "thousands" in line else "I,3,Cid,1.00,02.11.2026 08:00"
    person.land("orders/o2.csv", HEAD + row + "\n")
    person.call("step", "ingest", "orders")
    person.set(line, below="source")
    assert person.call("quarantine", "retry", "orders").exit_code == 0
    assert [row["customer"] for row in person.rows()] == ["Ann", "Bob", "Cid"]


@pytest.mark.parametrize("words", [["2"], ["order_id=2"], ['{"order_id": 2}']])
def test_21_a_key_is_written_in_some_way(person: Person, words: list[str]) -> None:
    person.rows()
    done = person.call("explain", "orders", *words)
    assert done.exit_code == 0, done.stderr
    assert "customer=Bob" in done.stdout


def test_21_a_row_is_explained_by_file_and_line_and_by_what_was_refused(person: Person) -> None:
    person.land("orders/o2.csv", HEAD + "U,2,Bert,x,2026-11-01 09:00:00\nU,2,Bill,2.50,2026-11-01 09:10:00\n")
    person.land("lines/l2.jsonl", "\n{bad\n" + LINE.replace('"a"', '"b"').replace("08:00", "09:00"))
    person.land("lines/l3.jsonl.gz", gzip.compress(LINE.replace('"a"', '"c"').replace("08:00", "10:00").encode()))
    person.call("step", "ingest")
    said = person.call("explain", "orders", "2", "--live").stdout
    assert "made by upsert of order 2026-11-01T09:10:00Z" in said
    assert "landed as o2.csv, row 2, ingested" in said
    assert "o1.csv, row 2" in said
    assert "row 1 of o2.csv  VALUE_INVALID" in said
    said = person.call("explain", "lines", "1", "--live").stdout
    assert "landed as l3.jsonl.gz, line 1, ingested" in said
    assert "l2.jsonl, line 3" in said
    # A file that is no longer what was ingested shows no line.
    person.land("lines/l2.jsonl", LINE)
    person.land("lines/l1.jsonl", LINE + LINE)
    (person.folder / "landing/lines/l3.jsonl.gz").unlink()
    said = person.call("explain", "lines", "1", "--live").stdout
    assert "landed as l3.jsonl.gz, which cannot be read now, ingested" in said
    assert "l2.jsonl, which has changed since" in said
    assert "l1.jsonl, line 1" in said


def test_21_a_record_of_kafka_is_explained_by_its_line(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    person.edit("record: value, op: {column: op}}", "op: {column: op}}")
    person.edit("    order: [ts]\n", "")
    (person.folder / "landing/lines/l1.jsonl").unlink()
    lines = (f'{{"topic":"lines","partition":0,"offset":{i},"value":{LINE.strip()}}}\n' for i in (3, 4, 9))
    person.land("lines/lines+0+0000000003.jsonl", "\n".join(lines))
    person.call("step", "ingest", "lines")
    said = person.call("explain", "lines", "1", "--live").stdout
    assert "landed as lines+0+0000000003.jsonl, line 5, ingested" in said
    assert "lines 0 offset 9" in said
    monkeypatch.setenv("COLUMNS", "200")
    assert "lines+0+0000000003.jsonl, line 1" in person.call("explain", "lines", "1", "--live").stdout


def test_21_a_key_has_another_type_or_another_name(person: Person) -> None:
    person.rows()
    said = fails(person.call("explain", "orders", "order_id=abc"), "READ_KEY")
    assert "`order_id` is of type long" in said
    assert advice_of(said) == "next: Give a value of that type."
    assert "customer=Bob" in person.call("explain", "orders", "order_id=2").stdout
    said = fails(person.call("explain", "orders", "id=2"), "READ_KEY")
    assert '{"order_id": ...}' in advice_of(said)
    assert "customer=Bob" in person.call("explain", "orders", '{"order_id": 2}').stdout


def test_22_and_23_stores_and_masters_that_there_are_not(person: Person) -> None:
    person.edit("store: var/store", "store: hdfs://namenode/x")
    said = fails(person.call("validate"), "NOT_IN_THIS_VERSION")
    assert "password" not in said
    person.edit("store: hdfs://namenode/x", "store: var/store\nspark: {master: mesos}")
    said = fails(person.call("validate"), "NOT_IN_THIS_VERSION")
    person.edit("master: mesos", f'master: "{CODED.findall(advice_of(said))[0]}"')
    assert person.call("validate").exit_code == 0


def test_24_a_savepoint_has_no_place(person: Person) -> None:
    person.rows()
    done = person.call("move", "savepoint", "orders", "--to", "/proc/x")
    assert done.exit_code != 0
    assert "/proc" in advice_of(done.stderr)
    assert "store" not in advice_of(done.stderr)
    assert person.call("move", "savepoint", "orders", "--to", str(person.folder / "saved")).exit_code == 0


def test_25_a_suite_is_misspelt(person: Person) -> None:
    person.edit("    order: [updated_at]\n", "    order: [updated_at]\n    quality: {suite: q.yaml}\n")
    suite = person.folder / "q.yaml"
    suite.write_text("checks:\n  - not_null: custmer\n  - rnge: {column: total, min: 0}\n")
    done = person.call("validate")
    assert done.exit_code == 2
    assert "`` needs" not in done.stderr
    for wrong in ("custmer", "rnge"):
        line = next(line for line in done.stderr.splitlines() if wrong in line)
        suite.write_text(suite.read_text().replace(wrong, meant(line)))
    assert person.call("validate").exit_code == 0, person.call("validate").stderr


@pytest.mark.parametrize("verb", ["run", "step abort"])
def test_14_a_run_was_killed_behind_its_snapshot(person: Person, verb: str) -> None:
    person.call("step", "ingest", "orders")
    assert person.call("step", "materialize", "orders", "--run", "killed").exit_code == 0
    said = person.call("status", "orders").stdout
    command = next(text for text in CODED.findall(said) if text.startswith(f"tidefold {verb} orders"))
    assert person.follow_command(command).exit_code == 0
    assert len(person.rows()) == 2


@pytest.mark.parametrize("asked", ["run orders", "check verify orders --quick"])
def test_16_somebody_else_writes_into_the_table(person: Person, asked: str) -> None:
    before = person.rows()
    DeltaTable(str(person.folder / "var/store/tables/orders")).delete("order_id = 1")
    person.land("orders/o2.csv", HEAD + "I,3,Eve,1.00,2026-11-01 09:00:00\n")
    done = person.call("run", "orders")
    assert "[FOREIGN_COMMIT]" in done.output, done.output
    command = next(text for text in CODED.findall(person.call(*asked.split()).output) if "--reconcile" in text)
    told = person.follow_command(command)
    assert told.exit_code == 0, told.output
    assert [row["order_id"] for row in person.rows()] == [*(row["order_id"] for row in before), 3]


def test_17_the_store_cannot_be_written(person: Person) -> None:
    person.edit("store: var/store", "store: /proc/x")
    done = person.call("step", "ingest", "orders")
    assert done.exit_code == 6
    assert "/proc" in advice_of(done.stderr)
    person.edit("store: /proc/x", "store: var/store")
    assert len(person.rows()) == 2


def test_20_there_is_no_java(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    person.edit("logs:\n", "spark: {above: 0B}\nlogs:\n")
    with monkeypatch.context() as without:
        without.setenv("JAVA_HOME", "/nowhere")
        said = fails(person.call("step", "ingest", "orders"), "JAVA_MISSING", 4)
    assert "openjdk" in advice_of(said)


def test_26_a_hold_without_a_reason(person: Person) -> None:
    person.rows()
    done = person.call("snapshot", "hold", "orders", "audit", "1")
    assert done.exit_code == 2
    assert "Missing option '--reason'" in done.output
    assert person.call("snapshot", "hold", "orders", "audit", "1", "--reason", "yearly audit").exit_code == 0


@pytest.mark.parametrize(
    ("source", "value", "right", "setting"),
    [
        ("", '"1284,60"', "a number such as 1284.60", 'set `decimal: ","` under'),
        ('decimal: ","', "1.284.60", "a number such as 1284,60", ""),
        ('decimal: ","', '"1.284,60"', "a number such as 1284,60", 'set `thousands: "."` under'),
        ('{decimal: ",", thousands: "."}', '"1284,6,0"', "a number such as 1.284,60", ""),
        ("", "1'284.60", "a number such as 1284.60", 'set `thousands: "\'"` under'),
    ],
)
def test_27_a_number_is_written_in_another_way(
    person: Person, source: str, value: str, right: str, setting: str
) -> None:
    if source:
        person.set(source, below="source")
    person.land("orders/o2.csv", f"{HEAD}I,3,Eve,{value},2026-11-01 09:00:00\n")
    person.call("step", "ingest", "orders")
    lines = person.call("quarantine", "show", "orders").stdout.splitlines()
    shown = next(line for line in lines if "o2.csv" in line)
    assert right in shown
    assert setting in shown if setting else "To read it" not in shown


def test_28_a_column_has_another_name_than_before(person: Person) -> None:
    person.rows()
    person.land("orders/o2.csv", HEAD.replace("customer", "client") + "U,2,Ann,1.50,2026-11-01 09:00:00\n")
    advice = advice_of(fails(person.call("run", "orders"), "LANDED_SCHEMA"))
    [alias] = [text for text in CODED.findall(advice) if "aliases" in text]
    person.set(alias, below="columns")
    assert {row["customer"] for row in person.rows()} == {"Ann"}


def test_28_a_name_of_a_column_is_seen_before_the_first_run(person: Person) -> None:
    person.edit("customer: string", "custmer: string")
    for words in (
        ("validate",),
        (
            "check",
            "doctor",
        ),
    ):
        shown = person.call(*words).output
        assert "[LANDED_SCHEMA] `o1.csv` has column customer, which is not configured" in shown
        assert "Did you mean `customer` by column `custmer`?" in shown
    advice = advice_of(fails(person.call("step", "ingest", "orders"), "LANDED_SCHEMA"))
    [alias] = [text for text in CODED.findall(advice) if "aliases" in text]
    person.set(alias, below="columns")
    assert "LANDED_SCHEMA" not in person.call("validate").output
    assert [row["custmer"] for row in person.rows()] == ["Ann", "Bob"]


def test_29_a_folder_has_the_column(person: Person) -> None:
    person.edit("      customer: string\n", "      customer: string\n      dt: date\n")
    os.rename("landing/orders/o1.csv", "landing/o1.csv")
    person.land("orders/dt=2026-11-01/o1.csv", HEAD + ROWS)
    advice = advice_of(fails(person.call("step", "ingest", "orders"), "LANDED_SCHEMA"))
    assert "default" not in advice
    [setting] = [text for text in CODED.findall(advice) if text.startswith("folder_columns")]
    person.set(setting, below="source")
    assert [row["dt"] for row in person.rows()] == ["2026-11-01"] * 2


def test_30_names_of_files_that_no_log_reads_and_rows_that_would_be_refused(person: Person) -> None:
    os.rename("landing/lines/l1.jsonl", "landing/lines/l1.xlsx")
    person.land("orders/o1.csv", HEAD + ROWS.replace("2.50", "2.5.0"))
    for words in (
        ("validate",),
        (
            "check",
            "doctor",
        ),
    ):
        shown = person.call(*words).output
        assert "[FOREIGN_FILE] The name of `l1.xlsx` does not end in" in shown
        assert "a run would refuse 1 of 2 records of `o1.csv`. The first is number 2: [VALUE_INVALID]" in shown
