"""Converts appended rows to a table of changes of the log. It checks every column and fills the system columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.schema import ARRIVAL, DELETE, UPSERT, change_schema, order_columns
from tidefold.changelog.writer.type_coercion import fit_column, fit_values, format_value, wrong
from tidefold.domain.log_state import TableSpec
from tidefold.errors import InvalidInputError

Changes: TypeAlias = pa.Table | Iterable[Mapping[str, Any]] | Mapping[str, Any]
_WORDS = {"upsert": UPSERT, "delete": DELETE}


class Buffer:
    """Collects appended tables until they become one."""

    def __init__(self) -> None:
        self.bytes = 0
        self._tables: list[pa.Table] = []

    def add(self, table: pa.Table) -> None:
        if table.num_rows:
            self._tables.append(table)
            self.bytes += table.nbytes

    def take(self) -> pa.Table | None:
        """Removes and returns everything as one table; None if it is empty."""
        tables, self._tables, self.bytes = self._tables, [], 0
        return pa.concat_tables(tables) if tables else None


def change_table(changes: Changes, shape: TableSpec, offset: int, now: int) -> pa.Table:
    """Returns the changes in the log's schema, with `_offset` counted from `offset`, and `_ts` = `now` if not given.

    `_kg` is filled later. `_op` is 0 or `upsert` (the default), 1 or `delete`. An upsert must have every column, with
    explicit nulls. A delete must have the key. Raises InvalidInputError, and accepts nothing then.
    """
    given = changes if isinstance(changes, pa.Table) else _from_rows(changes, shape)
    _check_names(given.column_names, shape)
    schema, count = change_schema(shape), given.num_rows
    if not count:
        return schema.empty_table()
    op = _operations(given, count)
    filled: dict[str, Any] = {
        "_op": op,
        "_kg": pa.repeat(pa.scalar(0, pa.uint16()), count),
        "_partition": pa.repeat(pa.scalar(0, pa.int32()), count),
        "_offset": pa.arange(offset, offset + count),
        "_ts": _instants(given, now),
        "_absent": pa.nulls(count, pa.list_(pa.string())),
    }
    for name in order_columns(shape):
        filled[name] = filled["_offset"] if shape.order == ARRIVAL else _require_column(given, name, pa.int64())
    for column in shape.columns:
        filled[column.name] = _user_column(given, column.name, schema.field(column.name).type, shape, op)
    return pa.table([filled[name] for name in schema.names], schema=schema)


def highest(table: pa.Table, shape: TableSpec) -> tuple[int, ...]:
    """Returns the highest order in a table of changes, compared number by number."""
    high: list[int] = []
    for name in order_columns(shape):
        top = pc.max(table.column(name)).as_py()
        table = table.filter(pc.field(name) == top)
        high.append(top)
    return tuple(high)


def _from_rows(changes: Iterable[Mapping[str, Any]] | Mapping[str, Any], shape: TableSpec) -> pa.Table:
    rows = _mappings(changes)
    names = dict.fromkeys(name for row in rows for name in row)
    _check_names(list(names), shape)
    needed = {column.name for column in shape.columns}
    ops = [_operation(row.get("_op", UPSERT), number) for number, row in enumerate(rows)]
    for number, (row, op) in enumerate(zip(rows, ops, strict=True)):
        missing = [] if op == DELETE else sorted(needed - row.keys())
        if missing:
            raise wrong(f"Change {number} has no `{missing[0]}`", "Give every column; None stands for null.")
    types = {field.name: field.type for field in change_schema(shape)}
    # What only deletes bring in is null there.
    others = [name for name in {**names, **dict.fromkeys(needed)} if name != "_op"]
    filled = {name: fit_values(name, [row.get(name) for row in rows], types[name]) for name in others}
    return pa.table({**filled, "_op": pa.array(ops, pa.int8())})


def _mappings(changes: object) -> list[Mapping[str, Any]]:
    hint = "Give a pyarrow.Table, rows as mappings of column to value, or one such row."
    if isinstance(changes, Mapping):
        return [changes]
    if not isinstance(changes, Iterable):
        raise wrong(f"{format_value(changes)} is no changes", hint)
    rows = list(changes)
    for number, row in enumerate(rows):
        if type(row) is not dict and not isinstance(row, Mapping):
            raise wrong(f"Change {number} is {format_value(row)} ({type(row).__name__}), no mapping", hint)
    return rows


def _operation(given: object, number: int) -> int:
    if type(given) is int and given in (UPSERT, DELETE):
        return given
    op = _WORDS.get(given) if isinstance(given, str) else given
    if isinstance(op, bool) or not isinstance(op, Integral) or op not in (UPSERT, DELETE):
        raise _no_operation(given, number)
    return int(op)


def _no_operation(given: object, number: int) -> InvalidInputError:
    return wrong(
        f"`_op` of change {number} is {format_value(given)}, which is none", "Use 0 or `upsert`, 1 or `delete`."
    )


def _check_names(names: list[str], shape: TableSpec) -> None:
    known = {"_op", "_ts"} | {column.name for column in shape.columns}
    known |= set() if shape.order == ARRIVAL else set(order_columns(shape))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise wrong(f"{format_value(unknown[0])} is no column of the log", f"Columns are {', '.join(sorted(known))}.")
    if len(names) > len(set(names)):
        twice = next(name for name in names if names.count(name) > 1)
        raise wrong(f"`{twice}` is there twice", "Give every column once.")


def _operations(given: pa.Table, count: int) -> pa.Array | pa.ChunkedArray:
    if "_op" not in given.column_names:
        return pa.repeat(pa.scalar(UPSERT, pa.int8()), count)
    op = given.column("_op")
    if pa.types.is_integer(op.type):
        known = pc.is_in(op, pa.array([UPSERT, DELETE], op.type))
    else:
        words = fit_column("_op", op, pa.string())
        op = pc.index_in(words, pa.array(list(_WORDS)))  # The words are in the order of their numbers.
        known = op.is_valid()
    odd = pc.index(known, False).as_py()
    if odd >= 0:
        raise _no_operation(given.column("_op")[odd].as_py(), odd)
    return op.cast(pa.int8())


def _instants(given: pa.Table, now: int) -> Any:
    if "_ts" not in given.column_names:
        return pa.repeat(pa.scalar(now, pa.int64()), given.num_rows)
    return pc.fill_null(fit_column("_ts", given.column("_ts"), pa.int64()), now)


def _user_column(given: pa.Table, name: str, type_: pa.DataType, shape: TableSpec, op: Any) -> Any:
    if name in shape.key:
        return _require_column(given, name, type_)
    deleted = pc.equal(op, DELETE)
    if name not in given.column_names:
        if not pc.all(deleted, min_count=0).as_py():
            raise wrong(f"`{name}` is missing", "Give every column; null where there is no value.")
        return pa.nulls(given.num_rows, type_)
    column = fit_column(name, given.column(name), type_)
    return pc.if_else(deleted, pa.scalar(None, type_), column) if pc.any(deleted, min_count=0).as_py() else column


def _require_column(given: pa.Table, name: str, type_: pa.DataType) -> Any:
    hint = "Every change needs the key, and its order if the log has one."
    if name not in given.column_names:
        raise wrong(f"`{name}` is missing", hint)
    column = fit_column(name, given.column(name), type_)
    if column.null_count:
        raise wrong(f"`{name}` of change {pc.index(column.is_null(), True).as_py()} is null", hint)
    return column
