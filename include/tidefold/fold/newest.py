"""Of each key its newest change, by one sort in Arrow: what most folds are, in a third of the time that SQL takes.

`find` says when it is no case for that: then the statements of the engine are (fold/engines).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.columns import DELETE, UPSERT, has_absent, order_columns, place_columns, table_schema
from tidefold.changelog.selection import at_least
from tidefold.lifecycle.shape import ARRIVAL, Engine, Shape

# What is sorted, and what is taken from it, are about so many times the changes.
_TIMES = 4


@dataclass(frozen=True, slots=True)
class Newest:
    """`keys` that changes say anything about, and the `rows` of those that are there afterwards, both sorted by key."""

    keys: pa.Table
    rows: pa.Table
    deletes: int


def find(changes: pa.Table, cleared: tuple[int, ...], shape: Shape, memory: int) -> Newest | None:
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


def is_plain(changes: pa.Table, shape: Shape) -> bool:
    """Whether each change says all of its row, and is newer than what is there."""
    return shape.merge.engine is Engine.LAST and shape.own_order and not has_absent(changes)


def _changing(ordered: pa.Table, names: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """The rows after which a value of these columns is another, and the last one."""
    if not ordered.num_rows:
        return np.empty(0, bool)
    columns = (ordered.column(name).combine_chunks() for name in names)
    differ = (pc.not_equal(one[1:], one[:-1]).to_numpy(zero_copy_only=False) for one in columns)
    return np.append(reduce(np.logical_or, differ), True)


def _has_ties(ordered: pa.Table, ends: npt.NDArray[np.bool_], shape: Shape) -> bool:
    """Whether a key has two changes of one order: SQL finds out whether they say different things."""
    orders = order_columns(shape)
    if not orders or shape.order == ARRIVAL:
        return False
    return not bool(np.all(ends | _changing(ordered, orders)))
