"""Records whose schema is in a registry: what lands of them, and each way in which a schema cannot be had."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from support.avro_capture import AVRO, SentRecord, read_topic
from support.schema_registry import SchemaRegistry, serve_schemas
from tidefold.errors import InvalidInputError, NotFoundError, StorageError, TidefoldError
from tidefold.sources.kafka import registry as registry_module
from tidefold.sources.kafka.lines import make_renderer
from tidefold.sources.kafka.registry import Registry

_ROW: dict[str, Any] = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}], "default": None},
        {"name": "rate", "type": "double"},
        {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["A", "B"]}},
        {"name": "more", "type": {"type": "map", "values": {"type": "array", "items": ["null", "float"]}}},
        {"name": "inner", "type": {"type": "record", "name": "inner", "fields": [{"name": "x", "type": "int"}]}},
    ],
}
_PLAIN = {**_ROW, "fields": [{"name": "id", "type": "long"}, {"name": "amount", "type": "bytes"}, *_ROW["fields"][2:]]}
_VALUE = {
    "id": 2**53 + 1, "amount": (-12345).to_bytes(2, "big", signed=True), "at": 253_402_300_799_999_999,
    "rate": float("nan"), "kind": "B", "more": {"a": [None, float("-inf"), 0.5]}, "inner": {"x": 1},
}  # fmt: skip


def _pack(number: int, value: Any = None, schema: Any = _PLAIN) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, json.loads(json.dumps(schema)), _VALUE if value is None else value)
    return b"\0" + number.to_bytes(4, "big") + stream.getvalue()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SchemaRegistry]:
    monkeypatch.setattr(registry_module, "_PAUSES", (0, 0))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    schemas: dict[int, Any] = {
        7: {"schema": json.dumps(_ROW)},
        8: {"schema": '"long"', "schemaType": "AVRO", "references": []},
        9: {"schema": '{"type": "object"}', "schemaType": "JSON"},
        10: {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"},
        11: {"schema": '{"type": "record", "name": "a", "fields": [{"name": "b", "type": "c"}]}', "references": [{}]},
        12: {"schema": '{"type": "record", "name": "a", "fields": [{"name": "b", "type": "c"}]}'},
        13: {"schema": "no json"},
        14: ["no object"],
        15: {"schema": '{"type": "record", "name": "a", "fields": [{"name": "b", "type": "a"}]}'},
    }
    with serve_schemas(schemas) as serving:
        yield serving


def _land(registry: Registry | None, value: bytes | None, key: bytes | None = None) -> dict[str, Any]:
    line = make_renderer("t", 0, registry)(SentRecord(5, key, value))
    assert line.count(b"\n") == 1
    landed: dict[str, Any] = json.loads(line)
    return landed


def test_a_record_lands_as_a_json_converter_with_schemas_writes_it(server: SchemaRegistry) -> None:
    registry = Registry(server.url + "/", Path(), {})
    landed = _land(registry, _pack(7), _pack(8, 4, "long"))
    assert landed["key"] == 4
    assert landed["value"]["payload"] == {
        "id": 2**53 + 1, "amount": "z8c=", "at": 253_402_300_799_999_999, "rate": "NaN", "kind": "B",
        "more": {"a": [None, "-Infinity", 0.5]}, "inner": {"x": 1},
    }  # fmt: skip
    told = {field["field"]: field for field in landed["value"]["schema"]["fields"]}
    assert told["amount"]["parameters"] == {"scale": "2", "connect.decimal.precision": "9"}
    assert told["at"]["name"] == "io.debezium.time.MicroTimestamp"
    # A registry is asked once for each schema.
    assert _land(registry, _pack(7)) | {"key": 4} == landed
    assert server.asked == ["/schemas/ids/8", "/schemas/ids/7"]
    assert _land(registry, b'\0\0\0\0\x09{"id": 1}')["value"] == {"schema": None, "payload": {"id": 1}}


def test_numbers_in_maps_keep_their_names(server: SchemaRegistry) -> None:
    maps = {"type": "record", "name": "m", "fields": [{"name": "m", "type": {"type": "map", "values": "double"}}]}
    server.schemas[20] = {"schema": json.dumps(maps)}
    landed = _land(Registry(server.url, Path(), {}), _pack(20, {"m": {"a": float("nan")}}, maps))
    assert landed["value"]["payload"] == {"m": {"a": "NaN"}}


@pytest.mark.parametrize(
    "value",
    [
        b'\0\0\0\0\x09null},"offset":99999,"x":{"a":1',
        b"\0\0\0\0\x09",
        b"\0\0\0",
        _pack(7)[:-1],
        _pack(7) + b"\0",
        b"\0\0\0\0\x07" + b"\xff" * 30,
    ],
)
def test_what_is_not_of_its_schema_lands_as_a_text(server: SchemaRegistry, value: bytes) -> None:
    landed = _land(Registry(server.url, Path(), {}), value)
    assert isinstance(landed["value"], str)
    assert landed["offset"] == 5


@pytest.mark.parametrize("value", [b'{"id":1}', b"\xff", b"text"])
def test_other_records_land_as_without_a_registry(server: SchemaRegistry, value: bytes) -> None:
    assert _land(Registry(server.url, Path(), {}), value) == _land(None, value)
    assert not server.asked


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (99, "SCHEMA_MISSING", "no schema with the id 99"),
        (10, "SCHEMA_UNUSABLE", "PROTOBUF"),
        (11, "SCHEMA_UNUSABLE", "refers to other schemas"),
        (12, "SCHEMA_UNUSABLE", "c"),
        (13, "SCHEMA_UNUSABLE", "Expecting value"),
        (14, "SCHEMA_UNUSABLE", "list"),
        (15, "SCHEMA_UNUSABLE", "contains itself"),
    ],
)
def test_a_schema_that_cannot_be_used_is_named(server: SchemaRegistry, number: int, code: str, words: str) -> None:
    with pytest.raises(TidefoldError, match=words) as refused:
        _land(Registry(server.url, Path(), {}), _pack(number))
    assert refused.value.code == code
    assert str(number) in str(refused.value)


def test_a_record_of_a_registry_that_is_not_configured() -> None:
    with pytest.raises(InvalidInputError, match="offset 5") as refused:
        _land(None, _pack(7))
    assert refused.value.code == "KAFKA_REGISTRY"


def test_a_registry_is_asked_with_patience(server: SchemaRegistry) -> None:
    server.failing = [(503, {}, b""), (429, {}, b"")]
    Registry(server.url, Path(), {}).check()
    server.failing = [(503, {}, b"")] * 3
    with pytest.raises(StorageError, match="503"):
        Registry(server.url, Path(), {}).check()
    assert server.asked == ["/subjects"] * 6
    with pytest.raises(StorageError, match="refused") as refused:
        Registry("http://127.0.0.1:1", Path(), {}).check()
    assert refused.value.code == "REGISTRY_UNREADABLE"


@pytest.mark.parametrize(
    ("answer", "words"),
    [((404, {}, b"<html>"), "404"), ((404, {}, b'{"error_code":1}'), "nothing"), ((200, {}, b"<html>"), "no JSON")],
)
def test_what_is_no_registry_is_named(server: SchemaRegistry, answer: Any, words: str) -> None:
    server.failing = [answer]
    with pytest.raises(StorageError, match=words) as refused:
        Registry(server.url, Path(), {}).check()
    assert refused.value.hint
    assert "ccompat" in refused.value.hint


def test_the_password_goes_to_the_registry_alone(server: SchemaRegistry) -> None:
    server.user = "reader:s3cr3t"
    for settings in ({}, {"schema.registry.basic.auth.user.info": "reader:wr0ng"}):
        with pytest.raises(StorageError, match="401") as refused:
            Registry(server.url, Path(), settings).check()
        assert "wr0ng" not in f"{refused.value} {refused.value.hint}"
    registry = Registry(server.url, Path(), {"schema.registry.basic.auth.user.info": server.user})
    registry.check()
    with serve_schemas({}) as other:
        server.failing = [(302, {"Location": f"{other.url}/subjects"}, b"")]
        with pytest.raises(StorageError, match="302"):
            registry.check()
        assert not other.asked


def test_a_folder_is_a_registry(tmp_path: Path) -> None:
    assert [_land(Registry("schemas", AVRO, {}), one.value())["value"]["payload"]["op"] for one in _first()] == ["r"]
    registry = Registry("none", tmp_path, {})
    with pytest.raises(StorageError, match="nothing is there"):
        registry.check()
    with pytest.raises(NotFoundError, match="id 7"):
        _land(registry, _pack(7))


def _first() -> Iterator[SentRecord]:
    yield next(read_topic("bank.public.types"))
