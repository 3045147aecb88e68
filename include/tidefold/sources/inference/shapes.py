"""Recognizes JSON lines whose rows no log can read as they are, and names the command that writes them as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_EXTENDED = (
    "its values are MongoDB's extended JSON, where numbers, times and ids are objects: export them as CSV "
    "(`mongoexport --type=csv --fields=...`)"
)
_DYNAMODB = (
    "its values are DynamoDB's typed JSON: write the rows alone "
    "(`jq -c '(.Item // .) | map_values(if has(\"N\") then .N | tonumber else first(.[]) end)' FILE`)"
)
_WAL2JSON = (
    "its rows are lists of names and values, as wal2json writes them: write each as an object "
    "(`jq -c '{action, timestamp, lsn} + ([(.columns // .identity)[] | {(.name): .value}] | add)' FILE`)"
)
_CANAL = (
    "its rows lie in the list `data`: write each on a line of its own "
    "(`jq -c '{type, ts: .es} + (.data // [])[]' FILE`)"
)
_GOLDENGATE = (
    "a row lies in `after`, that of a delete in `before`, and what orders it beside them: write each as one object "
    "(`jq -c '{op_type, op_ts, pos} + (.after // .before)' FILE`)"
)
_TYPES = {"S", "N", "B", "BOOL", "NULL", "M", "L", "SS", "NS", "BS"}


def explain_strange_rows(lines: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns what to do with such lines; None if each line is, or contains, a plain row."""
    if any(_has_one_key(value) and next(iter(value)).startswith("$") for line in lines for value in line.values()):
        return _EXTENDED
    if lines and all(map(_is_dynamodb, lines)):
        return _DYNAMODB
    if any(_has_named_values(line.get("columns")) or _has_named_values(line.get("identity")) for line in lines):
        return _WAL2JSON
    if any(_is_list_of_objects(line.get("data")) and "type" in line for line in lines):
        return _CANAL
    if any("op_type" in line and ("after" in line or "before" in line) for line in lines):
        return _GOLDENGATE
    return None


def _has_one_key(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1


def _is_dynamodb(line: Mapping[str, Any]) -> bool:
    row = line.get("Item", line)
    return isinstance(row, dict) and bool(row) and all(_has_one_key(v) and set(v) <= _TYPES for v in row.values())


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


def _has_named_values(value: Any) -> bool:
    return _is_list_of_objects(value) and all({"name", "value"} <= one.keys() for one in value)
