"""Explains lines that contain no plain row, as some tools write them, by the command that makes rows of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidefold.sources.inference.operations import find_ops

_DYNAMODB = (
    "its values are DynamoDB's typed JSON: write the rows alone "
    "(`jq -c '(.Item // .) | map_values(if has(\"N\") then .N | tonumber else first(.[]) end)' FILE`)"
)
_DYNAMODB_CHANGES = (
    "its lines are changes of DynamoDB, as an export or a stream has them: write the row of each beside its operation "
    '(`jq -c \'def v: if has("N") then .N elif has("NULL") then null elif has("M") then .M | map_values(v) '
    'elif has("L") then [.L[] | v] else first(.[]) end; (.dynamodb // .) | {_op: (if .NewImage then "upsert" else '
    '"delete" end), ts: (.Metadata.WriteTimestampMicros.N // .ApproximateCreationDateTime | tonumber)} + '
    "(.NewImage // .Keys | map_values(v))' FILE`)"
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
_CHANGE_STREAM = (
    "its lines are events of a change stream of MongoDB: write the document of each beside its operation "
    '(`jq -c \'select(.documentKey) | {_op: .operationType, ts: (.clusterTime["$timestamp"] | .t * 1000000 + .i)} '
    '+ (.fullDocument // .documentKey) | ._id |= (.["$oid"]? // .)\' FILE`)'
)
_KCAT = (
    "its rows are texts in `payload`, as `kcat -J` writes them: write each as an object; keys must be objects, too "
    '(`jq -c \'{_op: (if .payload then "upsert" else "delete" end), offset} + (.payload // .key | fromjson)\' FILE`)'
)
# The fields of a new row and of a former one, next to the operation; and a field that only such lines have.
_PAIRS = (("record", "old_record", "schema"), ("new", "old", "table"), ("data", "old", "commitTs"))
_ROW_FIELDS = ("data", "payload", "record", "row", "after", "fields")
# What orders changes, the best first; and what the column is called.
_ORDERS = (
    (re.compile(r"commit_?(ts|time|timestamp)", re.IGNORECASE), "ts"),
    (re.compile(r"scn|change_?seq|sequence|seq", re.IGNORECASE), "seq"),
    (re.compile(r"ts_?[mun]s", re.IGNORECASE), "ts"),
    (re.compile(r"(source_?|event_?|op_?)(ts|time|timestamp)", re.IGNORECASE), "ts"),
    (re.compile(r"ts|time|timestamp", re.IGNORECASE), "ts"),
)
# Not `event` or `action`: in an object they are usually business data.
_OPERATION = re.compile(r"_*(op|oper|operation|operation_?name|op_?type|change_?type|cdc_?op|dml_?type)", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NO_CONTROL = 'select(.metadata["record-type"] != "control")'
_CLOCK = re.compile(r"\d{19}\.\d{10}", re.ASCII)
_TYPES = {"S", "N", "B", "BOOL", "NULL", "M", "L", "SS", "NS", "BS"}


def explain_strange_rows(lines: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns what to do with such lines; None if each line is, or contains, a plain row."""
    if any("operationType" in line and "documentKey" in line for line in lines):
        return _CHANGE_STREAM
    if lines and all("Keys" in line.get("dynamodb", line) for line in lines):
        return _DYNAMODB_CHANGES
    if lines and all(map(_is_dynamodb, lines)):
        return _DYNAMODB
    if any(_has_named_values(line.get("columns")) or _has_named_values(line.get("identity")) for line in lines):
        return _WAL2JSON
    if any(is_list_of_objects(line.get("data")) and "type" in line for line in lines):
        return _CANAL
    if any("op_type" in line and ("after" in line or "before" in line) for line in lines):
        return _GOLDENGATE
    if lines and all("tstype" in line and isinstance(line.get("payload"), str | None) for line in lines):
        return _KCAT
    return _explain_clocks(lines) or _explain_pairs(lines) or _explain_nested_operation(lines)


