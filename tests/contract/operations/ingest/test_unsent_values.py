"""A placeholder of a value that was not sent is never published: each decoder keeps the row's value, or refuses."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from tidefold.cli.app import app

DEFAULT = "__debezium_unavailable_value"
DECLARED = "__debezium.unavailable.value.placeholder"
Row = dict[str, Any]


def in_base64(number: int) -> str:
    return base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()


def forms(text: str) -> dict[str, tuple[Any, Any, Any]]:
    """For each form of a placeholder: the column, a value that was sent, and the placeholder."""
    data = text.encode()
    coded, codes = base64.b64encode(data).decode(), [byte - 256 * (byte > 127) for byte in data]
    string, array = "string", "array<{}>".format
    made: dict[str, tuple[Any, Any, Any]] = {
        "plain": (string, "large", text),
        "base64_as_text": (string, "bGFyZ2U=", coded),
        "hex_as_text": (string, "6c61", data.hex()),
        "bytes": ("binary", "bGFyZ2U=", coded),
        "hexed": ({"type": "binary", "encoding": "hex"}, "6c61", data.hex()),
        "json_text": ({"type": string, "encoding": "json"}, {"a": 1}, text),
        "map": ({"type": string, "encoding": "json"}, {"a": "b"}, {text: text}),
        "json_numbers": ({"type": string, "encoding": "json"}, [1, 2], codes),
        "decimal": ({"type": "decimal(38,2)", "encoding": "base64(2)"}, in_base64(12345), coded),
        "decimal_text": ({"type": "decimal(38,2)", "encoding": "string"}, "123.45", text),
        "variable": (
            {"type": string, "encoding": "decimal"},
            {"scale": 1, "value": "BdI="},
            {"scale": 0, "value": coded},
        ),
        "texts": (array(string), ["a", None], [text]),
        "blobs": (array("binary"), ["bGFyZ2U="], [coded]),
        "ints": (array("int"), [1, 2], codes),
        "longs": (array("long"), [1, 2], codes),
        "doubles": (array("double"), [1.5, 2.5], [float(code) for code in codes]),
        "floats": (array("float"), [1.5, 2.5], codes),
        "days": (array("date"), [1, 2], codes),
        "instants": (array("timestamp"), [1, 2], codes),
        "iso_days": ({"type": array("date"), "encoding": "iso"}, ["2026-01-31"], [text]),
        "numbers": ({"type": array("decimal(9,2)"), "encoding": "number"}, [1.5, 2.5], [code + 0.0 for code in codes]),
        "scaled": (
            {"type": array("decimal(9,2)"), "encoding": "base64(2)"},
            [in_base64(150), in_base64(250)],
            [in_base64(code * 100) for code in codes],
        ),
        "number_texts": (
            {"type": array("decimal(9,2)"), "encoding": "string"},
            ["1.50", "2.50"],
            [f"{code}.00" for code in codes],
        ),
    }
    if text == DEFAULT:
        made["uuids"] = (array(string), ["a"], ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"])
    return made


@dataclass(frozen=True)
class Case:
    """A log. `land`: writes its first part or its second. `keeps`: a row keeps a value that was not sent."""

    name: str
    config: Row
    land: Callable[[Path, int], None]
    keeps: bool


def rows_of(given: Mapping[str, tuple[Any, Any, Any]], part: int) -> list[Row]:
    """Part 0: for each form a row as it was sent. Part 1: an update of each, which does not send the form's column."""
    sent = {name: value for name, (_, value, _) in given.items()}
    unsent = [{name: value} if part else {} for name, (_, _, value) in given.items()]
    return [{"id": i, "name": "ab"[part], **sent, **one} for i, one in enumerate(unsent)]


def envelope(part: int, offset: int, row: Row) -> Row:
    source = {"sequence": f'[null,"{100 + offset}"]', "ts_us": offset, "snapshot": "false"}
    return {"op": "cu"[part], "after": row, "source": source}


def unwrapped(part: int, offset: int, row: Row) -> Row:
    return row


