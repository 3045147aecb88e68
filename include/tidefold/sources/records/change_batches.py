"""Builds the Arrow table of a file's changes, with the columns of a change set; a spool holds long ones."""

from __future__ import annotations

import mmap
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import IO, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.key_group_hash import with_key_groups
from tidefold.changelog.schema import (
    BEFORE_INSERTS,
    CLEAR,
    DELETE,
    MERGE,
    UPSERT,
    arrow_type,
    change_schema,
    has_absent,
    order_columns,
    sort_by_key_group,
)
from tidefold.domain.log_state import Column, TableSpec
from tidefold.domain.table.table_spec import Deletes, Engine
from tidefold.domain.table.types import parse_value
from tidefold.errors import InvalidInputError
from tidefold.sources.feed import Feed
from tidefold.sources.records.accounting import Batch
from tidefold.sources.records.record_types import field

# Bytes of changes of one landed file that stay in memory; a sort copies them at once.
SPOOL_MEMORY = 60 << 20
_OPERATIONS = {UPSERT: "UPSERT", DELETE: "DELETE", CLEAR: "CLEAR", MERGE: "MERGE"}
# Batches of changes that are written at once, each of other key groups.
_PARTS = 64
_GROUPED_ROWS = 65_536


class ChangeSpool:
    """Collects record batches of one schema. A landed file of any size needs no more memory than SPOOL_MEMORY.

    What it writes is sorted by key group, so that the segment's sort reads each part of the file once.
    """

    def __init__(self, shape: TableSpec) -> None:
        self._shape = shape
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > SPOOL_MEMORY:
            self._write_waiting()

    def to_table(self) -> pa.Table | None:
        """Returns all changes, in any order. None: there are none. Nothing can be added after it."""
        if self._file is None or self._writer is None:
            return pa.Table.from_batches(self._waiting) if self._waiting else None
        self._write_waiting()
        self._writer.close()
        self._file.flush()
        # The mapping keeps the bytes on disk, although the file has no name.
        content = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        self._file.close()
        return pa.ipc.open_file(pa.BufferReader(pa.py_buffer(content))).read_all()

    def _write_waiting(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by to_table)
            self._writer = pa.ipc.new_file(self._file, self._waiting[0].schema)
        batches: Iterable[pa.RecordBatch] = self._waiting
        if self._shape.key:  # The place of other rows, which decides their key group, is not known yet.
            [table] = _fill([pa.Table.from_batches(self._waiting)], self._shape)
            batches = sort_by_key_group(table, -(-table.num_rows // _PARTS))
        for batch in batches:
            self._writer.write_batch(batch)
        self._waiting, self._bytes = [], 0


def with_commit_times(table: pa.Table, shape: TableSpec, feed: Feed, horizon: int | None = None) -> pa.Table:
    """Returns the same changes with their commit times. Raises InvalidInputError if a source of one's own erred.

    `commit_time`, an order column: they come from it. `write_time`, a column of the table: they are written to it.
    """
    if feed.own and (why := _find_fault(table, shape, feed, horizon)):
        raise InvalidInputError("SOURCE_FAILED", f"Source `{feed.own}` gave {why}.")
    column, written = feed.options.get("commit_time"), feed.options.get("write_time")
    if column is not None:
        times = table.column(order_columns(shape)[shape.order_by.index(column)])
        table = table.set_column(table.schema.get_field_index("_ts"), table.schema.field("_ts"), times)
    return table if written is None else _with_write_time(table, written)


def _find_fault(changes: pa.Table, shape: TableSpec, feed: Feed, horizon: int | None) -> str:
    """Returns what is wrong with the changes of a source of one's own, which no log of this definition has."""
    op, offset, time = (changes.column(name) for name in ("_op", "_offset", "_ts"))
    orders, merge = [changes.column(name) for name in order_columns(shape)], shape.merge
    takes = {MERGE if merge.engine is Engine.AGGREGATE else UPSERT}
    takes |= {DELETE} if shape.key and merge.deletes is Deletes.APPLY else set()
    if strange := {*op.unique().to_pylist()} - takes:
        told, taken = (", ".join(_OPERATIONS.get(op, f"{op}") for op in sorted(ops)) for ops in (strange, takes))
        return f"{told}: a log with `merge: {merge.engine}` and `deletes: {merge.deletes}` takes only {taken}"
    # Far below 0 is half of an update.
    if pc.any(pc.and_(pc.less(offset, 0), pc.greater(offset, -BEFORE_INSERTS // 2))).as_py():
        return "a negative offset: a record without an offset has its number in the file, `at.number`"
    if any(one.null_count for one in (offset, *orders)):
        return "a change without its offset or its order"
    if orders and horizon is not None and pc.min(orders[0]).as_py() < horizon:
        return f"an order below {horizon}, before which changes are late"
    if time.null_count and (feed.options.get("write_time") or (merge.engine is Engine.HISTORY and len(orders) != 1)):
        return "a change without its time, which `ttl.on` or `merge: history` needs"
    return ""


def _with_write_time(table: pa.Table, column: str) -> pa.Table:
    """Returns the changes with the commit time in a column of the rows that they write."""
    field_ = table.schema.field(column)
    times = table.column("_ts").cast(pa.timestamp("us")).cast(field_.type)
    writes = pc.is_in(table.column("_op"), pa.array([UPSERT, MERGE], pa.int8()))
    times = pc.if_else(writes, times, pa.scalar(None, field_.type))
    table = table.set_column(table.schema.get_field_index(column), field_, times)
    if not has_absent(table):
        return table
    absent = table.schema.field("_absent")
    lists = [[name for name in names or () if name != column] or None for names in table.column("_absent").to_pylist()]
    return table.set_column(table.schema.get_field_index("_absent"), absent, pa.array(lists, absent.type))


def spread_by_file(table: pa.Table, name: str) -> pa.Table:
    """Returns rows without a key under a partition from the name of their file, which decides the key group.

    The number of the file, which the ledger gives later, replaces it when the rows are read.
    """
    field_ = table.schema.field("_partition")
    partition = pa.scalar(zlib.crc32(name.encode()) & 0x7FFFFFFF, field_.type)
    return table.set_column(table.schema.get_field_index("_partition"), field_, pa.repeat(partition, table.num_rows))


class TableBuilder:
    """Collects batches. `to_table`: their changes, key groups not yet filled; None: there are none."""

    def __init__(self, shape: TableSpec, partition: int) -> None:
        self._shape = shape
        self._partition = partition
        self._schema = change_schema(shape)
        self._spool = ChangeSpool(shape)

    def add(self, batch: Batch) -> None:
        if batch.ops:
            self._spool.add(self._record_batch(batch))

    def to_table(self) -> pa.Table | None:
        return self._spool.to_table()

    def _record_batch(self, batch: Batch) -> pa.RecordBatch:
        batch, groups = _spread(batch, self._shape)
        count, width = len(batch.ops), len(order_columns(self._shape))
        if wrong := {*map(len, batch.orders)} - {width}:
            raise ValueError(f"it gave {wrong.pop()} order values, the log needs {width}")
        arrays = [pa.array(batch.ops, pa.int8()), pa.array(groups, pa.uint16())]
        arrays += [pa.array([order[i] for order in batch.orders], pa.int64()) for i in range(width)]
        arrays.append(pa.repeat(pa.scalar(self._partition, pa.int32()), count))
        arrays.append(pa.array(batch.offsets, pa.int64()))
        arrays.append(pa.array(batch.times, pa.int64()))
        arrays.append(pa.array(batch.absent, self._schema.field("_absent").type))
        for index, column in enumerate(self._shape.columns):
            values = list(map(attrgetter(field(index)), batch.rows))
            if column.may_lack:
                # A record that lacks the column is older than the column.
                value = None if column.default is None else _raw(column, column.default)
                values = [value if one is msgspec.UNSET else one for one in values]
            arrays.append(_ARRAYS.get(column.type, pa.array)(values, self._schema.field(column.name).type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _spread(batch: Batch, shape: TableSpec) -> tuple[Batch, list[int | None]]:
    """The batch with one clear of the whole table for each key group, so that every bucket has it; and the groups."""
    if CLEAR not in batch.ops:
        return batch, [None] * len(batch.ops)
    spread, groups = Batch(), list[int | None]()
    for at, op in enumerate(batch.ops):
        whole = op == CLEAR and is_empty(batch.rows[at], shape)
        for group in range(shape.key_groups) if whole else (None,):
            spread.add(op, batch.orders[at], batch.offsets[at], batch.times[at], batch.rows[at], batch.absent[at])
            groups.append(group)
    return spread, groups


def is_empty(row: Any, shape: TableSpec) -> bool:
    """Whether a row has no value of any column. What is ignored comes after the columns."""
    return all(value is None for value in msgspec.structs.astuple(row)[: len(shape.columns)])


def fill_key_groups(tables: Iterable[pa.Table], shape: TableSpec) -> Iterator[pa.Table]:
    """The same tables with key groups, computed for many small ones at once."""
    waiting: list[pa.Table] = []
    rows = 0
    for table in tables:
        waiting.append(table)
        rows += table.num_rows
        if rows >= _GROUPED_ROWS:
            yield from _fill(waiting, shape)
            waiting, rows = [], 0
    if waiting:
        yield from _fill(waiting, shape)


def _fill(tables: Sequence[pa.Table], shape: TableSpec) -> Iterator[pa.Table]:
    whole = pa.concat_tables(tables)
    groups = whole.column("_kg")
    if not groups.null_count:
        yield from tables
        return
    filled = with_key_groups(whole, shape)
    if groups.null_count < len(groups):
        index = filled.schema.get_field_index("_kg")
        filled = filled.set_column(index, filled.schema.field(index), pc.coalesce(groups, filled.column("_kg")))
    position = 0
    for table in tables:
        yield filled.slice(position, table.num_rows)
        position += table.num_rows


def _raw(column: Column, text: str) -> Any:
    """The value that a text means, as decoded rows have it."""
    value = pa.scalar(parse_value(column.type, text), arrow_type(column.type))
    return to_decoded(pa.array([value], value.type))[0]


def to_decoded(values: Any) -> list[Any]:
    """Values of a column as decoded rows have them: dates and times as numbers."""
    kind = pa.int64() if pa.types.is_timestamp(values.type) else pa.int32() if pa.types.is_date(values.type) else None
    decoded: list[Any] = (values.cast(kind) if kind else values).to_pylist()
    return decoded


def _floats(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    # NaN and the infinities come as text, and a whole number may come without a point.
    return pa.array([None if v is None else float(v) for v in values], type_)


_ARRAYS: dict[str, Callable[[Sequence[Any], pa.DataType], pa.Array]] = {
    "float": _floats,
    "double": _floats,
    "date": lambda values, type_: pa.array(values, pa.int32()).cast(type_),
    "timestamp": lambda values, type_: pa.array(values, pa.int64()).cast(type_),
}
