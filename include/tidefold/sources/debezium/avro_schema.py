"""An Avro schema in the words of Kafka Connect: what `connect_schema` asks of the schema beside a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidefold.sources.debezium.connect_schema import PRECISION

_CONNECT, _TIME = "org.apache.kafka.connect.data.", "io.debezium.time."
_PRIMITIVE = {"int": "int32", "long": "int64", "enum": "string", "fixed": "bytes"}
# For who writes Avro by other means than Kafka Connect.
_LOGICAL = {
    "decimal": f"{_CONNECT}Decimal",
    "date": f"{_CONNECT}Date",
    "timestamp-millis": f"{_CONNECT}Timestamp",
    "timestamp-micros": f"{_TIME}MicroTimestamp",
    "timestamp-nanos": f"{_TIME}NanoTimestamp",
    "local-timestamp-millis": f"{_CONNECT}Timestamp",
    "local-timestamp-micros": f"{_TIME}MicroTimestamp",
}
_DEEPEST = 32
Schema = dict[str, Any]


def connect_words(schema: Any) -> Schema:
    """The schema of records of a file."""
    return _Reading({}).words(schema, "", 0)


class _Reading:
    """Named types are defined where they first stand, and named from then on."""

    def __init__(self, named: dict[str, Schema]) -> None:
        self._named = named

    def words(self, schema: Any, space: str, depth: int) -> Schema:
        if depth > _DEEPEST:
            return {"type": "nested too deep"}
        if isinstance(schema, list):
            kinds = [one for one in schema if one != "null"]
            return self.words(kinds[0], space, depth + 1) if len(kinds) == 1 else {"type": "union"}
        if isinstance(schema, dict):
            return self._read_type(schema, space, depth)
        text = str(schema)
        return self._named.get(_full(text, space)) or self._named.get(text) or {"type": _PRIMITIVE.get(text, text)}

    def _read_type(self, schema: Mapping[str, Any], space: str, depth: int) -> Schema:
        kind = schema.get("type")
        if not isinstance(kind, str):
            return self.words(kind, space, depth + 1) | _name(schema)
        found: Schema = {"type": _PRIMITIVE.get(kind, kind)} | _name(schema)
        if kind in ("record", "enum", "fixed"):
            full = _full(str(schema.get("name")), str(schema.get("namespace", space)))
            space = full.rpartition(".")[0]
            self._named[full] = found
        if kind == "record":
            found["type"] = "struct"
            given = schema.get("fields")
            fields = [f for f in given if isinstance(f, dict)] if isinstance(given, list) else []
            found["fields"] = [{**self.words(f.get("type"), space, depth + 1), "field": f.get("name")} for f in fields]
        elif kind == "array":
            found["items"] = self.words(schema.get("items"), space, depth + 1)
        elif kind not in _PRIMITIVE and kind not in ("boolean", "float", "double", "string", "bytes", "map"):
            return self.words(kind, space, depth + 1) | _name(schema)
        return found


def _name(schema: Mapping[str, Any]) -> Schema:
    name = schema.get("connect.name") or _LOGICAL.get(str(schema.get("logicalType")))
    scale = schema.get("scale")
    if scale is None and isinstance(parameters := schema.get("connect.parameters"), dict):
        scale = parameters.get("scale")
    named: Schema = {"name": str(name)} if name else {}
    if name and str(name).endswith(".Decimal"):
        digits = {PRECISION: str(schema["precision"])} if "precision" in schema else {}
        named |= {"parameters": {"scale": str(scale or 0), **digits}}
    kind = schema.get("connect.type")
    return named | ({"type": str(kind)} if kind in ("int8", "int16") else {})


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"
