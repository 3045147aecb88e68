"""Types of columns as the schema beside a record proposes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidefold.domain.table.types import parse_type

_CONNECT, _TIME = "org.apache.kafka.connect.data.", "io.debezium.time."
_INSTANTS = ("Timestamp", "MicroTimestamp", "NanoTimestamp", "ZonedTimestamp", "IsoTimestamp")
_NAMED = {
    **{f"{_TIME}{name}": "timestamp" for name in _INSTANTS},
    f"{_CONNECT}Timestamp": "timestamp",
    f"{_CONNECT}Date": "date",
    f"{_TIME}Date": "date",
    f"{_TIME}IsoDate": "date",
}
_TYPED = {
    **dict.fromkeys(("int8", "int16", "int32"), "int"),
    **{name: name for name in ("boolean", "float", "double", "string")},
    "int64": "long",
    "bytes": "binary",
    # As JSON: geometry, hstore, decimals with a scale of their own.
    "struct": "string",
    "map": "string",
}


def columns_of(schema: Any) -> dict[str, str | None]:
    """Of each column of an envelope's `after` its type; None: no type of this version fits."""
    after = next((field for field in _fields(schema) if field.get("field") == "after"), None)
    return {str(field.get("field")): _type(field) for field in _fields(after)}


def _fields(schema: Any) -> list[Mapping[str, Any]]:
    given = schema.get("fields") if isinstance(schema, dict) else None
    return [field for field in given if isinstance(field, dict)] if isinstance(given, list) else []


def _type(field: Any) -> str | None:
    if not isinstance(field, dict):
        return None
    if field.get("name") == f"{_CONNECT}Decimal":
        return _decimal(field.get("parameters"))
    if field.get("type") == "array":
        element = _type(field.get("items"))
        return "string" if element and element.startswith("array") else f"array<{element}>" if element else None
    return _NAMED.get(str(field.get("name"))) or _TYPED.get(str(field.get("type")))


def _decimal(parameters: Any) -> str:
    """A text where no decimal has room for every digit."""
    given = parameters if isinstance(parameters, dict) else {}
    text = f"decimal({given.get('connect.decimal.precision', 38)},{given.get('scale', 0)})"
    try:
        parse_type(text)
    except ValueError:
        return "string"
    return text
