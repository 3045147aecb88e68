"""Keys and values in Confluent's Avro, as a sink lands them in base64: the schemas are files in a folder."""

from __future__ import annotations

import base64
import io
import json
import struct
from pathlib import Path
from typing import Any

import fastavro
import pytest

from support.landing import TOPIC, land, make_landing, state_of, take
from tidefold.errors import InvalidInputError
from tidefold.operations.inspect.read import ReadRequest, What, read_rows
from tidefold.operations.outcome import Status
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.quarantine.retry import retry
from tidefold.sources.debezium.confluent import SchemaFolder
from tidefold.wiring import open_pipeline

KEY = {"type": "record", "name": "Key", "namespace": "shop.items", "fields": [{"name": "id", "type": "int"}]}
SOURCE = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium",
    "fields": [
        {"name": "snapshot", "type": ["null", "string"], "default": None},
        {"name": "sequence", "type": ["null", "string"], "default": None},
        {"name": "ts_ms", "type": "long"},
    ],
}
DECIMAL = {
    "type": "bytes",
    "logicalType": "decimal",
    "precision": 10,
    "scale": 2,
    "connect.name": "org.apache.kafka.connect.data.Decimal",
    "connect.parameters": {"scale": "2"},
}
COLUMNS = "{id: int, text: string, price: 'decimal(10,2)', f: double}"


def envelope(*more: dict[str, Any]) -> dict[str, Any]:
    fields = [
        {"name": "id", "type": "int"},
        {"name": "text", "type": ["null", "string"], "default": None},
        {"name": "price", "type": ["null", DECIMAL], "default": None},
        {"name": "f", "type": ["null", "double"], "default": None},
        *more,
    ]
    row = {"type": "record", "name": "Value", "namespace": "shop.items", "fields": fields}
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.items",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "shop.items.Value"], "default": None},
            {"name": "source", "type": SOURCE},
            {"name": "op", "type": "string"},
        ],
    }


SCHEMAS: dict[int, dict[str, Any]] = {
    7: KEY,
    8: envelope(),
    9: envelope({"name": "extra", "type": "int", "default": 0}),
}


def confluent(number: int, value: dict[str, Any]) -> str:
    out = io.BytesIO(struct.pack(">bI", 0, number))
    out.seek(5)
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMAS[number]), value)
    return base64.b64encode(out.getvalue()).decode()


def line(offset: int, item: int, op: str = "c", schema: int = 8, **row: Any) -> dict[str, Any]:
    whole = {"id": item, "text": f"t{offset}", "price": b"\x04\xe2", "f": None, **row}
    source = {"snapshot": "false", "sequence": f'[null,"{1000 + offset}"]', "ts_ms": 1}
    value = {"before": whole if op == "d" else None, "after": None if op == "d" else whole, "source": source, "op": op}
    key, text = confluent(7, {"id": item}), confluent(schema, value)
    return {"topic": TOPIC, "partition": 0, "offset": offset, "key": key, "value": text}


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    folder = tmp_path / "schemas"
    folder.mkdir()
    (folder / "7.avsc").write_text(json.dumps(KEY))
    answer = {"subject": "shop.items-value", "version": 1, "id": 8, "schema": json.dumps(SCHEMAS[8])}
    (folder / "shop.items-value.json").write_text(json.dumps(answer))
    return make_landing(tmp_path, COLUMNS, more=", schemas: schemas")


def rows(pipeline: Pipeline) -> dict[int, dict[str, Any]]:
    _, batches = read_rows(pipeline, "items", ReadRequest(What.LIVE))
    return {row["id"]: row for batch in batches for row in batch.to_pylist()}


