"""Computes the rows of a log in the simplest way: sorts the changes by position and applies them one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidefold.changelog.schema import CLEAR, DELETE, MERGE, order_columns, place_columns
from tidefold.domain.table.table_spec import Engine, TableSpec

Change = Mapping[str, Any]
Key = tuple[Any, ...]
Row = dict[str, Any]


def rows_of(shape: TableSpec, changes: Iterable[Change]) -> list[Row]:
    """Returns the user's columns of all rows, sorted by key; of a history in the order of their versions."""
    unique = {place(shape, c) + key_of(shape, c) + (c["_op"],): c for c in changes}
    # A clear comes before whatever else has its order.
    ordered = sorted(unique.values(), key=lambda c: (order(shape, c), c["_op"] != CLEAR, place(shape, c)))
    if shape.merge.engine is Engine.APPEND:
        return _appended(shape, ordered)
    if shape.merge.engine is Engine.HISTORY:
        return _versions(shape, ordered)
    rows: dict[Key, Row] = {}
    marks: dict[Key, dict[str, Any]] = {}
    for change in ordered:
        _apply(shape, rows, marks, change)
    return [rows[key] for key in sorted(rows)]


def key_of(shape: TableSpec, change: Change) -> Key:
    return tuple(change[name] for name in shape.key)


def place(shape: TableSpec, change: Change) -> tuple[int, ...]:
    return tuple(change[name] for name in place_columns(shape))


def order(shape: TableSpec, change: Change) -> tuple[int, ...]:
    return tuple(change[name] for name in order_columns(shape)) or place(shape, change)


def cleared(shape: TableSpec, change: Change, key: Key) -> bool:
    begins = change_prefix(shape, change)
    return key[: len(begins)] == begins


def change_prefix(shape: TableSpec, change: Change) -> Key:
    given = [change[name] for name in shape.spread_key]
    return tuple(given) if given and given[0] is not None else ()


def _appended(shape: TableSpec, changes: list[Change]) -> list[Row]:
    rows: list[Row] = []
    for change in changes:
        rows = [] if change["_op"] == CLEAR else [*rows, {c.name: change[c.name] for c in shape.columns}]
    return rows


def _versions(shape: TableSpec, changes: list[Change]) -> list[Row]:
    points: dict[Key, dict[tuple[int, ...], Change]] = {}
    for change in changes:
        if change["_op"] == CLEAR:
            for key, line in points.items():
                if cleared(shape, change, key):
                    line.setdefault(order(shape, change), {**change, "_op": DELETE})
        else:
            points.setdefault(key_of(shape, change), {})[order(shape, change)] = change
    rows = []
    for key in sorted(points):
        line = [points[key][at] for at in sorted(points[key])]
        for change, later in zip(line, [*line[1:], None], strict=True):
            if change["_op"] != DELETE:
                until = None if later is None else order(shape, later)
                row = {c.name: change[c.name] for c in shape.columns}
                rows.append({**row, "from": order(shape, change), "until": until})
    return rows


def _apply(shape: TableSpec, rows: dict[Key, Row], marks: dict[Key, dict[str, Any]], change: Change) -> None:
    key, op, engine = key_of(shape, change), change["_op"], shape.merge.engine
    if op == CLEAR:
        for one in [one for one in rows if cleared(shape, change, one)]:
            del rows[one]
            marks.pop(one, None)
        return
    if op == DELETE:
        rows.pop(key, None)
        marks.pop(key, None)
        return
    absent = change["_absent"] or []
    given = {c.name: change[c.name] for c in shape.columns if c.name not in absent}
    nothing = {c.name: None for c in shape.columns}
    if engine is Engine.FIRST:
        rows.setdefault(key, {**nothing, **given})
    elif engine is Engine.AGGREGATE and op == MERGE:
        rows[key] = _added(shape, rows.get(key, nothing), given)
    elif engine is Engine.PARTIAL and shape.merge.groups:
        rows[key] = _grouped(shape, rows.get(key, nothing), marks.setdefault(key, {}), given)
    elif engine is Engine.PARTIAL or absent:
        rows[key] = {**rows.get(key, nothing), **given}
    else:
        rows[key] = {**nothing, **given}


def _added(shape: TableSpec, row: Row, given: Row) -> Row:
    functions = dict(shape.merge.aggregates)
    row = dict(row)
    for name, value in given.items():
        before = row[name]
        if name not in functions:
            row[name] = value
        elif value is not None:
            function = functions[name]
            begin = 1 if function == "count" else value
            row[name] = begin if before is None else _ADD[function](before, value)
    return row


_ADD: dict[str, Any] = {
    "sum": lambda a, b: a + b,
    "product": lambda a, b: a * b,
    "min": min,
    "max": max,
    "count": lambda a, b: a + 1,
    "bool_and": lambda a, b: a and b,
    "bool_or": lambda a, b: a or b,
    "first": lambda a, b: a,
    "last": lambda a, b: b,
    "list": lambda a, b: a + b,
}


def _grouped(shape: TableSpec, row: Row, seen: dict[str, Any], given: Row) -> Row:
    """Sets the columns of a group with its own order if that order is not below the stored one."""
    own = {name: group.order for group in shape.merge.groups if group.order for name in group.columns}
    row = dict(row)
    for name, value in given.items():
        if name in own:
            at = tuple(given.get(one) for one in own[name])
            if None in at or (name in seen and at < seen[name]):
                continue
            seen[name] = at
        row[name] = value
    return row
