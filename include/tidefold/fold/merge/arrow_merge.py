"""Finds the newest change of each key by one sort in Arrow, a third of SQL's time, and counts ties.

`find` returns None for all other cases, which the SQL statements of the engines handle (fold/merge/engines).

The module also replaces rows of a sorted stream by key without sorting the whole. Every fold writes files sorted by
key. If a file is not sorted, the result is still right, except for its order.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.key_group_hash import quote_name
from tidefold.changelog.schema import DELETE, UPSERT, has_absent, order_columns, place_columns, table_schema
from tidefold.changelog.segment import at_least
from tidefold.domain.table.table_spec import ARRIVAL, ORDER, Engine, TableSpec
from tidefold.fold.merge.engines.statements import ALIVE, TIE, UNRESOLVED, hash_values, key_list, order_of, values

if TYPE_CHECKING:
    import duckdb

# The sort and its result take about this many times the bytes of the changes.
_TIMES = 4
RowNumbers = npt.NDArray[np.int64]
_WIDTHS = {32: pa.int32(), 64: pa.int64()}
# A tie is two changes of one key with the same order and other content. The later place counts. A tie among changes is
# found by SQL. A tie of a change with the row of the base is a mark beside the merged row, as a value that was not
# sent is. The marks are removed while the rows are read.
TIED = "tied"
# What a listed tie has if a delete counts that is half of an update, and whose other half landed in an earlier file.
PARTED = "_parted"
# This many are listed by name. The others are only counted.
LISTED = 20
_DECIDING = (Engine.LAST, Engine.FIRST, Engine.PARTIAL, Engine.HISTORY)
_MARKS = (UNRESOLVED, TIE, ALIVE)


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest changes.

    keys: the keys that have a change, sorted.
    rows: the rows of those keys that exist afterwards, sorted by key.
    """

    keys: pa.Table
    rows: pa.Table
    deletes: int


def find(
    changes: pa.Table, cleared: tuple[int, ...], shape: TableSpec, memory: int, is_first: bool = False
) -> Newest | None:
    """Finds the newest changes. Returns None if SQL must do it.

    That is so if the changes are not plain upserts and deletes of a log in its own order, if they have ties, or if they
    need more than `memory` bytes to sort. If columns order the log, only the first fold is plain, without deletes.

    changes: without clears.
    cleared: the order of the highest clear so far; changes before it do not count.
    is_first: there is nothing that the changes could be older than: no row, and nothing beside rows.
    """
    if changes.nbytes * _TIMES > memory or not (is_plain(changes, shape) or (is_first and _is_whole(changes, shape))):
        return None
    names = [*shape.key, *place_columns(shape)]
    # What was cleared without an order is placed by its position. To SQL, not to Arrow, NaN is equal to itself.
    if (
        (cleared and len(cleared) != shape.order_width)
        or any(changes.column(name).null_count for name in names)
        or any(pa.types.is_floating(changes.column(name).type) for name in shape.key)
    ):
        return None
    if cleared:
        changes = changes.filter(at_least(cleared))
    changes = changes.combine_chunks()
    keys = changes.select(list(shape.key))
    order = _order(keys, np.arange(len(keys)))
    ends = _changing(keys.take(pa.array(order)), shape.key)
    if not bool(np.all(ends)):
        # Keys that come twice: among their changes the place decides.
        places = changes.select(names)
        order = pc.sort_indices(places, [(name, "ascending") for name in names]).to_numpy()
        ordered = places.take(pa.array(order))
        ends = _changing(ordered, shape.key)
        if _has_ties(ordered, ends, shape):
            return None
    last = changes.take(pa.array(order[ends]))
    if shape.stores_order:
        last = last.append_column(ORDER, _list_places(last, shape))
    schema, ops = table_schema(shape), last.column("_op")
    keys = select_keys(last, shape)
    deletes = pc.sum(pc.equal(ops, DELETE)).as_py() or 0
    rows = last.filter(pc.equal(ops, UPSERT)) if deletes else last
    return Newest(keys, rows.select(schema.names).cast(schema), deletes)


def select_keys(changes: pa.Table, shape: TableSpec) -> pa.Table:
    """Returns the key of each change, with the types of the table."""
    schema = table_schema(shape)
    return changes.select(list(shape.key)).cast(pa.schema([schema.field(name) for name in shape.key]))


