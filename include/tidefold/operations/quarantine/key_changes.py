"""Completes rows whose key was changed: fills in values that were not sent from the row under the old key.

A connector sends such a change as a delete of the old key and an insert of the new one, with one order. The insert is
refused if it leaves values out. This module looks the values up in the newest snapshot before the change and in the
changes since, in order. So chains of changes, swaps, and changes there and back are exact.

A snapshot that a signal asked for shows the table at a later moment than its place in the stream. Its rows do not count
for a change that was committed before they were read.

Unwrapped records have no order. The offset stands for it, and the delete right before the insert has the old key.
"""

from __future__ import annotations

import bisect
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.key_group_hash import with_key_groups
from tidefold.changelog.schema import CLEAR, DELETE, change_schema
from tidefold.changelog.segment import Indexes, read_change_set
from tidefold.domain.explain.key_history import layers
from tidefold.domain.ingest.quarantine_retry import find_skipped_ranges, is_replaced
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import LogState, Snapshot, State, TableSpec
from tidefold.domain.source_progress import list_streamed
from tidefold.domain.source_progress_history import positions_at
from tidefold.domain.table.table_spec import VALID_FROM, VALID_TO
from tidefold.fold.merge.compaction import of_keys
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, plan_from
from tidefold.operations.ground.schema_update import aligner_to_newest
from tidefold.operations.quarantine.newer_changes import (
    Key,
    Place,
    Row,
    key_of_row,
    order_of_row,
    order_or_place,
    place_of_row,
)
from tidefold.read.task import read_task
from tidefold.sources.debezium.ordering import former_key
from tidefold.sources.quarantine.reparse import Refused, SecondLook
from tidefold.sources.records.errors import KEY_CHANGE

# The text of a key, as the source writes it: one text for each column.
KeyText = tuple[str, ...]