def declared(part: int, offset: int, row: Row) -> Row:
    """An envelope with a schema in which the column declares its placeholder."""
    text = {"field": "plain", "type": "string", "parameters": {DECLARED: "whatever it is"}}
    row = {"id": row["id"], "name": row["name"], "plain": "whatever it is" if part else row["plain"]}
    fields = [{"field": "id", "type": "int64"}, {"field": "name", "type": "string"}, text]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    return {"schema": schema, "payload": envelope(part, offset, row)}


def of_state(part: int, offset: int, row: Row) -> Row:
    return {"op": "set", "key": {"id": row.pop("id")}, "value": row}


def kafka(
    name: str, source: Row, wrap: Callable[[int, int, Row], Row], text: str, only: str = "", **config: Any
) -> Case:
    """A log of records of a Kafka sink. `only`: the one form that its rows have."""
    given = {form: one for form, one in forms(text).items() if only in ("", form)}

    def land(folder: Path, part: int) -> None:
        rows, start = rows_of(given, part), part * len(given)
        lines = [
            {"topic": name, "partition": 0, "offset": start + i, "key": {"id": row["id"]}}
            | {"value": wrap(part, start + i, row)}
            for i, row in enumerate(rows)
        ]
        (folder / f"{name}+0+{start:010d}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    columns = {"id": "long", "name": "string", **{form: column for form, (column, _, _) in given.items()}}
    placeholder = {} if text == DEFAULT else {"placeholder": text}
    source = {**source, **placeholder, "path": f"landing/{name}"}
    key = {} if config.get("merge") == "append" else {"key": ["id"]}
    engine = config.get("merge", "last")
    return Case(
        name,
        {"source": source, "columns": columns, **key, **config},
        land,
        engine in ("last", "partial") and source["format"] != "state-json",
    )


def table_of(part: int, *, arrays: bool) -> pa.Table:
    """Rows of a file. Part 1 does not send one column of each."""
    sent: Row = {"plain": "large", "base64_as_text": "bGFyZ2U=", "data": b"large"}
    sent |= {"doubles": [1.5, 2.5], "days": [date(1970, 1, 2)], "texts": ["a"]} if arrays else {}
    codes = list(DEFAULT.encode())
    unsent = {"plain": DEFAULT, "base64_as_text": base64.b64encode(DEFAULT.encode()).decode(), "data": DEFAULT.encode()}
    unsent |= {"doubles": [float(c) for c in codes], "days": [date(1970, 1, 1) + timedelta(c) for c in codes]}
    unsent |= {"texts": [DEFAULT]}
    rows = [
        {"id": i, "name": "ab"[part], "n": part * len(sent) + i, **sent, **({name: unsent[name]} if part else {})}
        for i, name in enumerate(sent)
    ]
    return pa.Table.from_pylist(rows)


def land_csv(folder: Path, part: int) -> None:
    table = table_of(part, arrays=False).drop_columns(["data"]).slice(0, 2)
    pc.write_csv(table, folder / f"rows-2026-01-0{part + 1}.csv")


def land_parquet(folder: Path, part: int) -> None:
    pq.write_table(table_of(part, arrays=True), folder / f"rows-{part}.parquet")


def land_delta(folder: Path, part: int) -> None:
    table = table_of(part, arrays=True)
    write_deltalake(folder, table, mode="overwrite", configuration={"delta.enableChangeDataFeed": "true"})


def files(name: str, source: Row, land: Callable[[Path, int], None], **config: Any) -> Case:
    columns = {"id": "long", "name": "string", "n": "long", "plain": "string", "base64_as_text": "string"}
    if land is not land_csv:
        columns |= {"data": "binary", "doubles": "array<double>", "days": "array<date>", "texts": "array<string>"}
    place = {"table" if source["format"].startswith("delta") else "path": f"landing/{name}"}
    return Case(name, {"source": {**source, **place}, "key": ["id"], "columns": columns, **config}, land, keeps=False)


CUSTOM = "not sent: Ü"
JSON, DEBEZIUM = {"format": "json"}, {"format": "debezium-json", "connector": "postgresql"}
ENGINES = ("first", "history", "append", "partial", {"engine": "aggregate", "aggregates": {"name": "last"}})
CASES = [
    *(kafka(f"json_{i}", JSON, unwrapped, text) for i, text in enumerate((DEFAULT, CUSTOM))),
    *(kafka(f"debezium_{i}", DEBEZIUM, envelope, text) for i, text in enumerate((DEFAULT, CUSTOM))),
    *(kafka(f"json_engine_{i}", JSON, unwrapped, DEFAULT, "plain", merge=one) for i, one in enumerate(ENGINES)),
    *(kafka(f"engine_{i}", DEBEZIUM, envelope, DEFAULT, "plain", merge=one) for i, one in enumerate(ENGINES)),
    kafka("declared", DEBEZIUM, declared, DEFAULT, "plain"),
    kafka("state", {"format": "state-json", "kind": "value", "state_key": ["id"]}, of_state, DEFAULT, "plain"),
    files("csv", {"format": "csv"}, land_csv, order=["n"]),
    files("extracts", {"format": "csv", "extract": "full"}, land_csv),
    files("parquet", {"format": "parquet"}, land_parquet, order=["n"]),
    files("feed", {"format": "delta-cdf"}, land_delta),
    files("versions", {"format": "delta"}, land_delta),
]


def test_no_placeholder_is_published_whatever_the_format_the_form_and_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: `format: json` published the placeholder of an unwrapped record, and a history had null for it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    logs = {case.name: {**case.config, "buckets": 1} for case in CASES}
    (tmp_path / "tidefold.yaml").write_text(json.dumps({"version": 1, "store": "store", "logs": logs}))
    before: dict[str, list[Row]] = {}
    for part in (0, 1):
        for case in CASES:
            folder = tmp_path / "landing" / case.name
            folder.mkdir(parents=True, exist_ok=True)
            case.land(folder, part)
        done = CliRunner().invoke(app, ["run"])
        assert part or done.exit_code == 0, done.output
        before = before or {case.name: read_table(tmp_path, case.name) for case in CASES}
    listed = json.loads(CliRunner().invoke(app, ["quarantine", "list", "--format", "json"]).stdout)["refused"]
    refused = {one["log"]: (one["reason"], one["count"]) for one in listed}
    for case in CASES:
        rows = before[case.name]
        name = "b" if case.keeps else "a"
        assert read_table(tmp_path, case.name) == [row | {"name": name} for row in rows], case.name
        assert refused.get(case.name) == (None if case.keeps else ("UNAVAILABLE_VALUE", len(rows))), case.name


MARKS = ({"__deleted": "false"}, {"__op": "u", "__lsn": 7}, {"__source_ts_ms": 1_795_226_336_485}, {})


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
@pytest.mark.parametrize("marks", MARKS)
def test_init_says_what_unwrapped_records_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, marks: Row
) -> None:
    """Also by the placeholder alone. Fault: `init` proposed such rows without a word."""
    monkeypatch.chdir(tmp_path)
    texts = ["large", DEFAULT, "x"]
    rows = [{"id": i, "body": texts[i], "n": i, **marks} for i in range(3)]
    folder = tmp_path / "landing/docs"
    folder.mkdir(parents=True)
    if ending == "csv":
        pc.write_csv(pa.Table.from_pylist(rows), folder / "docs.csv")
    else:
        lines = [{"topic": "docs", "partition": 0, "offset": i, "value": row} for i, row in enumerate(rows)]
        (folder / "docs+0+0000000000.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    said = CliRunner().invoke(app, ["init", "landing"]).stderr
    assert "look at docs: " in said
    assert "ExtractNewRecordState" in said
    assert ("(tombstones)" in said) == ("__deleted" not in marks and "__op" not in marks)
    assert ("keeps the value" in said) == (ending == "jsonl")
    assert "truncates" in (tmp_path / "tidefold.yaml").read_text()


def read_table(root: Path, log: str) -> list[Row]:
    rows = DeltaTable(root / "store/tables" / log).to_pyarrow_table().to_pylist()
    plain = [{name: value for name, value in row.items() if not name.startswith("_")} for row in rows]
    return sorted(plain, key=lambda row: row["id"])
