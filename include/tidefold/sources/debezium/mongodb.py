"""Records of Debezium's connector for MongoDB: each becomes a record whose `after` is a row of columns.

The connector writes a document as a text of extended JSON. Its `_id` becomes the column `id`, its other fields the
columns of the same name, all of it the column `document`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from tidefold.domain.log_state import TableSpec

KEY, DOCUMENT = "id", "document"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERS = {"$numberInt": int, "$numberLong": int}
_TEXTS = ("$oid", "$numberDecimal", "$symbol", "$uuid")


def with_row(line: bytes, shape: TableSpec) -> bytes:
    """The record with the document as a row. A line that is no such record stays as it is."""
    try:
        record = msgspec.json.decode(line)
        if not isinstance(record, dict):
            return line
        whole = "value" in record
        value, key = _payload(record.get("value") if whole else record), _payload(record.get("key"))
        if isinstance(value, dict):
            value = {**value, "before": None, "after": _row_of(value.get("after"), shape)}
        if isinstance(key, dict) and isinstance(key.get(KEY), str):
            key = {KEY: _plain(json.loads(key[KEY]))}
        changed = {**record, "value": value, "key": key} if whole else value
        return msgspec.json.encode(changed)
    except (ValueError, RecursionError, OverflowError):
        return line


def _payload(part: Any) -> Any:
    """A value or key without the schema around it: the schema of a document is that of a text."""
    return part["payload"] if isinstance(part, dict) and set(part) == {"schema", "payload"} else part


def _row_of(after: Any, shape: TableSpec) -> Any:
    if not isinstance(after, str):
        return after
    document = json.loads(after)
    if not isinstance(document, dict):
        return after
    row: dict[str, Any] = {column.name: None for column in shape.columns}
    fields = {KEY if name == "_id" else name: _plain(value) for name, value in document.items()}
    if DOCUMENT in row:
        # The whole document has what has no column of its own.
        fields = {name: value for name, value in fields.items() if name in row} | {DOCUMENT: after}
    return row | fields


def _plain(value: Any) -> Any:
    """A value of extended JSON, canonical or relaxed, as plain JSON."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        [(name, given)] = value.items()
        if name in _NUMBERS:
            return _NUMBERS[name](given)
        if name in _TEXTS and isinstance(given, str):
            return given
        if name == "$numberDouble":
            return given if given in ("NaN", "Infinity", "-Infinity") else float(given)
        if name == "$date":
            return _instant(given)
        if name == "$binary" and isinstance(given, dict):
            return given.get("base64")
    if set(value) == {"$binary", "$type"}:
        return value["$binary"]
    return {name: _plain(one) for name, one in value.items()}


def _instant(given: Any) -> Any:
    """A date as ISO 8601 text."""
    if isinstance(given, Mapping):
        given = int(given["$numberLong"])
    if isinstance(given, int):
        moment = _EPOCH + timedelta(milliseconds=given)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return given
