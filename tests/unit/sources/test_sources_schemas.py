"""What stands in for values that were not sent, and Avro schemas in the words of Kafka Connect."""

from __future__ import annotations

from typing import Any

import pytest

from tidefold.domain.table.table_spec import Column, TableSpec
from tidefold.sources.debezium.avro_file import connect_words
from tidefold.sources.debezium.connect_schema import columns_by
from tidefold.sources.records.unavailable_values import DECLARED, placeholder_of

TEXT = "__debezium_unavailable_value"
BASE64 = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="


@pytest.mark.parametrize(
    "value",
    [
        *(TEXT, TEXT.encode(), BASE64, TEXT.encode().hex(), TEXT.encode().hex().upper()),
        f'{{"{TEXT}":"{TEXT}"}}',
        *([TEXT], [TEXT.encode()], [BASE64], list(TEXT.encode())),
        ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],  # The UUID that Java makes of the text.
    ],
)
def test_every_stand_in_is_known(value: Any) -> None:
    assert placeholder_of(TEXT).is_in(value)


@pytest.mark.parametrize("value", [None, "", 1, 1.5, True, [], [None], [TEXT, TEXT], TEXT[:-1], [1, 2], b"", {}])
def test_other_values_are_values(value: Any) -> None:
    assert not placeholder_of(TEXT).is_in(value)


@pytest.mark.parametrize("value", [[0] * 28, ["Infinity"] * 28, ["sNaN"] * 28, [None] * 28, [True] * 28])
def test_a_long_array_of_other_values_is_a_value(value: Any) -> None:
    assert not placeholder_of(TEXT).is_in(value)


@pytest.mark.parametrize(
    ("value", "declared"),
    [
        ("gone", "gone"),
        (b"gone", "Z29uZQ=="),
        (95, "95"),
        ([9, 5], "[9,5]"),
        (['a"b'], '["a\\"b"]'),
        ({"g": "g"}, '{"g":"g"}'),
    ],
)
def test_what_a_schema_declares_is_a_stand_in_too(value: Any, declared: str) -> None:
    """The forms are those of debezium/debezium#7934."""
    assert placeholder_of(TEXT).is_in(value, declared)
    assert not placeholder_of(TEXT).is_in(value)
    assert not placeholder_of(TEXT).is_in(None, declared)


@pytest.mark.parametrize(
    ("type_", "written"),
    [
        ("string", f'"{TEXT}"'),
        ("string", f'"{BASE64}"'),
        ("binary", f'"{BASE64}"'),
        ("binary", f'"{TEXT.encode().hex()}"'),
        ("string", f'"{TEXT.encode().hex()}"'),
        ("long", f'"parameters": {{"{DECLARED}": "95"}}'),
        ("array<double>", str([float(code) for code in TEXT.encode()])),
        ("array<date>", str(list(TEXT.encode()))),
        ("array<decimal(9,2)>", '["JRw=", "JRw="]'),
        ("array<string>", f'["{TEXT}"]'),
        ("array<binary>", f'["{BASE64}"]'),
        ("array<int>", str(list(TEXT.encode()))),
        ("array<long>", str(list(TEXT.encode())).replace(" ", "")),
    ],
)
def test_a_text_with_a_stand_in_has_a_mark(type_: str, written: str) -> None:
    """Only texts with a mark are searched value by value."""
    shape = TableSpec(("id",), (Column("id", "long"), Column("c", type_)), "postgresql", 1, 1)
    assert any(mark in written.encode() for mark in placeholder_of(TEXT).marks(shape))


def fields(*given: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "namespace": "a.b", "fields": list(given)}


def words(kind: Any) -> dict[str, Any]:
    [field] = connect_words(fields({"name": "f", "type": kind}))["fields"]
    assert field.pop("field") == "f"
    return dict(field)


DECIMAL = {"name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "3"}}


@pytest.mark.parametrize(
    ("avro", "expected"),
    [
        ("int", {"type": "int32"}),
        (["null", "long"], {"type": "int64", "optional": True}),
        (["long", "null"], {"type": "int64", "optional": True}),
        (["null", "long", "string"], {"type": "union", "optional": True}),
        ({"type": "int", "connect.type": "int16"}, {"type": "int16"}),
        ({"type": {"type": "long"}, "connect.name": "n"}, {"type": "int64", "name": "n"}),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, {"type": "string"}),
        ({"type": "fixed", "name": "F", "size": 4}, {"type": "bytes"}),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
            {"type": "bytes", **DECIMAL, "parameters": {"scale": "3", "connect.decimal.precision": "9"}},
        ),
        (
            {"type": "bytes", "connect.name": DECIMAL["name"], "connect.parameters": {"scale": "3"}},
            {"type": "bytes", **DECIMAL},
        ),
        # A converter that does not know the precision writes 64.
        (
            {
                "type": "bytes",
                "connect.name": DECIMAL["name"],
                "connect.parameters": {"scale": "3"},
                "logicalType": "decimal",
                "precision": 64,
                "scale": 3,
            },
            {"type": "bytes", **DECIMAL},
        ),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        ),
        ({"type": "array", "items": ["null", "string"]}, {"type": "array", "items": {"type": "string"}}),
        ({"type": "map", "values": "string"}, {"type": "map"}),
        ("unknown.Name", {"type": "unknown.Name"}),
        (7, {"type": "7"}),
    ],
)
def test_avro_in_the_words_of_kafka_connect(avro: Any, expected: dict[str, Any]) -> None:
    assert words(avro) == expected


def test_named_types_are_known_by_their_name_within_and_beyond_their_namespace() -> None:
    inner = {"type": "record", "name": "Value", "fields": [{"name": "x", "type": "int"}]}
    schema = fields(
        {"name": "before", "type": ["null", inner]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "other", "type": "a.b.Value"},
    )
    found = {f["field"]: f["fields"] for f in connect_words(schema)["fields"]}
    assert found == {name: [{"type": "int32", "field": "x"}] for name in ("before", "after", "other")}


def test_a_schema_that_holds_itself_has_an_end() -> None:
    deep: Any = "int"
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    assert words(deep)["type"] == "array"


def test_a_new_column_of_64_bits_is_proposed_and_added_as_long() -> None:
    """Fault: it was added as `int`, which refuses every value beyond 32 bits."""
    fields = [{"field": name, "type": name} for name in ("int8", "int16", "int32", "int64", "float", "double")]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    expected = {"int8": "int", "int16": "int", "int32": "int", "int64": "long", "float": "float", "double": "double"}
    assert {name: column.type for name, column in columns_by(schema).items()} == expected
