"""Explains lines that contain no plain row, by the profile that reads them, or the command that makes rows of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidefold.sources.inference.operations import OpCandidate, find_ops

_KCAT = (
    "its rows are texts in `payload`, as `kcat -J` writes them: write each as an object; keys must be objects, too "
    '(`jq -c \'{_op: (if .payload then "upsert" else "delete" end), offset} + (.payload // .key | fromjson)\' FILE`)'
)
# The fields of a new row and of a former one, next to the operation; and a field that only such lines have.
_PAIRS = (("record", "old_record", "schema"), ("new", "old", "table"), ("data", "old", "commitTs"))
_ROW_FIELDS = ("data", "payload", "record", "row", "after", "fields")
# What orders changes, the best first.
_ORDERS = tuple(
    re.compile(text, re.IGNORECASE)
    for text in (
        r"commit_?(ts|time|timestamp)",
        r"scn|change_?seq|sequence|seq",
        r"ts_?[mun]s",
        r"(source_?|event_?|op_?)(ts|time|timestamp)",
        r"ts|time|timestamp",
    )
)
# Not `event` or `action`: in an object they are usually business data.
_OPERATION = re.compile(r"_*(op|oper|operation|operation_?name|op_?type|change_?type|cdc_?op|dml_?type)", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_CLOCK = re.compile(r"\d{19}\.\d{10}", re.ASCII)


def explain_strange_rows(lines: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns what to do with such lines; None if each line is, or contains, a plain row."""
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
            text = f"a row lies in `{new}`, that of a delete in `{old}`"
            return text + _write_profile(ops[0].column, ops[0], lines, new, old)
    return None


def _explain_nested_operation(lines: Sequence[Mapping[str, Any]]) -> str | None:
    """Explains lines whose operation lies in an object: without it, deleted rows would stay."""
    objects = [n for n in (lines[0] if lines else ()) if all(isinstance(line.get(n), dict) for line in lines)]
    if find_ops([n for n in (lines[0] if lines else ()) if n not in objects], lines):
        return None
    for name in (one for one in objects if one not in _ROW_FIELDS and _NAME.fullmatch(one)):
        inner = [line[name] for line in lines]
        ops = [op for op in find_ops(list(inner[0]), inner) if op.sure and not op.any_deletes]
        if not ops or not _OPERATION.fullmatch(ops[0].column):
            continue
        row = next((field for field in _ROW_FIELDS if field in objects), ".")
        path = f"{name}.{ops[0].column}"
        text = f"the operation lies in `{path}`, where no log reads it"
        return text + _write_profile(path, ops[0], lines, row)
    return None


def _write_profile(path: str, op: OpCandidate, lines: Sequence[Mapping[str, Any]], row: str, old: str = "") -> str:
    """Returns the profile by which a log reads such lines."""
    parts = ['title = "own"', f'has = ["{path}"]', f'op = "{path}"', f"upsert = {json.dumps(op.upsert)}"]
    parts += [f"delete = {json.dumps(op.delete)}", f'row = ["{row}"]']
    parts += [f'gone = ["{old}"]', f'old = "{old}"'] if old else []
    if at := _find_order(lines):
        parts += [f'fields = {{ change_order = "{at}" }}', 'orders = [["change_order"]]']
    lined = ", ".join(f"`{part}`" for part in parts)
    return f": write a profile `profiles/own.toml` beside tidefold.yaml, and run `init` again. Its lines: {lined}"


def _find_order(lines: Sequence[Mapping[str, Any]]) -> str:
    """Returns the path of what orders the lines; empty if nothing beside the rows does."""
    scalars = dict(_list_scalars(lines[0], 2))
    for pattern in _ORDERS:
        for path, value in scalars.items():
            number = isinstance(value, int) and not isinstance(value, bool)
            time = isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d[T ]", value)
            if pattern.fullmatch(path.rpartition(".")[2]) and (number or time):
                return path
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


def is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)