def _is_whole(changes: pa.Table, shape: TableSpec) -> bool:
    """Whether each change contains its whole row, and only the newest of a key counts. A delete would be kept."""
    is_upserts = pc.all(pc.equal(changes.column("_op"), UPSERT)).as_py()
    return shape.merge.engine is Engine.LAST and is_upserts and not has_absent(changes)


def _list_places(changes: pa.Table, shape: TableSpec) -> pa.Array:
    """Returns the place of each change as a list, as SQL makes it."""
    columns = [changes.column(name).to_numpy() for name in place_columns(shape)]
    ends = np.arange(0, len(changes) * len(columns) + 1, len(columns), dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(np.stack(columns, axis=1, dtype=np.int64).ravel()))


def is_plain(changes: pa.Table, shape: TableSpec) -> bool:
    """Whether each change contains its whole row, and is newer than the existing row."""
    return shape.replaces_rows and not has_absent(changes)


def _changing(ordered: pa.Table, names: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """Returns the rows after which a value of these columns changes, and the last row."""
    if not ordered.num_rows:
        return np.empty(0, bool)
    columns = (ordered.column(name).combine_chunks() for name in names)
    differ = (pc.not_equal(one[1:], one[:-1]).to_numpy(zero_copy_only=False) for one in columns)
    return np.append(reduce(np.logical_or, differ), True)


def _has_ties(ordered: pa.Table, ends: npt.NDArray[np.bool_], shape: TableSpec) -> bool:
    """Whether a key has two changes of the same order. SQL then decides whether they differ."""
    orders = order_columns(shape)
    if not orders or shape.order == ARRIVAL:
        return False
    return not bool(np.all(ends | _changing(ordered, orders)))


def rows_of(batch: pa.RecordBatch, keys: pa.Table) -> RowNumbers:
    """Returns the ascending numbers of the rows with one of these keys. `keys` has only the key columns."""
    names = keys.column_names
    if len(names) == 1:
        column = batch.column(names[0])
        if (numbers := _search(column, keys.column(0))) is not None:
            return numbers
        matches = pc.is_in(column, keys.column(0).combine_chunks().cast(column.type))
        return np.flatnonzero(matches.to_numpy(zero_copy_only=False))
    rows = pa.Table.from_batches([batch.select(names)]).cast(keys.schema)
    numbered = rows.append_column("", pa.array(np.arange(batch.num_rows)))
    # Its rows come in no order that is promised.
    return np.sort(numbered.join(keys, names, join_type="left semi", use_threads=False).column("").to_numpy())


def _search(column: pa.Array, wanted: pa.ChunkedArray) -> RowNumbers | None:
    """Finds the rows by binary search, in a tenth of the time; None: these are not whole numbers that rise."""
    if column.null_count or not (pa.types.is_integer(column.type) and pa.types.is_integer(wanted.type)):
        return None
    numbers: RowNumbers = column.to_numpy()
    if not bool(np.all(numbers[1:] > numbers[:-1])):
        return None
    sought: RowNumbers = np.unique(wanted.drop_null().to_numpy())
    near = np.searchsorted(numbers, sought)
    is_inside = near < len(numbers)
    rows = near[is_inside]
    exact: RowNumbers = rows[numbers[rows] == sought[is_inside]]
    return exact


def replace_rows(base: Iterable[pa.RecordBatch], keys: pa.Table, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yields the base without the rows of `keys` and with `rows`, in the order of the key. All three are sorted by key.

    Only one batch of `base` is in memory at a time.
    """
    names, start = keys.column_names, 0
    gone, coming = _KeyOrder(keys, names[:1]), _KeyOrder(rows, names)
    for read in base:
        if not read.num_rows:
            continue
        # The types are the same. Only the nullability of the key may differ, which the reader sets.
        batch = pa.RecordBatch.from_arrays(read.columns, schema=rows.schema)
        span = pc.min_max(batch.column(names[0]))
        near = gone.within((span["min"].as_py(),), (span["max"].as_py(),))
        end = coming.after(tuple(batch.column(name)[-1].as_py() for name in names), start)
        yield from _merge_batch(batch, near, rows.slice(start, end - start))
        start = end
    yield from rows.slice(start).to_batches()


def _merge_batch(batch: pa.RecordBatch, gone: pa.Table, coming: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yields a batch without the rows to remove, and with the new rows."""
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


def _order(keys: pa.Table, chosen: RowNumbers) -> RowNumbers:
    """Returns the order that sorts the chosen rows."""
    if len(keys.column_names) == 1 and _is_numeric(keys.schema[0].type):
        # Two sorted runs: numpy merges them, Arrow would sort.
        values = keys.column(0).combine_chunks().view(_WIDTHS[keys.schema[0].type.bit_width]).to_numpy()
        return np.asarray(np.argsort(values[chosen], kind="stable"))
    ordered = keys.take(pa.array(chosen))
    return np.asarray(pc.sort_indices(ordered, [(name, "ascending") for name in keys.column_names]).to_numpy())


def _is_numeric(type_: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(type_) or pa.types.is_temporal(type_)) and type_.bit_width in _WIDTHS


class _KeyOrder:
    """A sorted table, searchable by values of some columns. Python compares text as Arrow and DuckDB do."""

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
        """Returns the number of the first row from `start` on that comes after the key."""
        return bisect_right(range(self._table.num_rows), key, lo=start, key=self._key)


@dataclass(slots=True)
class ListedKeys:
    """The number of some keys, and the first of them as JSON.

    apart: how many have ties between files or partitions, where neither a row nor an offset decides.
    """

    count: int = 0
    listed: tuple[str, ...] = ()
    apart: int = 0

    def add(self, count: int, listed: Iterable[str], apart: int = 0) -> None:
        self.count, self.apart = self.count + count, self.apart + apart
        self.listed = (*self.listed, *listed)[:LISTED]


def can_tie(shape: TableSpec) -> bool:
    """Whether a fold counts ties: two changes may have one order, and one of them counts."""
    return bool(shape.order_width) and shape.order != ARRIVAL and shape.merge.engine in _DECIDING


def hash_content(shape: TableSpec) -> str:
    """Returns what differs between two changes of one order if they are a tie; null for half of an update.

    Deletes have only a key and an order: what else a source says of the row, or a sidecar keeps, is no difference.
    """
    content = hash_values(shape, "_op", "_absent::VARCHAR")
    return f"CASE WHEN _offset >= -1 THEN CASE _op WHEN {DELETE} THEN hash(_op) ELSE {content} END END"


def group_ties(shape: TableSpec, relation: str, content: str) -> str:
    """Returns the FROM clause that leaves one row for each key and order of which the content differs.

    A delete that is half of an update is no tie with the other half, unless that landed in an earlier file.
    """
    names = ", ".join([key_list(shape), *order_columns(shape)])
    parted = f"count({content}) > 0 AND max([_partition, _offset])[2] < -1"
    return f"FROM {relation} GROUP BY {names} HAVING (min({content}) <> max({content}) OR ({parted}))"


def find_ties(connection: duckdb.DuckDBPyConnection, shape: TableSpec) -> ListedKeys:
    """Returns the ties among the changes that count (`live`), and makes TIED, the keys that have one.

    If columns order the log, a delete that the sidecar remembers takes part for the newest change of its key, as the
    row of the table does.
    """
    ties, key = ListedKeys(), key_list(shape)
    if not can_tie(shape):
        return ties
    connection.execute(f"CREATE TEMP TABLE {TIED} AS SELECT {key} FROM live LIMIT 0")
    order = ", ".join(order_columns(shape))
    rest = ", ".join(quote_name(column.name) for column in values(shape))
    names = f"{key}, {order}, _partition, _offset, _op, _absent{', ' if rest else ''}{rest}"
    relation = f"(SELECT {names} FROM live{_select_deletes(shape)})"
    [(count,)] = connection.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM {relation} GROUP BY {key}, {order} HAVING count(*) > 1)"
    ).fetchall()
    if not count:
        return ties
    groups = group_ties(shape, relation, hash_content(shape))
    connection.execute(f"INSERT INTO {TIED} SELECT DISTINCT {key} {groups}")
    [(count,)] = connection.execute(f"SELECT count(*) FROM {TIED}").fetchall()
    # Within a file the row decides, and within a partition the offset.
    [(apart,)] = connection.execute(
        f"SELECT count(*) FROM (SELECT DISTINCT {key} {groups} AND min(_partition) <> max(_partition))"
    ).fetchall()
    newest = f"max([{order}, _partition, _offset])"
    listed = connection.execute(f"SELECT {key}, {newest} {groups} ORDER BY {key}, {order} LIMIT {LISTED}").fetchall()
    ties.add(count, (_describe_tie(shape, dict(zip(shape.key, row, strict=False)), row[-1]) for row in listed), apart)
    return ties