@dataclass(slots=True)
class Completed:
    """The result for one partition.

    table: one complete row for each of `records`.
    staying: records that could not be completed, each with its row, which lacks values.
    """

    records: list[Refused] = field(default_factory=list)
    table: pa.Table | None = None
    staying: list[tuple[Refused, Row]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RefusedKey:
    """The position of a refused record, and its key and order as far as they can be read.

    is_moved: whether it waits for values of the row under its old key.
    since: the order before which it asks for the row of its key; empty: it does not.
    """

    file: str
    line: int
    key: KeyText | None
    old_key: KeyText | None
    order: tuple[int, ...] | None
    is_moved: bool
    since: tuple[int, ...]


@dataclass(slots=True)
class _Move:
    """A change of a key: the refused record, its row without the values, and the old key (None: not known)."""

    one: Refused
    row: Row
    old: Key | None
    order: tuple[int, ...]
    text: KeyText | None


@dataclass(slots=True)
class KnownRows:
    """Rows of the old keys in a snapshot, and their changes since, by key and in order.

    merged: the snapshots by signal whose rows are in `base`; apart: those whose rows are changes. Each is an order, and
        the time at which the rows were read.
    """

    base: dict[Key, Row] = field(default_factory=dict)
    events: dict[Key | None, list[tuple[Place, Row]]] = field(default_factory=lambda: defaultdict(list))
    merged: Sequence[tuple[int, ...]] = ()
    apart: Sequence[tuple[int, ...]] = ()


def complete_key_changes(
    pipeline: Pipeline, state: LogState, look: SecondLook, refused: Collection[RefusedKey]
) -> Completed:
    """Completes all rows that can be completed.

    refused: all refused records of the log. If one of them has an old key, it may have the value, and the change waits
        for it (I32).
    """
    done, shape = Completed(), state.shape
    moves = sorted(_moves(pipeline, state, look), key=lambda move: place_of_row(move.row, shape))
    prior = read_known_rows(pipeline, state, [(move.old, move.order) for move in moves])
    if prior is None:
        done.staying = [(move.one, move.row) for move in moves]
        return done
    here = {move.one.landed_line for move in moves}
    others = [one for one in refused if (one.file, one.line) not in here]
    rows = []
    for move in moves:
        if not _complete(move, prior, state, others):
            done.staying.append((move.one, move.row))
            continue
        rows.append(move.row)
        done.records.append(move.one)
        bisect.insort(prior.events[key_of_row(move.row, shape)], (place_of_row(move.row, shape), move.row), key=_place)
    done.table = pa.Table.from_pylist(rows, schema=change_schema(shape)) if rows else None
    return done


def _place(event: tuple[Place, Row]) -> Place:
    return event[0]


def _complete(move: _Move, rows: KnownRows, state: LogState, refused: Collection[RefusedKey]) -> bool:
    """Fills the row. Returns False if it cannot be filled (yet)."""
    order = _find_order(move, rows, state.shape)
    if move.old is None or (len(list_streamed(state.positions)) > 1 and not _has_passed(move, order, rows, state)):
        return False
    row, whole_at, is_sure = find_row(move.old, order, move.row["_ts"], rows, state.shape)
    old = move.text, tuple(map(str, move.old))
    if is_in_doubt(refused, old, order, whole_at):
        return False
    missing = move.row["_absent"]
    # The snapshot and the stream disagree about the row: records are missing, or the two clocks differ.
    if row is None or any(name not in row for name in missing) or not is_sure(missing):
        return False
    move.row.update({name: row[name] for name in missing}, _absent=None)
    return True


def find_row(
    key: Key, order: tuple[int, ...], committed: int | None, rows: KnownRows, shape: TableSpec
) -> tuple[Row | None, Any, Callable[[Iterable[str]], bool]]:
    """Returns the row of a key before an order, the order of the last change that set all columns, and a test.

    committed: when the asking change was. The test says whether snapshots by signal leave no doubt about some columns.
    """
    late = [one[:-1] for one in rows.apart if committed is None or one[-1] >= committed]
    row, whole_at = _row_before(key, order, rows, shape, late)
    by_stream, _ = _row_before(key, order, rows, shape, [one[:-1] for one in rows.apart])
    is_late = whole_at is None and any(committed is None or one[-1] >= committed for one in rows.merged)

    def is_sure(names: Iterable[str]) -> bool:
        if row is None or by_stream is None:
            return not is_late and row is by_stream
        return not is_late and all(row.get(name) == by_stream.get(name) for name in names)

    return row, whole_at, is_sure


def is_in_doubt(
    refused: Iterable[RefusedKey], names: Collection[KeyText | None], order: tuple[int, ...], whole_at: Any
) -> bool:
    """Whether a refused record may have made the row that a key, by its texts, had before an order."""
    own = (one for one in refused if one.key is not None and one.key in names)
    return any(one.order is None or (one.order < order and (whole_at is None or one.order >= whole_at)) for one in own)


def _find_order(move: _Move, rows: KnownRows, shape: TableSpec) -> tuple[int, ...]:
    """Returns the order of a change; without one of the source, the place of the delete of the old key before it."""
    order = move.order
    before = [one for one in rows.events.get(move.old, ()) if one[0] < order and not shape.order_width]
    for place, row in reversed(before):
        if row["_op"] != DELETE:
            break
        order = place
    return order


def _has_passed(move: _Move, order: tuple[int, ...], rows: KnownRows, state: LogState) -> bool:
    """Whether the delete of the old key was ingested, or cannot come from any partition any more."""
    events = rows.events.get(move.old, ())
    if not state.shape.order_width:  # Offsets of two partitions have no order.
        return order < move.order and {row["_partition"] for _, row in events} == {move.row["_partition"]}
    deleted = any(row["_op"] == DELETE and order_of_row(row, state.shape) == move.order for _, row in events)
    return deleted or all(position.stream.max_order > move.order for position in list_streamed(state.positions))


def _row_before(
    key: Key, order: tuple[int, ...], rows: KnownRows, shape: TableSpec, without: Collection[tuple[int, ...]]
) -> tuple[Row | None, Any]:
    """Returns the row of a key before an order, and the order of the last change that set all columns.

    without: the orders of snapshots whose rows do not count.
    """
    row, whole_at = rows.base.get(key), None
    clears = [(place, one) for place, one in rows.events.get(None, ()) if one["_op"] == CLEAR]
    for _, event in sorted([*rows.events.get(key, ()), *clears], key=_place):
        at = order_or_place(event, shape)
        if at >= order:
            break
        if at in without:
            continue
        if event["_op"] in (CLEAR, DELETE):
            row, whole_at = None, at
            continue
        absent = event["_absent"] or ()
        values = {c.name: event[c.name] for c in shape.columns if c.name not in absent}
        row, whole_at = ({**(row or {}), **values}, whole_at) if absent else (values, at)
    return row, whole_at


def _moves(pipeline: Pipeline, state: LogState, look: SecondLook) -> Iterator[_Move]:
    """Yields the key changes. If a record does not name its old key, it is that of the delete with the same order."""
    assert look.moved_table is not None
    assert look.former_table is not None
    shape = state.shape
    for one, row, former in zip(look.moved, look.moved_table.to_pylist(), look.former_table.to_pylist(), strict=True):
        order = order_or_place(row, shape)
        old: Key | None = key_of_row(former, shape)
        if old is None or None in old:
            old = _find_deleted_key(pipeline, state, row, order)
        yield _Move(one, row, old, order, old_key_of(one.entry.record, shape))


def _find_deleted_key(pipeline: Pipeline, state: LogState, row: Row, order: tuple[int, ...]) -> Key | None:
    """Returns the key of the delete with the same order before this insert; None: there is not exactly one.

    An earlier file or a retry may have brought it. Sinks of values alone count no tombstones, so offsets say nothing.
    """
    keys = set()
    for change_set in state.change_sets:
        if not change_set.high or change_set.high >= order:
            changes = aligner_to_newest(state).changes(read_change_set(pipeline.store, change_set), change_set.schema)
            near = (pc.field("_op") == DELETE) & (pc.field("_partition") == row["_partition"])
            near &= pc.field("_offset") < row["_offset"]
            for deleted in changes.filter(near).to_pylist():
                if order_of_row(deleted, state.shape) == order:
                    keys.add(key_of_row(deleted, state.shape))
    return keys.pop() if len(keys) == 1 else None


def read_known_rows(
    pipeline: Pipeline, state: LogState, asked: Sequence[tuple[Key | None, tuple[int, ...]]]
) -> KnownRows | None:
    """Reads keys in a snapshot and in the log after it. Reads only their buckets of the snapshot.

    asked: keys, each with the order before which its row is asked for, the lowest first. The snapshot is from before
    the first change, and if it still exists, from before rows of snapshots by signal. While an open attempt may replace
    the rows, none are known.
    """
    if is_replaced(state):
        return None
    signalled = sorted({one for at in state.positions for one in at.stream.signalled if one[:-1] < asked[-1][1]})
    limits = [*(min(one[:-1], asked[0][1]) for one in signalled), asked[0][1]]
    if not state.shape.order_width:
        # The delete of the old key comes right before, with its tombstone or without.
        limits = [(limits[0][0], limits[0][1] - 1), *limits]
    bases = ((at, _base_of(state, limit)) for at, limit in enumerate(limits))
    at, before = next(((at, before) for at, before in bases if before), (0, None))
    if before is None:
        return None
    base, shape, keys = before[0], state.shape, {key for key, _ in asked if key}
    rows = KnownRows(merged=signalled[:at], apart=signalled[at:])
    if not keys:
        return rows
    wanted = [dict(zip(shape.key, key, strict=True)) for key in keys]
    table = with_key_groups(pa.Table.from_pylist(wanted, schema=change_schema(shape)), shape)
    groups = table.column("_kg").to_pylist()
    if base is not None:
        rows.base = _base_rows(pipeline, state, base, table, keys)
    span, indexes = KeyGroups(min(groups), max(groups)), Indexes()
    for change_set in state.change_sets:
        is_out = any(after < change_set.sqn <= to for after, to in find_skipped_ranges(state))
        if is_out or change_set.sqn <= (base.to_sqn if base else 0) or not change_set.key_groups.meets(span):
            continue
        read = read_change_set(pipeline.store, change_set, span, indexes)
        changes = aligner_to_newest(state).changes(read, change_set.schema)
        for row in of_keys(changes, table, shape).to_pylist():
            rows.events[key_of_row(row, shape)].append((place_of_row(row, shape), row))
        rows.events[None] += [((*place_of_row(r, shape)[:-2], -1, -1), r) for r in _clears(changes, shape)]
    for events in rows.events.values():
        events.sort(key=_place)
    return rows


def _base_of(state: LogState, order: tuple[int, ...]) -> tuple[Snapshot | None] | None:
    """Returns the newest snapshot before this order in every partition, else the log's beginning; None: neither."""
    lineage = layers(state, state.latest)
    for layer in lineage:
        snapshot = state.snapshot(layer.snapshot or 0)
        if snapshot is None or snapshot.state is not State.COMPLETED or not snapshot.in_main_lineage:
            continue
        reached = positions_at(state, snapshot.to_sqn)
        ends = [p.stream.max_order for p in reached]
        if not state.shape.order_width:
            ends = [(p.partition, p.next_offset) for p in reached if p.partition == order[0]]
        if all(end < order for end in ends) and snapshot.to_sqn >= state.truncated_to:
            return (snapshot,)
    return None if state.truncated_to or any(layer.imported for layer in lineage) else (None,)


def _clears(changes: pa.Table, shape: TableSpec) -> Iterable[Row]:
    rows = changes.filter(pc.field("_op") == CLEAR).to_pylist()
    whole = [row for row in rows if all(row[name] is None for name in shape.key)]
    return {place_of_row(row, shape): row for row in whole}.values()


def _base_rows(
    pipeline: Pipeline, state: LogState, base: Snapshot, table: pa.Table, keys: Collection[Key]
) -> dict[Key, Row]:
    plan, shape = plan_from(pipeline, state, ReadRequest(snapshot=base.id, today=True)), state.shape
    groups = set(table.column("_kg").to_pylist())
    first = table.column(shape.key[0])
    rows = {}
    for task in plan.tasks:
        if any(task.bucket.first <= group <= task.bucket.last for group in groups):
            for batch in read_task(pipeline.store, plan, task):
                near = batch.filter(pc.is_in(batch.column(shape.key[0]), first.combine_chunks()))
                # A version of a history that ended is no row. Without times nothing shows that: its values are unknown.
                versions = (row for row in near.to_pylist() if row.get(VALID_TO) is None)
                rows.update({key_of_row(one, shape): one if one.get(VALID_FROM, True) else {} for one in versions})
    return {key: row for key, row in rows.items() if key in keys}


def read_refused_keys(records: Iterable[Refused], shape: TableSpec) -> list[RefusedKey]:
    """Returns position, key and order of refused records, as far as they can be read."""
    by_place = not shape.order_width
    return [
        RefusedKey(
            one.entry.file,
            one.entry.line,
            key_in(one.entry.record, shape),
            old_key_of(one.entry.record, shape) if one.entry.reason == KEY_CHANGE else None,
            (one.landed.partition, one.entry.offset) if by_place and one.entry.offset is not None else one.entry.order,
            one.entry.reason == KEY_CHANGE,
            one.entry.since,
        )
        for one in records
    ]


def key_in(record: str, shape: TableSpec) -> KeyText | None:
    """Returns the key of a record in any form, also if its stored text was cut off: from its key, or from its row."""
    value = _field(record, "key")
    if isinstance(value, dict) and isinstance(value.get("payload"), dict):
        value = value["payload"]
    names = [name for column in _key_names(shape) for name in column]
    return (
        _texts(value, shape)
        or _texts(_field(record, "after"), shape)
        or _texts({name: found for name in names if (found := _field(record, name)) is not None}, shape)
    )


def old_key_of(record: str, shape: TableSpec) -> KeyText | None:
    """Returns the old key in the header of a record, as the source writes it."""
    return _texts(former_key(_field(record, "headers")), shape)


def _key_names(shape: TableSpec) -> list[tuple[str, ...]]:
    return [(one.name, *one.aliases) for name in shape.key for one in shape.columns if one.name == name]


def _texts(value: object, shape: TableSpec) -> KeyText | None:
    if not isinstance(value, dict):
        return None
    parts = [next((str(value[name]) for name in names if name in value), None) for names in _key_names(shape)]
    texts = tuple(text for text in parts if text is not None)
    return texts if texts and len(texts) == len(parts) else None


def _field(record: str, name: str) -> Any:
    """Returns the value of the first field of this name."""
    match = re.search(rf'"{re.escape(name)}"\s*:\s*', record)
    try:
        return json.JSONDecoder().raw_decode(record, match.end())[0] if match else None
    except ValueError:
        return None
