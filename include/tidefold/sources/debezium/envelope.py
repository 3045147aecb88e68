"""Reads the lines of one landed file of Debezium records, in order, into a batch of changes (facts: decision 0003).

docs/reference/debezium.md lists how each kind of record is handled.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from tidefold.changelog.schema import CLEAR, DELETE, MERGE, UPSERT
from tidefold.domain.log_state import TableSpec
from tidefold.domain.source_progress import NO_COMMIT
from tidefold.domain.table.table_spec import EXPERIMENTAL, MARIADB, MONGODB, ORACLE, POSTGRESQL, Engine
from tidefold.sources.api import RecordReader
from tidefold.sources.debezium import experimental
from tidefold.sources.debezium.decoder import DecodedRecord, EnvelopeDecoder
from tidefold.sources.debezium.late_checks import LateKeys, checks_late, image_of, images_in
from tidefold.sources.debezium.ordering import FIRST, INITIAL, LAST, STREAMED, OrderOf, former_key, order_of
from tidefold.sources.records import errors
from tidefold.sources.records.accounting import ReaderPosition, takes_delete
from tidefold.sources.records.record_types import NOTHING, NULL, SourceBlock
from tidefold.sources.records.row_decoder import Rows
from tidefold.sources.records.stream_order import OrderPoint

# Reasons of refused records whose order is unknown, or was checked already.
_OF_ITS_ORDER = frozenset(("ORDER_MISSING", "ORDER_RESTART"))


class Change(msgspec.Struct, gc=False):
    """A record that changes a row, or all rows.

    time: of its commit.
    absent: the columns that it does not set; None: it sets all.
    former: the row under its old key, for a record that is read alone; it is deleted first.
    brought: the optional columns that records have brought, this one included; None: none is optional.
    """

    op: int
    order: OrderPoint
    time: int | None
    row: Any
    absent: list[str] | None = None
    former: Any = None
    brought: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class EnvelopeLog:
    """What the records of one log are judged by.

    upsert: the operation of an insert or update.
    keys: of the transaction that is read; None: the source never has two rows under one key.
    """

    shape: TableSpec
    decoder: EnvelopeDecoder
    order_of: OrderOf
    upsert: int
    keys: LateKeys | None


def envelope_reader(shape: TableSpec, schema: Mapping[str, Any] | None = None) -> RecordReader:
    """Returns the reader of a log's lines. `schema`: see EnvelopeDecoder. Raises RefusedRecordError."""
    upsert = MERGE if shape.merge.engine is Engine.AGGREGATE else UPSERT
    keys = LateKeys(shape) if checks_late(shape) else None
    return partial(read_record, EnvelopeLog(shape, EnvelopeDecoder(shape, schema), order_of(shape.order), upsert, keys))


def read_record(log: EnvelopeLog, at: ReaderPosition, line: bytes) -> None:
    """Decodes a line that is not blank, judges the record, and appends its change or counts it.

    Raises RefusedRecordError (the caller quarantines it) or LateOffsetError (the file is not taken).
    """
    text = experimental.with_row(line, log.shape) if log.shape.order == MONGODB else line
    record = log.decoder.decode(text, at.place)
    place = record.place
    if place is None:
        at.count("ignored")
        return
    if not at.is_new(place.topic, place.partition, place.offset):
        return
    keys = None if at.is_alone else log.keys
    try:
        change = decide_change(log, at, record)
        if isinstance(change, str):
            at.count(change)
        elif at.is_alone or advance(log, at, change.order, record.value.source, record.value.op):
            at.deleted = change.order if change.op == DELETE else None
            settled = follow(keys, log, at, record, change, text) if keys else change
            if settled is None:
                at.count("ignored")
            else:
                append(at, settled)
        else:
            at.account.resent += 1
    except errors.RefusedRecordError as refused:
        if not is_sent_again(log, at, text, refused):
            if keys and refused.reason != errors.KEY_TAKEN_OVER:
                refused.since = _hide(keys, log, at, record.rows, text)
            raise
        at.account.resent += 1


def follow(
    keys: LateKeys, log: EnvelopeLog, at: ReaderPosition, record: DecodedRecord, change: Change, line: bytes
) -> Change | None:
    """The change to append instead of this one; None: the record changes no row. Raises RefusedRecordError."""
    value = record.value
    op, before, transaction = value.op, None, value.source.transaction
    if value.before is not None or op == "u":
        image = partial(image_of, line, record.rows, len(log.shape.key), log.decoder.spell)
        before = None if value.before is None else image
        keys.see(op, before)
    if op == "r" or (op == "u" and not keys.is_watching):
        return change
    if transaction is None:
        transaction = change.order[0]
    recall = partial(_recall, log, at, change.order) if keys.asks else None
    key = record.rows.key_of(change.row)
    settled: Change | None = keys.follow(at, change, op, transaction, key, before, recall)
    return settled