def find_tied_versions(connection: duckdb.DuckDBPyConnection, shape: TableSpec) -> ListedKeys:
    """Returns the ties of a history that columns order: of its changes, also with the versions of the base."""
    ties, key = ListedKeys(), key_list(shape)
    # A version that equals the one before it is no point, and may have won a tie.
    rows = f"FROM {'versions' if shape.orders_by_file else 'points'} WHERE {TIE}"
    [(count,)] = connection.execute(f"SELECT count(DISTINCT ({key})) {rows}").fetchall()
    if count:
        query = f"SELECT {key}, _place {rows} ORDER BY {key}, _place"
        listed = connection.execute(f"{query} LIMIT {LISTED}").fetchall()
        described = (_describe_tie(shape, dict(zip(shape.key, row, strict=False)), row[-1]) for row in listed)
        ties.add(count, described, count)
    return ties


def _select_deletes(shape: TableSpec) -> str:
    if shape.source_ordered or not shape.needs_sidecar:
        return ""
    orders = ", ".join(f"_order[{i + 1}]" for i in range(shape.order_width))
    nothing = "".join(", NULL" for _ in values(shape))
    key, order = key_list(shape), ", ".join(order_columns(shape))
    newest = f"(SELECT {key}, max([{order}]) AS _newest FROM live GROUP BY {key}) USING ({key})"
    gone = f"hidden JOIN {newest} WHERE _column = '' AND _order[-1] >= -1 AND {order_of(shape, '_order')} = _newest"
    return f" UNION ALL SELECT {key}, {orders}, _order[-2], _order[-1], {DELETE}, NULL{nothing} FROM {gone}"


