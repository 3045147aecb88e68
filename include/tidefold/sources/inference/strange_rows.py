"""Explains lines whose operation has a place of its own, by the profile that reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from tidefold.sources.inference.operations import OpCandidate, find_ops
from tidefold.sources.records.operation_names import SURELY_OPERATION

# The fields of a new row and of a former one, the likeliest first.
_NEW = (
    "new",
    "after",
    "current",
    "newdata",
    "newrecord",
    "newvalues",
    "data",
    "record",
    "row",
    "fields",
    "payload",
    "value",
)
_FORMER = re.compile(r"(old|before|prev(ious)?|changes|original)(_?(data|record|row|values?|image))?", re.IGNORECASE)
# What orders changes, the best first.
_ORDERS = tuple(
    re.compile(text, re.IGNORECASE)
    for text in (
        r"commit_?(ts|time|timestamp)",
        r"((commit|start|source)_?)?(scn|lsn|seq(uence)?(_?(no|num|number))?)|change_?seq(uence)?(_?(no|num|number))?|event_?id",
        r"ts_?[mun]s",
        r"(source_?|event_?|op_?|action_?)(ts|time|tstamp(_tx)?|timestamp)|(created?|triggered|occurred|updated?)_?(at|time)",
        r"ts|time|timestamp",
    )
)
_AVRO = {"string": (str,), "int": (int,), "long": (int,), "double": (int, Decimal), "float": (int, Decimal)}
_AVRO |= {"boolean": (bool,), "bytes": (str,)}
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]")
_DEEP = 3


def explain_strange_rows(lines: Sequence[Mapping[str, Any]], field: str = "") -> str | None:
    """Returns what to do with such lines; None if each line is, or contains, a plain row.

    field: the one with the row, if nothing else says which of two lines is the newer.
    """
    seen = [dict(_list_paths(line)) for line in lines]
    values = {path: [one.get(path) for one in seen] for path in dict.fromkeys(p for one in seen for p in one)}
    if "payload.ChangeEventHeader" in values:
        return "Salesforce's events lie in `payload`: land what is in it alone"
    if name := next((name for name in values if "." not in name and _is_avro(values[name])), ""):
        return (
            f"`{name}` has Avro's types beside its values, as avro-tools and console consumers write them: land plain "
            "JSON, as Kafka Connect's JsonFormat writes it, or Parquet"
        )
    objects = [p for p, told in values.items() if all(isinstance(one, dict | None) for one in told)]
    row = field or next((p for n in _NEW for p in objects if _last(p).casefold().replace("_", "") == n), "")
    former = next((p for p in objects if _FORMER.fullmatch(_last(p))), "")
    former = former or next((p for p in objects if p != row and _is_former(values[p], values.get(row, ()))), "")
    within = tuple(f"{one}." for one in (row, former) if one)
    beside = {path: told for path, told in values.items() if not path.startswith(within)}
    write = partial(_write_profile, [p for p in (row, former) if all(p in one for one in seen)], beside, row, former)
    for path in sorted(beside, key=lambda path: path.count(".")):
        # In an object, `event` and the like are usually business data.
        if path in objects or ("." in path and not SURELY_OPERATION.fullmatch(_last(path))):
            continue
        ops = find_ops([_last(path)], [{_last(path): one} for one in beside[path]])
        inner = {path: values[path] for path in values if path.startswith(f"{field}.")}
        has_order = not field or _write_order(inner) or not _write_order(beside)
        if ops and "." not in path and not former and has_order:
            return None
        if ops and ops[0].sure and not ops[0].any_deletes:
            return write(path, ops[0])
    is_pair = former and row and None in (*values[former], *values[row])
    return write("", None) if is_pair else None


def _is_avro(objects: Sequence[Any]) -> bool:
    """Whether values have the form that Avro gives to optional ones in JSON: `{"string": "a"}`."""
    seen = [one for one in objects if one is not None]
    return bool(seen) and all(isinstance(one, dict) and len(one) == 1 and _fits_avro(*one.items()) for one in seen)


def _fits_avro(item: tuple[str, Any]) -> bool:
    return type(item[1]) in _AVRO.get(item[0], ())


def _is_former(objects: Sequence[Any], rows: Sequence[Any]) -> bool:
    """Whether objects hold other values of columns of the rows beside them."""
    pairs = [(one, row) for one, row in zip(objects, rows, strict=False) if one and isinstance(row, dict)]
    is_part = bool(pairs) and all(one.keys() <= row.keys() for one, row in pairs)
    return is_part and any(one[name] != row[name] for one, row in pairs for name in one)


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _write_profile(
    shown: Sequence[str], beside: Mapping[str, Sequence[Any]], row: str, former: str, path: str, op: OpCandidate | None
) -> str:
    """Returns the profile by which a log reads such lines. shown: paths that each line has."""
    parts = ['title = "own"', f"has = {json.dumps([*filter(None, (path, *shown))])}"]
    parts += [f'op = "{path}"', f"upsert = {json.dumps(op.upsert)}", f"delete = {json.dumps(op.delete)}"] if op else []
    parts += [f'row = ["{row or "."}"]', *([f'gone = ["{former}"]', f'old = "{former}"'] if former else [])]
    lined = ", ".join(f"`{part}`" for part in (*parts, *_write_order(beside)))
    places = [
        *([f"the operation lies in `{path}`"] if op else []),
        *([f"a former row in `{former}`"] if former else []),
    ]
    what = "write a profile `profiles/own.toml` beside tidefold.yaml, and run `init` again. Its lines"
    return f"{', '.join(places)}: {what}: {lined}"


def _write_order(beside: Mapping[str, Sequence[Any]]) -> list[str]:
    """Returns the lines of what orders the changes; none if nothing beside the rows does."""
    for pattern in _ORDERS:
        for path in (path for path in beside if pattern.fullmatch(_last(path).lstrip("_"))):
            one = beside[path][0]
            if (isinstance(one, int) and not isinstance(one, bool)) or (isinstance(one, str) and _TIME.match(one)):
                return [f'fields = {{ change_order = "{path}" }}', 'orders = [["change_order"]]']
            if isinstance(one, str) and one.isdecimal():
                halves = ("change_high", "change_low")
                fields, forms = ", ".join(f'{n} = "{path}"' for n in halves), 'change_high = "high", change_low = "low"'
                return [f"fields = {{ {fields} }}", f"forms = {{ {forms} }}", f"orders = [{json.dumps(halves)}]"]
    return []


def _list_paths(value: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yields what a line has, each with its path."""
    for name, one in value.items():
        if _NAME.fullmatch(name) and not isinstance(one, list):
            yield f"{above}{name}", one
            if isinstance(one, dict) and above.count(".") < _DEEP - 1:
                yield from _list_paths(one, f"{above}{name}.")


def is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)