def _recall(log: EnvelopeLog, at: ReaderPosition, order: OrderPoint, transaction: Any) -> LateKeys | None:
    """The keys of a transaction after its records in earlier files; None: they are gone."""
    lines = at.place.before(str(transaction).encode())
    if lines is None and at.place.stream.max_order[:1] in ((), order[:1]):
        return None
    keys, scratch = LateKeys(log.shape), ReaderPosition(at.place, log.shape)
    keys.asks = False
    for _, line in lines or ():
        scratch.begin(line, 0)
        scratch.preview(line)
        record = None
        try:
            record = log.decoder.decode(line, at.place)
            change = decide_change(log, scratch, record)
            if not isinstance(change, str):
                scratch.deleted = change.order if change.op == DELETE else None
                follow(keys, log, scratch, record, change, line)
        except errors.RefusedRecordError as refused:
            if record and refused.reason != errors.KEY_TAKEN_OVER:
                _hide(keys, log, scratch, record.rows, line)
    return keys


def _hide(keys: LateKeys, log: EnvelopeLog, at: ReaderPosition, rows: Rows, line: bytes) -> OrderPoint:
    """Remembers the key of a refused record, as far as it can be read. Returns its `since`: see RefusedRecordError."""
    op, source = errors.find_source(line)
    if source is None or op not in ("c", "u", "d"):
        return ()
    with suppress(errors.RefusedRecordError, *errors.UNDECODABLE):
        order, images = _find_order(log, at, source, op), images_in(line)
        key = rows.key_of(rows.of_key(rows.key(images.before if op == "d" else images.after), None))
        image = partial(image_of, line, rows, len(log.shape.key), log.decoder.spell)
        before = None if images.before in (NOTHING, NULL) else image
        transaction = order[0] if source.transaction is None else source.transaction
        recall = partial(_recall, log, at, order) if keys.asks else None
        return keys.hide(op, transaction, key, order, before, recall)
    return ()


def decide_change(log: EnvelopeLog, at: ReaderPosition, record: DecodedRecord) -> Change | str:
    """The change of a record at a new offset, or the name of its count. Raises RefusedRecordError."""
    if record.outcome is not None:
        if isinstance(record.outcome, errors.RefusedRecordError):
            raise record.outcome
        return record.outcome
    value, rows = record.value, record.rows
    if value is None:
        return "tombstones"
    op = value.op
    if op in ("u", "c", "r"):
        return _decide_upsert(log, at, record)
    if op == "d":
        if not takes_delete(log.shape):
            return "ignored"
        return _make_change(log, at, DELETE, value, rows.of_key(record.key, value.before))
    if op == "t":
        return _make_change(log, at, CLEAR, value, rows.nothing())
    if op == "m":
        return "ignored"
    raise errors.unknown_op(op)


def _make_change(
    log: EnvelopeLog,
    at: ReaderPosition,
    op: int,
    value: Any,
    row: Any,
    absent: list[str] | None = None,
    former: Any = None,
) -> Change:
    source = value.source
    if source is None:
        raise errors.RefusedRecordError("ORDER_MISSING", "The record has no source block.")
    return Change(op, _find_order(log, at, source, value.op), source.committed, row, absent, former)


def _find_order(log: EnvelopeLog, at: ReaderPosition, source: SourceBlock, op: str | None) -> OrderPoint:
    """The order of a record at its place. Raises RefusedRecordError."""
    order = log.order_of(source)
    if log.shape.order != POSTGRESQL:
        return order
    # Only `r` is a row of a snapshot: see `advance`.
    is_initial = op == "r" and source.snapshot in INITIAL
    if order[0] == NO_COMMIT and not is_initial:
        at.account.is_early = True
    return at.stream.place(order, is_initial, op == "r")


def _decide_upsert(log: EnvelopeLog, at: ReaderPosition, record: DecodedRecord) -> Change:
    value, rows, key = record.value, record.rows, record.key
    row = value.after
    if row is None:
        raise errors.RefusedRecordError("AFTER_MISSING", "An insert or update has no `after`.")
    absent = former = None
    if at.unsent or rows.declares:
        absent = rows.take_unsent(row, at.placeholder)
        if absent and value.op != "u":
            former = _former_row(log, at, record, absent)
    rows.check_key(row, key)
    if value.op == "u":
        if not log.shape.key:
            raise errors.RefusedRecordError(
                "KEYLESS_CHANGE", f"op {value.op!r} changes an existing row, which a log without a key cannot find."
            )
        rows.check_key(row, value.before)
    change = _make_change(log, at, log.upsert, value, rows.convert(row), absent, former)
    if rows.optional and not at.is_alone:
        change.brought = _check_lacking(at, rows, row, change.order)
    return change


