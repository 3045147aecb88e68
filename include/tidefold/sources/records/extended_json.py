"""MongoDB's extended JSON, canonical or relaxed, as plain JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERS = {"$numberInt": int, "$numberLong": int}
_TEXTS = ("$oid", "$numberDecimal", "$symbol", "$uuid")
# What reading a text of extended JSON raises if it is broken.
BROKEN = (ValueError, TypeError, KeyError, RecursionError, OverflowError)


def to_plain(line: bytes) -> bytes:
    """Returns a line with plain values in the place of extended JSON. One that cannot be read stays as it is."""
    if b'"$' not in line:
        return line
    try:
        return msgspec.json.encode(plain_value(json.loads(line)))
    except BROKEN:
        return line


def plain_value(value: Any) -> Any:
    """A value of extended JSON, canonical or relaxed, as plain JSON."""
    if isinstance(value, list):
        return [plain_value(one) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        [(name, inner)] = value.items()
        if name in _NUMBERS:
            return _NUMBERS[name](inner)
        if name in _TEXTS and isinstance(inner, str):
            return inner
        if name == "$numberDouble":
            return inner if inner in ("NaN", "Infinity", "-Infinity") else float(inner)
        if name == "$date":
            return _instant(inner)
        if name == "$binary" and isinstance(inner, dict):
            return inner.get("base64")
    if set(value) == {"$binary", "$type"}:
        return value["$binary"]
    return {name: plain_value(one) for name, one in value.items()}


def _instant(value: Any) -> Any:
    """A date as ISO 8601 text."""
    if isinstance(value, Mapping):
        value = int(value["$numberLong"])
    if isinstance(value, int):
        moment = _EPOCH + timedelta(milliseconds=value)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value