def test_records_have_the_types_of_their_schema(pipeline: Pipeline, tmp_path: Path) -> None:
    gone = {"topic": TOPIC, "partition": 0, "offset": 3, "key": confluent(7, {"id": 2}), "value": None}
    land(tmp_path, 0, [line(0, 1, f=float("nan")), line(1, 2), line(2, 2, "d"), gone, line(4, 3, price=None)])
    outcome = take(pipeline)
    assert (outcome.facts["refused"], outcome.facts["changes"], outcome.facts["tombstones"]) == ({}, 4, 1)
    found = rows(pipeline)
    assert {item: str(row["price"]) for item, row in found.items()} == {1: "12.50", 3: "None"}
    assert found[1]["f"] != found[1]["f"]


def test_a_value_that_was_not_sent_keeps_the_former_one(pipeline: Pipeline, tmp_path: Path) -> None:
    """Base64 hides the placeholder from a search of the file."""
    land(tmp_path, 0, [line(0, 1), line(1, 1, "u", text="__debezium_unavailable_value", price=None)])
    take(pipeline)
    assert (rows(pipeline)[1]["text"], rows(pipeline)[1]["price"]) == ("t0", None)


def test_a_schema_that_is_not_there_yet_stops_the_log_in_order(pipeline: Pipeline, tmp_path: Path) -> None:
    path = tmp_path / "tidefold.yaml"
    path.write_text(path.read_text().replace("    on_bad_record: quarantine\n", "    ignored: [extra]\n"))
    pipeline = open_pipeline(path)
    land(tmp_path, 0, [line(0, 1), line(1, 1, "u", 9, extra=5), line(2, 2)])
    outcome = take(pipeline)
    assert (outcome.status, outcome.error_code) == (Status.STOPPED, "SCHEMA_UNKNOWN")
    assert list(rows(pipeline)) == [1]
    (tmp_path / "schemas/9.avsc").write_text(json.dumps(SCHEMAS[9]))
    assert take(pipeline).error_code is None
    assert {item: row["text"] for item, row in rows(pipeline).items()} == {1: "t1", 2: "t2"}


@pytest.mark.parametrize(
    ("value", "why"),
    [("not base64!", "not base64"), ("AQAAAAg=", "does not begin"), (confluent(7, {"id": 1})[:4], "does not begin")],
)
def test_bytes_of_another_form_are_refused(value: str, why: str, pipeline: Pipeline, tmp_path: Path) -> None:
    land(tmp_path, 0, [{**line(0, 1), "value": value}, line(1, 2)])
    assert take(pipeline).facts["refused"] == {"NOT_A_RECORD": 1}
    entry = json.loads(pipeline.store.read(state_of(pipeline).landed[0].quarantine or ""))
    assert why in entry["detail"]
    assert retry(pipeline, "items").facts["staying"] == 1


def test_bytes_that_do_not_fit_their_schema_are_refused(pipeline: Pipeline, tmp_path: Path) -> None:
    whole = base64.b64decode(line(0, 1)["value"])
    for offset, data in enumerate((whole[:-3], whole + b"x")):
        land(tmp_path, offset, [{**line(offset, 1), "value": base64.b64encode(data).decode()}])
    assert take(pipeline).facts["refused"] == {"NOT_A_RECORD": 2}


@pytest.mark.parametrize(("name", "text"), [("x.avsc", "{}"), ("8.avsc", "no json"), ("8.avsc", '{"type": "odd"}')])
def test_a_file_that_is_no_schema_is_named(name: str, text: str, pipeline: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "schemas/shop.items-value.json").unlink()
    (tmp_path / "schemas" / name).write_text(text)
    land(tmp_path, 0, [line(0, 1)])
    outcome = take(pipeline)
    assert outcome.error_code == "SCHEMA_FILE"
    assert not pipeline.ledger("items").exists()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("7.avsc", b"\xff"),
        ("7.avsc", b"[" * 100_000),
        ("big.json", json.dumps({"id": "9" * 5000, "schema": "{}"}).encode()),
        ("big.json", b'{"id": ' + b"9" * 5000 + b"}"),
    ],
)
def test_bytes_that_are_no_text_and_endless_ids_are_named(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InvalidInputError, match=f"`{name}` in") as caught:
        SchemaFolder(str(tmp_path)).find(7)
    assert caught.value.code == "SCHEMA_FILE"