def _describe_tie(shape: TableSpec, key: dict[str, Any], place: Sequence[int]) -> str:
    """Returns the key and its order. place: of the change that counts; a delete that is half of an update is named."""
    parted = {PARTED: True} if place[-1] < -1 else {}
    return json.dumps({**key, "order": list(place[: shape.order_width]), **parted}, default=str)


def without_marks(
    stream: pa.RecordBatchReader, shape: TableSpec, ties: ListedKeys, left_out: list[pa.RecordBatch]
) -> pa.RecordBatchReader:
    """Returns the rows without their marks. While they are read, `ties` and `left_out` get the marked keys."""
    schema = pa.schema([one for one in stream.schema if one.name not in _MARKS])
    return pa.RecordBatchReader.from_batches(schema, _drop_marks(stream, shape, ties, left_out))


def _drop_marks(
    batches: Iterable[pa.RecordBatch], shape: TableSpec, ties: ListedKeys, left_out: list[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = batch.drop_columns([name for name in _MARKS if name in batch.schema.names])
        if UNRESOLVED in batch.schema.names:
            marked = batch.filter(pc.is_valid(batch.column(UNRESOLVED)))
            left_out.append(marked.select([*shape.key, UNRESOLVED]))
            rows = rows.filter(pc.is_null(batch.column(UNRESOLVED))) if marked.num_rows else rows
        else:
            tied = batch.filter(pc.is_valid(batch.column(TIE)))
            pairs = ((row.pop(TIE), row) for row in _first(tied, shape, TIE))
            ties.add(tied.num_rows, (_describe_tie(shape, key, place) for place, key in pairs), tied.num_rows)
            rows = rows.filter(batch.column(ALIVE)) if tied.num_rows else rows
        yield rows


def _first(marked: pa.RecordBatch, shape: TableSpec, mark: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = marked.select([*shape.key, mark]).slice(0, LISTED).to_pylist()
    return listed
