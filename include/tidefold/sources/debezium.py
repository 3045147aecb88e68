"""Reads the lines of one landed file of Debezium records, in order, into a batch of changes (facts: decision 0003).

Every line ends as exactly one of: change, tombstone, repeated, ignored, or refused (quarantine).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import msgspec

from tidefold.changelog.columns import DELETE, UPSERT
from tidefold.lifecycle.values import Shape
from tidefold.sources import records
from tidefold.sources.account import Accounting, Order, Place
from tidefold.sources.records import Head, Source
from tidefold.sources.refusal import (
    PLACEHOLDER,
    RefusedRecordError,
    head_of,
    is_ignored,
    refusal_of,
    refused_op,
    unavailable,
)

_SEQUENCE = re.compile(r'\[(?:null|"(\d{1,19})"),\s?"(\d{1,19})"\]', re.ASCII)
_HIGHEST = 2**63 - 1
# The marks of an initial snapshot's rows; those of an incremental one are ordinary changes.
_INITIAL = frozenset(("true", "first", "first_in_data_collection", "last_in_data_collection", "last", True))
# Topics on which the connector tells of itself.
_OWN_TOPIC = re.compile(r"__debezium-heartbeat\..*|.*\.transaction")


class RecordReader(Accounting):
    """Takes the lines of one file one after the other."""

    def __init__(self, shape: Shape, place: Place) -> None:
        super().__init__(place)
        self._shape = shape
        self._placeholder = False
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(records.record_type(shape)).decode
        self._key = _Keys(shape)
        self._sequence: tuple[str | None, Order] = (None, ())

    def near(self, data: bytes) -> None:
        """Tells what the next lines are cut from: only then are they searched for an unavailable value."""
        self._placeholder = PLACEHOLDER.encode() in data

    def take(self, line: bytes) -> None:
        """Takes a line that is not blank.

        Raises RefusedRecordError (the caller quarantines) or LateOffsetError (the file is not taken).
        """
        account = self.account
        try:
            record = self._decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._take_odd(line, str(error))
            return
        if not self._is_new(record):
            return
        value = record.value
        if value is None:
            account.tombstones += 1
        elif value.op in ("u", "c", "r"):
            self._upsert(record, value)
        elif value.op == "d":
            self._delete(record, value)
        elif value.op == "m":
            account.ignored += 1
        else:
            raise refused_op(value.op)

    def _take_odd(self, line: bytes, why: str) -> None:
        head = head_of(line)
        if head.topic != self._place.topic and _OWN_TOPIC.fullmatch(head.topic):
            self.account.ignored += 1
        elif self._is_new(head):
            if not is_ignored(head):
                raise refusal_of(head, self._shape, why)
            self.account.ignored += 1

    def _is_new(self, record: Any | Head) -> bool:
        return self.is_new(record.topic, record.partition, record.offset)

    def _upsert(self, record: Any, value: Any) -> None:
        row = value.after
        if row is None:
            raise RefusedRecordError("AFTER_MISSING", "An insert or update has no `after`.")
        if self._placeholder and PLACEHOLDER in msgspec.structs.astuple(row):
            raise unavailable()
        self._key.check(row, record.key)
        if value.op == "u":
            self._key.check(row, value.before)
        self._keep(UPSERT, record.offset, value.source, row)

    def _delete(self, record: Any, value: Any) -> None:
        self._keep(DELETE, record.offset, value.source, self._key.row(record.key, value.before))

    def _keep(self, op: int, offset: int, source: Source, row: Any) -> None:
        account, order = self.account, self._order(source)
        if source.snapshot in _INITIAL:
            self._check_snapshot(order)
        if order < account.high:
            account.repeated += 1
            return
        account.high = order
        if account.low is None:
            account.low = order
        account.changes += 1
        self.batch.add(op, order, offset, source.committed, row)

    def _check_snapshot(self, order: Order) -> None:
        """All rows of one initial snapshot carry one order, and nothing comes before them: else it is a second one."""
        if self.account.high and order != self.account.high:
            raise RefusedRecordError(
                "SNAPSHOT_RESTART",
                "A new initial snapshot begins the table anew; that is not supported in this version.",
            )
        self.account.snapshot = order

    def _order(self, source: Source) -> Order:
        # Neighbours often carry the same one; the rows of an initial snapshot all do.
        if source.sequence is None or source.sequence != self._sequence[0]:
            self._sequence = (source.sequence, postgresql_order(source.sequence))
        return self._sequence[1]


def postgresql_order(sequence: str | None) -> Order:
    """`source.sequence`: the positions of the last commit (null comes first) and of the event.

    Raises RefusedRecordError when it is missing or garbled.
    """
    found = _SEQUENCE.fullmatch(sequence) if sequence else None
    if found:
        commit, event = -1 if found[1] is None else int(found[1]), int(found[2])
        if commit <= _HIGHEST and event <= _HIGHEST:
            return (commit, event)
    raise RefusedRecordError("ORDER_MISSING", f"source.sequence is {str(sequence)[:80]!r}, not two log positions.")


class _Keys:
    """Compares and takes the key columns of rows, keys and before images."""

    def __init__(self, shape: Shape) -> None:
        self._row = records.row_type(shape)
        self._fields = [records.field(i) for i, c in enumerate(shape.columns) if c.name in shape.key]
        self._of = attrgetter(*self._fields)
        self._nothing: Mapping[str, None] = {records.field(i): None for i in range(len(shape.columns))}

    def check(self, row: Any, key: Any) -> None:
        """Refuses a row whose key is another than the one given; what is not given or null is not compared."""
        if key is None or self._of(key) == self._of(row):
            return
        for name in self._fields:
            given = getattr(key, name)
            if given is not None and given is not msgspec.UNSET and given != getattr(row, name):
                raise RefusedRecordError("KEY_MISMATCH", "The key beside the row differs from the key in `after`.")

    def row(self, key: Any, before: Any) -> Any:
        """A row that has only its key: from the record's key, else from `before`."""
        values = {}
        for name in self._fields:
            found = [
                v for v in (getattr(key, name, None), getattr(before, name, None)) if v not in (None, msgspec.UNSET)
            ]
            if not found:
                raise RefusedRecordError("KEY_NULL", "Neither the record's key nor `before` has the key columns.")
            values[name] = found[0]
        return self._row(**{**self._nothing, **values})
