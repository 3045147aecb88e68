"""Resolves operations whose result depends on rows that they do not name.

A fold merges each bucket without the others, so it cannot do that. The ingest reads the rows of the log, applies the
new operations in their order, and replaces each such operation by deletes and upserts of the keys that it changes.
"""

from __future__ import annotations

import heapq
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from tidefold.changelog.schema import CLEAR, DELETE, MERGE, MERGE_SOURCE, MERGE_TARGET, POLL, UPSERT, change_schema
from tidefold.changelog.segment import read_change_set
from tidefold.domain.ingest.append import IngestedFile, append
from tidefold.domain.table.table_spec import TableSpec
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.parse import IngestRun, write_segment_with_copy
from tidefold.operations.ingest.stages import Accounted, plan_own_rows
from tidefold.read.task import read_task
from tidefold.sources.records.change_batches import fill_key_groups, with_commit_times

_log = logging.getLogger(__name__)
StateKey = tuple[Any, ...]
StateRow = dict[str, Any]
# How a function merges a value into the value before; neither is null. A column without a function has the last value.
_MERGES: Mapping[str, Callable[[Any, Any], Any]] = {
    "sum": lambda before, new: before + new,
    "product": lambda before, new: before * new,
    "min": min,
    "max": max,
    "count": lambda before, new: before + new,
    "bool_and": lambda before, new: before and new,
    "bool_or": lambda before, new: before or new,
    "first": lambda before, new: before,
    "last": lambda before, new: new,
    "list": lambda before, new: [*before, *new],
}


def resolve_operations(pipeline: Pipeline, run: IngestRun, accounted: Accounted) -> Accounted:
    """Returns the ingest with deletes and upserts instead of operations that depend on other rows.

    Without such operations it returns the ingest unchanged, and reads nothing.
    """
    feed, arrivals = accounted.listed.feed, accounted.arrivals
    unresolved = [_count_unresolved(accounted, arrival) for arrival in arrivals]
    if feed is None or not any(unresolved):
        return accounted
    shape, store = accounted.listed.begun.shape, pipeline.store
    tables = [read_change_set(store, a.change_set) if a.change_set else None for a in arrivals]
    rows = _StateRows(shape, tuple(feed.options["state_key"]), tuple(feed.options.get("head") or ()))
    for row in _read_rows(pipeline, accounted, _find_merged_keys(tables, shape)):
        rows.set(row)
    resolved: list[tuple[int, pa.Table, int]] = []
    for number, table in enumerate(tables):
        changes = list(rows.apply(table.to_pylist())) if table is not None else []
        if unresolved[number]:
            made = pa.Table.from_pylist(changes, schema=change_schema(shape))
            [filled] = fill_key_groups([with_commit_times(made, shape, feed)], shape) if changes else [made]
            resolved.append((number, filled, rows.dropped))
        rows.dropped = 0
    return _write(pipeline, run, accounted, resolved)


def _count_unresolved(accounted: Accounted, arrival: IngestedFile) -> int:
    result = accounted.results.get(arrival.landed.name)
    return result.account.unresolved if result and result.account and arrival.change_set else 0


def _find_merged_keys(tables: Iterable[pa.Table | None], shape: TableSpec) -> set[StateKey] | None:
    """Returns the keys of merged namespaces, of which alone rows are needed. None: a poll needs all rows."""
    merged = set()
    for table in (one for one in tables if one is not None):
        for row in table.select(["_op", *shape.key]).to_pylist():
            if row["_op"] == POLL:
                return None
            if row["_op"] in (MERGE_SOURCE, MERGE_TARGET):
                merged.add(tuple(row[name] for name in shape.key))
    return merged


def _read_rows(pipeline: Pipeline, accounted: Accounted, keys: set[StateKey] | None) -> Iterator[StateRow]:
    """Yields the rows of the log before this run: all, or those of the keys."""
    plan = plan_own_rows(pipeline, accounted)
    for bucket in plan.every_bucket:
        for batch in read_task(pipeline.store, plan, bucket):
            for row in batch.to_pylist():
                if keys is None or tuple(row[name] for name in plan.shape.key) in keys:
                    yield row


def _write(
    pipeline: Pipeline, run: IngestRun, accounted: Accounted, resolved: Sequence[tuple[int, pa.Table, int]]
) -> Accounted:
    """Writes the resolved change sets into one segment. The parsed ones are deleted at the end of the run."""
    folder, local, no_room = run.segment_folder(pipeline)
    run.announce(pipeline.store, [accounted.listed.intent], folder)
    run.folders.add(folder)
    parts = [(accounted.log, table) for _, table, _ in resolved if table.num_rows]
    written, no_copy = (
        write_segment_with_copy(pipeline.store, local, f"{folder}/{uuid.uuid4().hex}.seg", parts) if parts else ([], "")
    )
    made, arrivals = iter(written), list(accounted.arrivals)
    for number, table, dropped in resolved:
        before = arrivals[number]
        assert before.change_set
        change_set = next(made).change_set(before.change_set.high) if table.num_rows else None
        landed = before.landed
        landed = replace(landed, changes=landed.changes - dropped, ignored=landed.ignored + dropped)
        arrivals[number] = replace(before, landed=landed, change_set=change_set)
    no_copies = (*accounted.no_copies, *filter(None, [no_copy or no_room]))
    return replace(
        accounted, arrivals=tuple(arrivals), state=append(accounted.listed.begun, arrivals), no_copies=no_copies
    )