def _explain_clocks(lines: Sequence[Mapping[str, Any]]) -> str | None:
    """Explains lines of CockroachDB's changefeeds: the row in `after`, null for a delete, and a clock in `updated`."""
    rows = [line for line in lines if "after" in line and _CLOCK.fullmatch(f"{line.get('updated')}")]
    if not rows or any("op" in line for line in rows):
        return None
    full = [line for line in rows if isinstance(line["after"], dict) and isinstance(line.get("key"), list)]
    width = min((len(line["key"]) for line in full), default=0)
    names = [
        next((n for n in full[0]["after"] if all(line["after"].get(n) == line["key"][i] for line in full)), "")
        for i in range(width)
    ]
    if not names or not all(map(_NAME.fullmatch, names)):
        return "its lines have no `key`: create the changefeed WITH key_in_value, updated"
    key = ", ".join(f"{name}: .key[{i}]" for i, name in enumerate(names))
    return (
        "a row lies in `after`, which is null for a delete, and its time beside it: write each as one object "
        '(`jq -c \'select(.updated) | {_op: (if .after then "upsert" else "delete" end), '
        f"ts: (.updated[0:16] | tonumber)}} + (.after // {{{key}}})' FILE`)"
    )


def _explain_pairs(lines: Sequence[Mapping[str, Any]]) -> str | None:
    """Explains lines with the new row in one field and the former one in another, which has the row of a delete."""
    for new, old, sign in _PAIRS:
        if not lines or not all({new, old, sign} <= line.keys() for line in lines):
            continue
        ops = find_ops([name for name in lines[0] if isinstance(lines[0][name], str)], lines)
        if ops and all(isinstance(line[name], dict | None) for line in lines for name in (new, old)):
            text = f"a row lies in `{new}`, that of a delete in `{old}`: write each beside its operation"
            return f"{text} (`{_command(ops[0].column, _find_order(lines), f'(.{new} // .{old})')}`)"
    return None


def _explain_nested_operation(lines: Sequence[Mapping[str, Any]]) -> str | None:
    """Explains lines whose operation lies in an object: without it, deleted rows would stay."""
    # DMS writes control lines, which have no row.
    rows = [line for line in lines if not _is_control(line)]
    lines, is_mixed = rows or lines, 0 < len(rows) < len(lines)
    objects = [n for n in (lines[0] if lines else ()) if all(isinstance(line.get(n), dict) for line in lines)]
    if find_ops([n for n in (lines[0] if lines else ()) if n not in objects], lines):
        return None
    for name in (one for one in objects if one not in _ROW_FIELDS and _NAME.fullmatch(one)):
        inner = [line[name] for line in lines]
        ops = [op for op in find_ops(list(inner[0]), inner) if op.sure and not op.any_deletes]
        if not ops or not _OPERATION.fullmatch(ops[0].column):
            continue
        row = next((f".{field}" for field in _ROW_FIELDS if field in objects), f"del(.{name})")
        path = f"{name}.{ops[0].column}"
        text = f"the operation lies in `{path}`, where no log reads it: write it beside the row"
        command = _command(path, _find_order(lines), row)
        return f"{text} (`{command.replace('{', f'{_NO_CONTROL} | {{', 1) if is_mixed else command}`)"
    return None


def _is_control(line: Mapping[str, Any]) -> bool:
    about = line.get("metadata")
    return isinstance(about, dict) and about.get("record-type") == "control"


def _command(op: str, order: str, row: str) -> str:
    return f"jq -c '{{_op: .{op}{order}}} + {row}' FILE"


def _find_order(lines: Sequence[Mapping[str, Any]]) -> str:
    """Returns the part of a command that writes what orders the lines; empty if nothing beside the rows does."""
    scalars = dict(_list_scalars(lines[0], 2))
    for pattern, name in _ORDERS:
        for path, value in scalars.items():
            number = isinstance(value, int) and not isinstance(value, bool)
            time = isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d[T ]", value)
            if pattern.fullmatch(path.rpartition(".")[2]) and (number or time):
                return f", {name}: .{path}"
    return ""


def _list_scalars(value: Mapping[str, Any], depth: int, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yields what lies beside the rows, with its path."""
    for name, one in value.items():
        if not _NAME.fullmatch(name):
            continue
        if isinstance(one, dict) and depth and not (above == "" and name in (*_ROW_FIELDS, "old", "old_record", "new")):
            yield from _list_scalars(one, depth - 1, f"{above}{name}.")
        elif not isinstance(one, dict | list):
            yield f"{above}{name}", one


def _is_dynamodb(line: Mapping[str, Any]) -> bool:
    row = line.get("Item", line)
    return isinstance(row, dict) and bool(row) and all(_has_one_key(v) and set(v) <= _TYPES for v in row.values())


def _has_one_key(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1


def is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


def _has_named_values(value: Any) -> bool:
    return is_list_of_objects(value) and all({"name", "value"} <= one.keys() for one in value)
