"""Of each key its newest change, by one sort in Arrow: what most folds are, in a third of the time that SQL takes.

`find` says when it is no case for that: then the statements of the engine are (fold/engines).

Rows by their keys, in Arrow: where some are, and a sorted stream with some replaced, without a sort of the whole.

Files of a table are sorted by key, since every fold writes them so. What comes out is right also for one that is not:
then only its order is not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.schema import DELETE, UPSERT, has_absent, order_columns, place_columns, table_schema
from tidefold.changelog.segment import at_least
from tidefold.domain.table.table_spec import ARRIVAL, Engine, TableSpec

# What is sorted, and what is taken from it, are about so many times the changes.
_TIMES = 4


@dataclass(frozen=True, slots=True)
class Newest:
    """`keys` that changes say anything about, and the `rows` of those that are there afterwards, both sorted by key."""

    keys: pa.Table
    rows: pa.Table
    deletes: int


def find(changes: pa.Table, cleared: tuple[int, ...], shape: TableSpec, memory: int) -> Newest | None:
    """The newest changes. None: they are no plain upserts and deletes of a log in its own order, or tied, or more than
    can be sorted within `memory` bytes, so that it must be done where they can be put on a disk.

    `changes` have no clears; those before `cleared`, the order of the highest one so far, do not count.
    """
    if changes.nbytes * _TIMES > memory or not is_plain(changes, shape):
        return None
    names = [*shape.key, *place_columns(shape)]
    # What was cleared without an order is placed by its position.
    if (cleared and len(cleared) != shape.order_width) or any(changes.column(name).null_count for name in names):
        return None
    if cleared:
        changes = changes.filter(at_least(cleared))
    places = changes.select(names).combine_chunks()
    order = pc.sort_indices(places, [(name, "ascending") for name in names])
    ordered = places.take(order)
    ends = _changing(ordered, shape.key)
    if _has_ties(ordered, ends, shape):
        return None
    last = changes.take(pa.array(order.to_numpy()[ends]))
    schema, ops = table_schema(shape), last.column("_op")
    keys = last.select(list(shape.key)).cast(pa.schema([schema.field(name) for name in shape.key]))
    rows = last.filter(pc.equal(ops, UPSERT)).select(schema.names).cast(schema)
    return Newest(keys, rows, pc.sum(pc.equal(ops, DELETE)).as_py() or 0)


def is_plain(changes: pa.Table, shape: TableSpec) -> bool:
    """Whether each change says all of its row, and is newer than what is there."""
    return shape.merge.engine is Engine.LAST and shape.source_ordered and not has_absent(changes)


def _changing(ordered: pa.Table, names: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """The rows after which a value of these columns is another, and the last one."""
    if not ordered.num_rows:
        return np.empty(0, bool)
    columns = (ordered.column(name).combine_chunks() for name in names)
    differ = (pc.not_equal(one[1:], one[:-1]).to_numpy(zero_copy_only=False) for one in columns)
    return np.append(reduce(np.logical_or, differ), True)


def _has_ties(ordered: pa.Table, ends: npt.NDArray[np.bool_], shape: TableSpec) -> bool:
    """Whether a key has two changes of one order: SQL finds out whether they say different things."""
    orders = order_columns(shape)
    if not orders or shape.order == ARRIVAL:
        return False
    return not bool(np.all(ends | _changing(ordered, orders)))


Numbers = npt.NDArray[np.int64]


def rows_of(batch: pa.RecordBatch, keys: pa.Table) -> Numbers:
    """The numbers of the rows that have one of these keys, rising; `keys` has the columns of the key and no other."""
    names = keys.column_names
    if len(names) == 1:
        column = batch.column(names[0])
        found = pc.is_in(column, keys.column(0).combine_chunks().cast(column.type))
        return np.flatnonzero(found.to_numpy(zero_copy_only=False))
    rows = pa.Table.from_batches([batch.select(names)]).cast(keys.schema)
    numbered = rows.append_column("", pa.array(np.arange(batch.num_rows)))
    # Its rows come in no order that is promised.
    return np.sort(numbered.join(keys, names, join_type="left semi", use_threads=False).column("").to_numpy())


def replace_rows(base: Iterable[pa.RecordBatch], keys: pa.Table, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """The base without the rows of `keys`, and with `rows`, in the order of the key. All three are sorted by it.

    Of `base` one batch is in memory at a time.
    """
    names, start = keys.column_names, 0
    gone, coming = _KeyOrder(keys, names[:1]), _KeyOrder(rows, names)
    for given in base:
        if not given.num_rows:
            continue
        # Of the same types; whether a key may be null is said by who reads it.
        batch = pa.RecordBatch.from_arrays(given.columns, schema=rows.schema)
        span = pc.min_max(batch.column(names[0]))
        near = gone.within((span["min"].as_py(),), (span["max"].as_py(),))
        end = coming.after(tuple(batch.column(name)[-1].as_py() for name in names), start)
        yield from _merge_batch(batch, near, rows.slice(start, end - start))
        start = end
    yield from rows.slice(start).to_batches()


def _merge_batch(batch: pa.RecordBatch, gone: pa.Table, coming: pa.Table) -> Iterator[pa.RecordBatch]:
    """A batch without the rows of the keys that go, and with the rows that come."""
    hit = rows_of(batch, gone) if gone.num_rows else np.empty(0, np.int64)
    if not len(hit) and not coming.num_rows:
        yield batch
        return
    kept = np.delete(np.arange(batch.num_rows), hit)
    if not coming.num_rows:
        yield batch.take(pa.array(kept))
        return
    both = pa.concat_tables([pa.Table.from_batches([batch]), coming]).combine_chunks()
    chosen = np.concatenate([kept, np.arange(batch.num_rows, both.num_rows)])
    yield from both.take(pa.array(chosen[_order(both.select(gone.column_names), chosen)])).to_batches()


def _order(keys: pa.Table, chosen: Numbers) -> Numbers:
    """How the chosen rows are put in order."""
    if len(keys.column_names) == 1 and _is_numeric(keys.schema[0].type):
        # Two sorted runs: numpy merges them, Arrow would sort.
        values = keys.column(0).combine_chunks().view(_WIDTHS[keys.schema[0].type.bit_width]).to_numpy()
        return np.asarray(np.argsort(values[chosen], kind="stable"))
    ordered = keys.take(pa.array(chosen))
    return np.asarray(pc.sort_indices(ordered, [(name, "ascending") for name in keys.column_names]).to_numpy())


_WIDTHS = {32: pa.int32(), 64: pa.int64()}


def _is_numeric(type_: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(type_) or pa.types.is_temporal(type_)) and type_.bit_width in _WIDTHS


class _KeyOrder:
    """A sorted table to be searched by the values of some columns. Python compares text as Arrow and DuckDB do."""

    def __init__(self, table: pa.Table, names: Sequence[str]) -> None:
        self._table = table
        self._columns = [table.column(name).combine_chunks() for name in names]

    def _key(self, number: int) -> tuple[Any, ...]:
        return tuple(column[number].as_py() for column in self._columns)

    def within(self, first: tuple[Any, ...], last: tuple[Any, ...]) -> pa.Table:
        numbers = range(self._table.num_rows)
        start = bisect_left(numbers, first, key=self._key)
        return self._table.slice(start, bisect_right(numbers, last, lo=start, key=self._key) - start)

    def after(self, key: tuple[Any, ...], start: int) -> int:
        """The number of the first row from `start` on that comes after the key."""
        return bisect_right(range(self._table.num_rows), key, lo=start, key=self._key)