@dataclass(slots=True)
class _StateRows:
    """The rows of a state while operations are applied in their order.

    state_key: the columns of the state's key.
    head: the columns that order a queue; its head has the lowest values.
    dropped: how many operations changed nothing: polls of an empty queue, merges of empty namespaces.
    """

    shape: TableSpec
    state_key: tuple[str, ...]
    head: tuple[str, ...]
    dropped: int = 0
    _rows: dict[StateKey, StateRow] = field(default_factory=dict)
    _queues: dict[StateKey, list[tuple[Any, ...]]] = field(default_factory=dict)

    def apply(self, changes: Iterable[StateRow]) -> Iterator[StateRow]:
        """Applies changes in the order of their offsets. Yields changes that name each key."""
        for _, some in groupby(sorted(changes, key=itemgetter("_offset")), itemgetter("_offset")):
            together = list(some)
            if together[0]["_op"] == POLL:
                yield from self._poll(together[0])
            elif together[0]["_op"] in (MERGE_SOURCE, MERGE_TARGET):
                yield from self._merge(together)
            else:
                for change in together:
                    self._apply(change)
                    yield change

    def set(self, row: Mapping[str, Any]) -> None:
        key = self._key(row)
        self._rows[key] = {column.name: row[column.name] for column in self.shape.columns}
        if self.head:
            queue = self._queues.setdefault(key[: len(self.state_key)], [])
            heapq.heappush(queue, (self._rank(row), key))

    def _apply(self, change: StateRow) -> None:
        key = self._key(change)
        if change["_op"] == UPSERT:
            self.set(change)
        elif change["_op"] == DELETE:
            self._rows.pop(key, None)
        elif change["_op"] == CLEAR:
            prefix = tuple(part for part in key if part is not None)
            self._rows = {known: row for known, row in self._rows.items() if known[: len(prefix)] != prefix}
        elif change["_op"] == MERGE:
            given = {name: change[name] for name in self._values() if name not in (change["_absent"] or ())}
            counts = {name for name, function in self.shape.merge.aggregates if function == "count"}
            given |= {name: None if given[name] is None else 1 for name in counts & given.keys()}
            self._rows[key] = self._combine(self._rows.get(key), {**change, **given}, given.keys())

    def _poll(self, change: StateRow) -> Iterator[StateRow]:
        """Yields the delete of the head, if there is one."""
        queue = self._queues.get(self._key(change)[: len(self.state_key)], [])
        while queue:
            rank, key = heapq.heappop(queue)
            row = self._rows.get(key)
            if row is not None and self._rank(row) == rank:
                del self._rows[key]
                yield self._delete(change, key)
                return
        self.dropped += 1

    def _merge(self, together: Sequence[StateRow]) -> Iterator[StateRow]:
        """Yields the upsert of the target and the deletes of the sources, whose values follow in the given order."""
        [target] = [one for one in together if one["_op"] == MERGE_TARGET]
        into = self._key(target)
        ordered = sorted((one for one in together if one is not target), key=lambda one: int(one["_absent"][0]))
        sources = list(dict.fromkeys(key for one in ordered if (key := self._key(one)) != into and key in self._rows))
        if not sources:
            self.dropped += 1
            return
        row = self._rows.get(into)
        for key in sources:
            row = self._combine(row, self._rows.pop(key), self._values())
        merged = {**(row or {}), **dict(zip(self.shape.key, into, strict=True))}
        self._rows[into] = merged
        yield {**target, **merged, "_op": UPSERT, "_absent": None, "_kg": None}
        yield from (self._delete(target, key) for key in sources)

    def _combine(self, before: StateRow | None, new: StateRow, names: Iterable[str]) -> StateRow:
        functions = dict(self.shape.merge.aggregates)
        row = dict(before) if before else {column.name: new[column.name] for column in self.shape.columns}
        for name in names if before else ():
            if name not in functions:
                row[name] = new[name]
            elif new[name] is not None:
                row[name] = new[name] if row[name] is None else _MERGES[functions[name]](row[name], new[name])
        return row

    def _delete(self, change: StateRow, key: StateKey) -> StateRow:
        empty = dict.fromkeys(column.name for column in self.shape.columns)
        keyed = dict(zip(self.shape.key, key, strict=True))
        return {**change, **empty, **keyed, "_op": DELETE, "_absent": None, "_kg": None}

    def _key(self, row: Mapping[str, Any]) -> StateKey:
        return tuple(row[name] for name in self.shape.key)

    def _rank(self, row: Mapping[str, Any]) -> StateKey:
        """Returns what orders an element. Null comes first; its key decides between equal ones."""
        return tuple((row[name] is not None, row[name]) for name in self.head)

    def _values(self) -> list[str]:
        return [column.name for column in self.shape.columns if column.name not in self.shape.key]
