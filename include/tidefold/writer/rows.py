"""What somebody appends, as a table of changes of his log: every column checked, system columns filled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.columns import ARRIVAL, DELETE, UPSERT, change_schema, order_columns
from tidefold.lifecycle.errors import InvalidInputError
from tidefold.lifecycle.values import Shape

Changes: TypeAlias = pa.Table | Iterable[Mapping[str, Any]] | Mapping[str, Any]
_WORDS = {"upsert": UPSERT, "delete": DELETE}


class Buffer:
    """Tables that were appended one after the other, until they become one."""

    def __init__(self) -> None:
        self.bytes = 0
        self._tables: list[pa.Table] = []

    def add(self, table: pa.Table) -> None:
        if table.num_rows:
            self._tables.append(table)
            self.bytes += table.nbytes

    def take(self) -> pa.Table | None:
        """Everything in it as one table, or None; it is empty then."""
        tables, self._tables, self.bytes = self._tables, [], 0
        return pa.concat_tables(tables) if tables else None


def change_table(changes: Changes, shape: Shape, offset: int, now: int) -> pa.Table:
    """The changes under the log's schema, `_offset` counted from `offset`, `_ts` = `now` where none is given.

    `_kg` is left to be filled. `_op` is 0 or `upsert` (also when absent), 1 or `delete`. An upsert brings every
    column, null only where it says so; a delete brings the key. Raises InvalidInputError, and takes nothing then.
    """
    given = changes if isinstance(changes, pa.Table) else _from_rows(changes, shape)
    _check_names(given.column_names, shape)
    count = given.num_rows
    op = _operations(given, count)
    filled: dict[str, Any] = {
        "_op": op,
        "_kg": pa.repeat(pa.scalar(0, pa.uint16()), count),
        "_partition": pa.repeat(pa.scalar(0, pa.int32()), count),
        "_offset": pa.arange(offset, offset + count),
        "_ts": _instants(given, now),
    }
    for name in order_columns(shape):
        filled[name] = filled["_offset"] if shape.order == ARRIVAL else _required(given, name, pa.int64())
    schema = change_schema(shape)
    for column in shape.columns:
        filled[column.name] = _user_column(given, column.name, schema.field(column.name).type, shape, op)
    return pa.table([filled[name] for name in schema.names], schema=schema)


def highest(table: pa.Table, shape: Shape) -> tuple[int, ...]:
    """The highest order in a table of changes, compared number by number."""
    high: list[int] = []
    for name in order_columns(shape):
        top = pc.max(table.column(name)).as_py()
        table = table.filter(pc.field(name) == top)
        high.append(top)
    return tuple(high)


def _from_rows(changes: Iterable[Mapping[str, Any]] | Mapping[str, Any], shape: Shape) -> pa.Table:
    rows = [changes] if isinstance(changes, Mapping) else list(changes)
    names = dict.fromkeys(name for row in rows for name in row)
    _check_names(list(names), shape)
    needed = {column.name for column in shape.columns}
    for number, row in enumerate(rows):
        missing = [] if row.get("_op") in (DELETE, "delete") else sorted(needed - row.keys())
        if missing:
            raise _wrong(f"Change {number} has no `{missing[0]}`", "Give every column; None stands for null.")
    types = {field.name: field.type for field in change_schema(shape)}
    try:
        # What only deletes bring in is null there.
        return pa.table({name: pa.array(_values(rows, name), types[name]) for name in {*names, *needed}})
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise _wrong(f"A value does not fit its column: {error}", "Give values of the log's types.") from error


def _values(rows: list[Mapping[str, Any]], name: str) -> list[Any]:
    if name != "_op":
        return [row.get(name) for row in rows]
    given = [row.get("_op", UPSERT) for row in rows]
    return [_WORDS.get(op, op) if isinstance(op, str) else op for op in given]


def _check_names(names: list[str], shape: Shape) -> None:
    known = {"_op", "_ts"} | {column.name for column in shape.columns}
    known |= set() if shape.order == ARRIVAL else set(order_columns(shape))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise _wrong(f"`{unknown[0]}` is no column of the log", f"Columns are {', '.join(sorted(known))}.")


def _operations(given: pa.Table, count: int) -> pa.Array | pa.ChunkedArray:
    if "_op" not in given.column_names:
        return pa.repeat(pa.scalar(UPSERT, pa.int8()), count)
    op = given.column("_op")
    if pa.types.is_string(op.type) or pa.types.is_large_string(op.type):
        words = pa.array(list(_WORDS), op.type)
        op = pc.index_in(op, words)  # The words stand in the order of their numbers.
    if not pa.types.is_integer(op.type):
        raise _wrong(f"`_op` cannot be {op.type}", "Use 0 or `upsert`, 1 or `delete`.")
    if count and not pc.all(pc.is_in(op, pa.array([UPSERT, DELETE], op.type)), skip_nulls=False).as_py():
        raise _wrong("An `_op` is none that there is", "Use 0 or `upsert`, 1 or `delete`.")
    return op.cast(pa.int8())


def _instants(given: pa.Table, now: int) -> Any:
    if "_ts" not in given.column_names:
        return pa.repeat(pa.scalar(now, pa.int64()), given.num_rows)
    return pc.fill_null(_cast(given, "_ts", pa.int64()), now)


def _user_column(given: pa.Table, name: str, type_: pa.DataType, shape: Shape, op: Any) -> Any:
    if name in shape.key:
        return _required(given, name, type_)
    deleted = pc.equal(op, DELETE)
    if name not in given.column_names:
        if not pc.all(deleted, min_count=0).as_py():
            raise _wrong(f"`{name}` is missing", "Give every column; null where there is no value.")
        return pa.nulls(given.num_rows, type_)
    column = _cast(given, name, type_)
    return pc.if_else(deleted, pa.scalar(None, type_), column) if pc.any(deleted, min_count=0).as_py() else column


def _required(given: pa.Table, name: str, type_: pa.DataType) -> Any:
    if name not in given.column_names:
        raise _wrong(f"`{name}` is missing", "Every change needs the key, and its order if the log has one.")
    column = _cast(given, name, type_)
    if column.null_count:
        raise _wrong(f"`{name}` is null in a change", "Every change needs the key, and its order if the log has one.")
    return column


def _cast(given: pa.Table, name: str, type_: pa.DataType) -> pa.ChunkedArray:
    column = given.column(name)
    try:
        return column if column.type == type_ else column.cast(type_)
    except pa.ArrowException as error:
        raise _wrong(f"`{name}` does not fit {type_}: {error}", "Give values of the log's types.") from error


def _wrong(what: str, hint: str) -> InvalidInputError:
    return InvalidInputError("CHANGES_INVALID", f"{what}; nothing was appended.", hint=hint)