def _check_lacking(at: ReaderPosition, rows: Rows, row: Any, order: OrderPoint) -> tuple[str, ...]:
    """The optional columns that records have brought, this one included.

    Raises RefusedRecordError if it lacks one that an earlier record brought: Debezium writes every column. A DROP is
    after the highest order so far: a record of that order was sent before, with a newer schema.
    """
    lacking = [name for field, name in rows.optional if getattr(row, field) is msgspec.UNSET]
    dropped = [name for name in lacking if name in at.stream.columns]
    if dropped and order != at.stream.max_order:
        raise errors.refuse_dropped(dropped)
    absent = {*lacking}.difference(dropped)
    at.account.lacked = tuple(sorted(absent.union(at.account.lacked)))
    return tuple(sorted(name for _, name in rows.optional if name not in absent))


def _former_row(log: EnvelopeLog, at: ReaderPosition, record: DecodedRecord, absent: list[str]) -> Any:
    """For a record that is read alone: the row under its old key, empty if the record does not name the key.

    The row becomes a delete before the change, by which the values are looked up. Raises RefusedRecordError for
    every other record.
    """
    headers, value, rows = bytes(record.headers), record.value, record.rows
    if not (at.is_alone and value.op == "c" and log.shape.merge.engine is Engine.LAST):
        order = _find_order(log, at, value.source, value.op) if value.source else None
        # Another file of this run may have brought the delete.
        is_first = value.op == "c" and at.place.start > 0 and at.stream.max_order == at.place.stream.max_order
        # All changes of a transaction of Oracle have one order, so the delete may be that of another row.
        is_beside = order is not None and (is_first or order == at.deleted) and log.shape.order != ORACLE
        raise errors.not_sent(absent, moved=b'"__debezium.oldkey"' in headers or is_beside)
    key = former_key(msgspec.json.decode(headers)) if headers else None
    try:
        return rows.of_key(rows.key(msgspec.Raw(msgspec.json.encode(key))), None) if key else rows.nothing()
    except (*errors.UNDECODABLE, errors.RefusedRecordError):
        return rows.nothing()


def advance(log: EnvelopeLog, at: ReaderPosition, order: OrderPoint, source: SourceBlock, op: str | None) -> bool:
    """Whether a record was not sent before. A clear precedes the first row of a new snapshot, even a refused one.

    Raises RefusedRecordError.
    """
    # Only `r` is a row of a snapshot. Connectors (PostgreSQL 3.6.1, MariaDB 3.5.0) that are killed during or soon
    # after a snapshot mark the changes after their restart as rows of an initial one.
    mark = source.snapshot if op == "r" else None
    at.account.snapshot_rows += op == "r"
    begins_snapshot = False
    if mark in INITIAL:
        # All rows of an initial snapshot have one order, the highest so far. They replace what the log had before.
        at.account.snapshot = order
        at.stream.see_mark(order, mark in FIRST, mark in LAST, mark != "first")
        high = at.stream.max_order
        # Only for connectors whose snapshots were captured in tests: all rows of a snapshot have one order.
        may_begin = log.shape.order not in EXPERIMENTAL or mark in FIRST
        begins_snapshot = bool(high) and order > high and may_begin
    restarted = at.stream.counting and at.stream.is_restarted(at.line) and mark != "incremental"
    begins = restarted or mark in FIRST
    unique = log.shape.order == MARIADB and mark in STREAMED
    is_new = at.stream.is_new(order, source.committed, begins, unique)
    if is_new and mark in INITIAL:
        at.stream.see_snapshot(order, source)
    if is_new and begins_snapshot:
        # The clear is part of the row's record and does not count as a change.
        at.batch.add(CLEAR, order, at.known_offset, source.committed, log.decoder.rows.nothing())
        at.account.cleared = max(order, at.account.cleared)
        at.stream.replaced = order[0]
    return is_new


def is_sent_again(log: EnvelopeLog, at: ReaderPosition, line: bytes, refused: errors.RefusedRecordError) -> bool:
    """Whether a refused record was sent before, by its order. If not, the position includes it (I32).

    Raises RefusedRecordError for one that only looks as if it was sent before.
    """
    if at.is_alone or refused.reason in _OF_ITS_ORDER:
        return False
    op, source = errors.find_source(line)
    if source is None:
        return False
    try:
        order = _find_order(log, at, source, op)
    except errors.RefusedRecordError:
        return False
    if not advance(log, at, order, source, op):
        return True
    refused.order = order
    if at.account.refused_low is None:
        at.account.refused_low = order
    return False


def append(at: ReaderPosition, change: Change) -> None:
    """Adds a change to the batch and to the counts."""
    op, order, time, account = change.op, change.order, change.time, at.account
    offset = -1 if at.offset is None else at.offset
    if change.former is not None:
        at.batch.add(DELETE, order, offset, time, change.former)
    if account.low is None:
        account.low = order
    if op == CLEAR:
        account.cleared = max(order, account.cleared)
        account.truncates += 1
    account.changes += 1
    at.batch.add(op, order, offset, time, change.row, change.absent)
    if change.brought is not None:
        at.stream.columns = change.brought
