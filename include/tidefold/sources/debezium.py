"""Reads the lines of one landed file of Debezium records, in order, into a batch of changes (facts: decision 0003).

Every line ends as exactly one of: change, tombstone, repeated, ignored, or refused (quarantine).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import msgspec

from tidefold.changelog.columns import DELETE, UPSERT
from tidefold.lifecycle.values import Shape
from tidefold.sources import records
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

Order = tuple[int, ...]
_SEQUENCE = re.compile(r'\[(?:null|"(\d{1,19})"),\s?"(\d{1,19})"\]', re.ASCII)
_HIGHEST = 2**63 - 1
# The marks of an initial snapshot's rows; those of an incremental one are ordinary changes.
_INITIAL = frozenset(("true", "first", "first_in_data_collection", "last_in_data_collection", "last", True))
# Topics on which the connector tells of itself.
_OWN_TOPIC = re.compile(r"__debezium-heartbeat\..*|.*\.transaction")


class LateOffsetError(Exception):
    """An offset lies below those that come next, but was never taken."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file stands in its log: see FileTask for `next_offset`, `taken` and `high`."""

    topic: str
    partition: int
    start: int
    next_offset: int
    taken: tuple[tuple[int, int], ...]
    high: Order


@dataclass(slots=True)
class Batch:
    """Changes in the order of the file, column by column; `rows` have the user's columns."""

    ops: list[int] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    times: list[int | None] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)

    def extend(self, more: Batch) -> None:
        """Takes the changes of another batch behind its own."""
        self.ops += more.ops
        self.orders += more.orders
        self.offsets += more.offsets
        self.times += more.times
        self.rows += more.rows


@dataclass(slots=True)
class Account:
    """What became of a file's records. The counts add up to `records`."""

    records: int = 0
    changes: int = 0
    tombstones: int = 0
    repeated: int = 0
    ignored: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    # Offsets: the first of the file, the first that is new, and the last.
    lowest: int | None = None
    first: int | None = None
    last: int | None = None
    # Orders: the lowest and highest kept, and that of the initial snapshot's rows.
    low: Order | None = None
    high: Order = ()
    snapshot: Order | None = None


class RecordReader:
    """Takes the lines of one file one after the other; `batch` holds the changes since it was last emptied."""

    def __init__(self, shape: Shape, place: Place) -> None:
        self.account = Account(high=place.high)
        self.batch = Batch()
        # Of the record that is being taken, once it is known.
        self.offset: int | None = None
        self._shape = shape
        self._place = place
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(records.record_type(shape)).decode
        self._key = _Keys(shape)
        self._last = place.start - 1
        self._sequence: tuple[str | None, Order] = (None, ())

    def take(self, line: bytes, *, placeholder: bool = False) -> None:
        """Takes a line that is not blank; `placeholder` says that it may hold an unavailable value.

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
            self._upsert(record, value, placeholder)
        elif value.op == "d":
            self._delete(record, value)
        elif value.op == "m":
            account.ignored += 1
        else:
            raise refused_op(value.op)

    def begin(self) -> None:
        """Counts a record; `take` or `refuse` follows."""
        self.account.records += 1
        self.offset = None

    def begin_alone(self) -> None:
        """The same for a record that is judged by itself, whatever was taken before it."""
        self.account = Account(high=self._place.high)
        self._last = self._place.start - 1
        self.begin()

    def refuse(self, reason: str) -> None:
        """Counts a refused record."""
        self.account.refused[reason] = self.account.refused.get(reason, 0) + 1

    def taken_batch(self) -> Batch:
        """The changes since the last call."""
        batch, self.batch = self.batch, Batch()
        return batch

    def _take_odd(self, line: bytes, why: str) -> None:
        head = head_of(line)
        if head.topic != self._place.topic and _OWN_TOPIC.fullmatch(head.topic):
            self.account.ignored += 1
        elif self._is_new(head):
            if not is_ignored(head):
                raise refusal_of(head, self._shape, why)
            self.account.ignored += 1

    def _is_new(self, record: Any | Head) -> bool:
        """Checks the record's place; False, and counted as repeated, when its offset was taken before."""
        place, offset = self._place, record.offset
        self.offset = offset
        if record.topic != place.topic or record.partition != place.partition:
            raise RefusedRecordError(
                "WRONG_PARTITION",
                f"The record is of {record.topic[:249]} partition {record.partition}, "
                f"the file of {place.topic} partition {place.partition}.",
            )
        account = self.account
        if offset == self._last and account.lowest is not None:
            account.repeated += 1  # A line that was written twice.
            return False
        if offset <= self._last:
            raise RefusedRecordError("OFFSET_ORDER", f"Offset {offset} comes after {self._last} in the file.")
        self._last = offset
        if account.lowest is None:
            account.lowest = offset
        if offset < place.next_offset:
            if not any(first <= offset < end for first, end in place.taken):
                raise LateOffsetError(offset)
            account.repeated += 1
            return False
        if account.first is None:
            account.first = offset
        account.last = offset
        return True

    def _upsert(self, record: Any, value: Any, placeholder: bool) -> None:
        row = value.after
        if row is None:
            raise RefusedRecordError("AFTER_MISSING", "An insert or update has no `after`.")
        if placeholder and PLACEHOLDER in msgspec.structs.astuple(row):
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
        batch = self.batch
        batch.ops.append(op)
        batch.orders.append(order)
        batch.offsets.append(offset)
        batch.times.append(source.committed)
        batch.rows.append(row)

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
