"""What the shape of a log must fulfil, whether a configuration describes it or a program.

What the way in which a log merges its changes must fulfil.

An option without effect is a mistake, and so is one whose result would depend on how changes arrive.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeAlias

from tidefold.domain.log_state import Column
from tidefold.domain.table.table_spec import COLUMNS, FILE, Deletes, Engine, Merge, TableSpec
from tidefold.domain.table.types import encodings_of, parse_promised_scale, parse_type
from tidefold.errors import InvalidInputError

MAX_KEY_GROUPS = 32768

_COLUMN = re.compile(r"[^\W_]\w{0,127}")
# Code, place within the description of the log, what is wrong there, hint.
Mistake: TypeAlias = tuple[str, tuple[str | int, ...], str, str]
# Types whose values are compared as whole numbers.
ORDER_TYPES = ("int", "long", "date", "timestamp")
_NUMBERS, _WHOLE = ("int", "long", "decimal"), ("int", "long")
# Function -> the types that it takes; none: every one. The order of what comes does not matter to `_COMMUTING` ones.
FUNCTIONS: dict[str, tuple[str, ...]] = {
    "sum": _NUMBERS, "product": _WHOLE, "min": (), "max": (), "count": _WHOLE, "bool_and": ("boolean",),
    "bool_or": ("boolean",), "first": (), "last": (), "list": ("array",),
}  # fmt: skip
_COMMUTING = ("sum", "product", "min", "max", "count", "bool_and", "bool_or")


def check(shape: TableSpec, orders: Collection[str]) -> None:
    """Raises InvalidInputError with the first mistake of a shape. `orders` are the kinds of order that there are."""
    for code, place, message, hint in _mistakes(shape, orders):
        raise InvalidInputError(code, f"Table definition: {_format_place(place)} {message}", hint=hint)


def column_mistakes(names: Sequence[str]) -> Iterator[Mistake]:
    """Names of columns that no table can have, and those that meet."""
    seen: dict[str, str] = {}
    for name in names:
        at = ("columns", name)
        if name.startswith("_"):
            hint = "Use another name, and write the source's name under `aliases`."
            yield "COLUMN_RESERVED", at, "begins with `_`, which is reserved for system columns.", hint
        elif not _COLUMN.fullmatch(name):
            hint = "Use up to 128 letters, digits and underscores."
            yield "COLUMN_INVALID", at, "cannot be the name of a column.", hint
        if name.casefold() in seen:
            other = seen[name.casefold()]
            differs = f"differs from `{other}` only in case, which Spark ignores."
            yield "COLUMN_TWICE", at, "occurs twice." if name == other else differs, "Keep one of them."
        seen.setdefault(name.casefold(), name)


def key_mistakes(key: Sequence[str], types: dict[str, str]) -> Iterator[Mistake]:
    """Yields parts of a key that are not columns, occur twice, or cannot identify rows. `types`: column -> type."""
    for i, name in enumerate(key):
        at = ("key", i)
        if name in key[:i]:
            yield "KEY_COLUMN_TWICE", at, f"names `{name}` a second time.", "Keep one of them."
        if name not in types:
            near = get_close_matches(name, list(types), n=1)
            hint = f"Did you mean `{near[0]}`? " if near else ""
            hint += f"Columns are: {', '.join(types)}."
            yield "KEY_COLUMN_UNKNOWN", at, f"names `{name}`, which is not a column of this log.", hint
        elif not _can_be_key(types[name]):
            message = f"names `{name}` of type {types[name]}, which cannot be part of a key."
            yield "KEY_TYPE", at, message, "Use a key of whole numbers, decimals, text, dates or timestamps."


def _can_be_key(text: str) -> bool:
    try:
        return parse_type(text).can_be_key
    except ValueError:
        return True  # A mistake of its own.


def type_mistakes(columns: Iterable[Column]) -> Iterator[Mistake]:
    """Types that no column can have, and encodings that do not fit the type."""
    for column in columns:
        at = ("columns", column.name)
        try:
            type_ = parse_type(column.type)
        except ValueError as error:
            yield "COLUMN_TYPE", at, f"has the unknown type {column.type!r}.", f"{_sentence(str(error))}."
            continue
        encodings = encodings_of(type_)
        promises = (type_.element or type_).name == "decimal" and parse_promised_scale(column.encoding) is not None
        if column.encoding and column.encoding not in encodings and not promises:
            hint = f"Values of {column.type} can be: {', '.join(encodings)}." if encodings else "Leave `encoding` out."
            yield "COLUMN_ENCODING", at, f"cannot have the encoding {column.encoding!r}.", hint


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _mistakes(shape: TableSpec, orders: Collection[str]) -> Iterator[Mistake]:
    yield from _find_malformed(shape)
    yield from column_mistakes([column.name for column in shape.columns])
    yield from type_mistakes(shape.columns)
    yield from key_mistakes(shape.key, {column.name: column.type for column in shape.columns})
    if shape.order not in orders:
        hint = f"Orders are: {', '.join(sorted(orders))}."
        yield "ORDER_INVALID", ("order",), f"cannot be {shape.order!r}.", hint
    yield from _spread(shape)


def _find_malformed(shape: TableSpec) -> Iterator[Mistake]:
    """What has to be a tuple of at least one. A list would never equal what the ledger has."""
    for name, items, kind in (("key", shape.key, str), ("columns", shape.columns, Column)):
        if not isinstance(items, tuple) or not all(isinstance(one, kind) for one in items):
            hint = 'For example `key=("id",)`, `columns=(Column("id", "long"),)`.'
            yield f"{name.upper()}_INVALID", (name,), f"is not a tuple of {kind.__name__}.", hint
        elif not items:
            yield f"{name.upper()}_INVALID", (name,), "is empty.", "Name at least one column."


def _spread(shape: TableSpec) -> Iterator[Mistake]:
    if type(shape.key_groups) is not int or not 1 <= shape.key_groups <= MAX_KEY_GROUPS:
        hint = f"Use a whole number from 1 to {MAX_KEY_GROUPS}."
        yield "KEY_GROUPS_INVALID", ("key_groups",), f"cannot be {shape.key_groups!r}.", hint
    elif type(shape.buckets) is not int or not 1 <= shape.buckets <= shape.key_groups:
        hint = f"Use a whole number from 1 to key_groups ({shape.key_groups})."
        yield "BUCKETS_INVALID", ("buckets",), f"cannot be {shape.buckets!r}.", hint


def _format_place(place: tuple[str | int, ...]) -> str:
    first, *rest = place
    return str(first) + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)


def merge_mistakes(shape: TableSpec) -> Iterator[Mistake]:
    """The mistakes of a shape whose columns and key are right by themselves."""
    merge, types = shape.merge, {column.name: column.type for column in shape.columns}
    yield from _key(shape)
    yield from _order(shape, types)
    if merge.engine is not Engine.PARTIAL and merge.groups:
        yield _without_effect("groups", merge.engine, "partial")
    if merge.engine is not Engine.AGGREGATE and merge.aggregates:
        yield _without_effect("aggregates", merge.engine, "aggregate")
    yield from _groups(shape, types)
    yield from _aggregates(shape, types)
    why = inexact(merge, shape.source_ordered)
    if merge.deletes is Deletes.APPLY and why:
        hint = "Set `deletes: ignore` or `deletes: quarantine`."
        yield "DELETES_INEXACT", ("merge", "deletes"), f"cannot be `apply`: {why}.", hint


def _key(shape: TableSpec) -> Iterator[Mistake]:
    appends = shape.merge.engine is Engine.APPEND
    if appends and shape.key:
        yield "KEY_WITHOUT_EFFECT", ("key",), "has no effect with `merge: append`.", "Remove it."
    if not appends and not shape.key:
        hint = "Name the columns that identify a row (`key: [id]`). For a table without a key, set `merge: append`."
        yield "LOG_WITHOUT_KEY", ("key",), "is missing: a log needs a key.", hint


def _order(shape: TableSpec, types: Mapping[str, str]) -> Iterator[Mistake]:
    if FILE in shape.order_by and FILE in types:
        hint = "Rename the column, with `aliases: [file]`, or leave `file` out of `order`."
        yield "ORDER_FILE", ("order",), "names `file`, which is also a column of this log.", hint
    for i, name in enumerate(shape.order_by):
        if name == FILE:
            if i < len(shape.order_by) - 1:
                hint = "Put it last: no two files have the same place."
                yield "ORDER_FILE", ("order", i), "names `file` before other columns.", hint
        elif name not in types:
            hint = f"Columns are: {', '.join(types)}."
            yield "ORDER_COLUMN", ("order", i), f"names `{name}`, which is not a column of this log.", hint
        elif types[name] not in ORDER_TYPES:
            hint = f"Use columns of type {', '.join(ORDER_TYPES)}."
            yield "ORDER_COLUMN", ("order", i), f"names `{name}` of type {types[name]}.", hint
        elif name in shape.order_by[:i]:
            yield "ORDER_COLUMN", ("order", i), f"names `{name}` a second time.", "Keep one of them."
    if shape.order == COLUMNS and shape.merge.engine is Engine.APPEND:
        yield "ORDER_INVALID", ("order",), "has no effect with `merge: append`.", "Remove it."


def _without_effect(name: str, engine: Engine, other: str) -> Mistake:
    hint = f"Remove it, or set `engine: {other}`."
    return "MERGE_WITHOUT_EFFECT", ("merge", name), f"has no effect with the engine `{engine}`.", hint


def _groups(shape: TableSpec, types: Mapping[str, str]) -> Iterator[Mistake]:
    seen: set[str] = set()
    for i, group in enumerate(shape.merge.groups):
        at = ("merge", "groups", i)
        for name in (*group.columns, *group.order):
            if name not in types:
                yield "MERGE_COLUMN", at, f"names `{name}`, which is not a column.", f"Columns are: {', '.join(types)}."
        for name in group.columns:
            if name in shape.key or name in seen:
                why = "part of the key" if name in shape.key else "in another group"
                yield (
                    "MERGE_COLUMN",
                    at,
                    f"names `{name}`, which is {why}.",
                    "Name each column in one group only, and no key column.",
                )
            seen.add(name)
        for name in group.order:
            if types.get(name, "int") not in ORDER_TYPES:
                hint = f"Use columns of type {', '.join(ORDER_TYPES)}."
                yield "ORDER_COLUMN", (*at, "order"), f"names `{name}` of type {types[name]}.", hint


def _aggregates(shape: TableSpec, types: Mapping[str, str]) -> Iterator[Mistake]:
    if shape.merge.engine is not Engine.AGGREGATE:
        return
    for name, function in shape.merge.aggregates:
        at = ("merge", "aggregates", name)
        if name not in types or name in shape.key:
            others = [one for one in types if one not in shape.key]
            yield "MERGE_COLUMN", at, "is not a column that can be aggregated.", f"Columns are: {', '.join(others)}."
        elif function not in FUNCTIONS:
            yield "AGGREGATE_UNKNOWN", at, f"cannot be `{function}`.", f"Functions are: {', '.join(FUNCTIONS)}."
        else:
            yield from _function(shape, function, types[name], at)
    named = [name for name, _ in shape.merge.aggregates]
    for name in types:
        if shape.order == COLUMNS and name not in shape.key and name not in named:
            hint = f"Give it one of: {', '.join(_COMMUTING)}."
            message = "has no function. Its last value is not defined in a log that columns order."
            yield "AGGREGATE_INEXACT", ("columns", name), message, hint


def _function(shape: TableSpec, function: str, type_: str, at: tuple[str | int, ...]) -> Iterator[Mistake]:
    kind, allowed = type_.split("(")[0].split("<")[0], FUNCTIONS[function]
    if allowed and kind not in allowed:
        hint = f"`{function}` takes {', '.join(allowed)}."
        if kind in ("float", "double"):
            hint = f"A {function} of {kind} depends on the order of the values. Use decimal(p,s)."
        yield "AGGREGATE_TYPE", at, f"cannot be `{function}` for a column of type {type_}.", hint
    if shape.order == COLUMNS and function not in _COMMUTING:
        hint = f"In a log that columns order, use one of: {', '.join(_COMMUTING)}."
        yield "AGGREGATE_INEXACT", at, f"cannot be `{function}`: it depends on the order of the values.", hint


def inexact(merge: Merge, source_ordered: bool) -> str:
    """Why deletes cannot be applied; empty: they can. `source_ordered`: see `TableSpec`."""
    if merge.engine is Engine.APPEND:
        return "a table without a key has no row to find"
    if not source_ordered and merge.engine in (Engine.FIRST, Engine.AGGREGATE):
        return f"with `engine: {merge.engine}` a delete that comes late cannot be told from an early one"
    if any(group.order for group in merge.groups):
        return "groups with an order of their own cannot be compared with it"
    return ""
