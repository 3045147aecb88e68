"""The part that all readers of landed records share: collect changes, count every record, find new offsets.

Every record is counted as exactly one of: change, tombstone, repeated, re-sent, unproved, ignored, or refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tidefold.domain.log_state import TableSpec
from tidefold.domain.source_progress import IMPORTED, NO_POSITION, StreamPosition
from tidefold.domain.table.table_spec import Deletes, Engine
from tidefold.sources.ingest.taken_records import Match, TakenRecords
from tidefold.sources.records.errors import RefusedRecordError

Order = tuple[int, ...]
# With these engines every record counts: a repeated record must be distinguished from an equal one.
COUNTING = (Engine.APPEND, Engine.AGGREGATE)


class LateOffsetError(Exception):
    """An offset is lower than the expected ones, but was never taken."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class FilePosition:
    """What the log knows about the place of one file, for the reader of its records.

    start: the first offset of the file, by its name.
    next_offset, taken, stream, records: as in FileTask.
    horizon: changes whose first order number is lower come too late.
    alone: the records of the file have no offsets.
    earlier: the records that were taken at offsets that the file may bring again.
    """

    topic: str
    partition: int
    start: int = 0
    next_offset: int = 0
    taken: tuple[tuple[int, int], ...] = ()
    stream: StreamPosition = NO_POSITION
    records: int = 0
    horizon: int | None = None
    alone: bool = False
    earlier: TakenRecords | None = None


@dataclass(slots=True)
class Batch:
    """Changes in the order of the file, column by column.

    rows: the user's columns.
    absent: for each change the columns that it does not set; None: it sets all.
    """

    ops: list[int] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    times: list[int | None] = field(default_factory=list)
    absent: list[list[str] | None] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)

    def add(
        self, op: int, order: Order, offset: int, time: int | None, row: Any, absent: list[str] | None = None
    ) -> None:
        self.ops.append(op)
        self.orders.append(order)
        self.offsets.append(offset)
        self.times.append(time)
        self.absent.append(absent)
        self.rows.append(row)

    def each(self) -> Iterator[Batch]:
        """One batch for each change."""
        for change in zip(self.ops, self.orders, self.offsets, self.times, self.rows, self.absent, strict=True):
            one = Batch()
            one.add(*change)
            yield one

    def extend(self, more: Batch) -> None:
        """Appends the changes of another batch."""
        self.ops += more.ops
        self.orders += more.orders
        self.offsets += more.offsets
        self.times += more.times
        self.absent += more.absent
        self.rows += more.rows


def late_change(first: int | None, horizon: int | None) -> RefusedRecordError | None:
    """The refusal of a change whose first order number is below the horizon."""
    if first is None or horizon is None or first >= horizon:
        return None
    return RefusedRecordError(
        "LATE", f"Its order {first} is below the horizon {horizon}, before which deletes are forgotten."
    )


@dataclass(slots=True)
class Account:
    """How the records of a file were counted. The counts add up to `records`: see LandedFileRecord.

    lowest, first, last: the lowest offset, the first new one and the last one.
    low: the lowest order of the changes.
    stream: the stream position at the end of the file.
    refused_low: the lowest order of refused records that were not sent before.
    snapshot: the order of the rows of an initial snapshot.
    cleared: the order of the last clear.
    truncates: how often the source emptied the whole table; a new initial snapshot does not count.
    unresolved: how many changes depend on rows of other keys.
    """

    records: int = 0
    changes: int = 0
    tombstones: int = 0
    repeated: int = 0
    resent: int = 0
    unproved: int = 0
    forgotten: int = 0
    ignored: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    lowest: int | None = None
    first: int | None = None
    last: int | None = None
    low: Order | None = None
    stream: StreamPosition = NO_POSITION
    refused_low: Order | None = None
    snapshot: Order | None = None
    cleared: Order = ()
    truncates: int = 0
    unresolved: int = 0


class RecordAccounting:
    """The base class of readers. `batch` has the changes since the last `drain_batch`."""

    def __init__(self, place: FilePosition) -> None:
        self._account = Account(stream=place.stream)
        self.batch = Batch()
        # The offset of the current record, once it is known.
        self.offset: int | None = None
        # Its text, if records are lines.
        self.line = b""
        self._said = b""
        self._place = place
        self._last = place.start - 1
        self._alone: int | None = None
        # Whether each record is read alone: earlier ones then say nothing about its order.
        self.is_alone = False
        # Whether the records of this file have their offset; None: no record was read yet.
        self._says_offset: bool | None = None

    @property
    def account(self) -> Account:
        return self._account

    def begin(self) -> None:
        """Counts a record; `take` or `refuse` follows."""
        self._account.records += 1
        self.offset = None

    def begin_single_record(self, offset: int | None) -> None:
        """Counts a record that is read alone, independently of earlier ones. `offset`: if known."""
        self.is_alone, self._alone, self._says_offset = True, offset, None
        self._account = Account(stream=self._place.stream)
        self._last = self._place.start - 1
        self.begin()

    def preview_chunk(self, data: bytes) -> None:
        """Receives the bytes of the next records. Readers that search for something override this."""

    def own_offset(self, said: int | None) -> int:
        """The offset in the record, or the counted one if no record of the file has an offset.

        Raises RefusedRecordError if other records of the file have it.
        """
        if said is None and self._says_offset:
            raise RefusedRecordError("NOT_A_RECORD", "The record has no offset, but the record before it has one.")
        if self._says_offset is None:
            self._says_offset = said is not None
        return self.counted_offset if said is None else said

    @property
    def counted_offset(self) -> int:
        """The file's first offset plus the number of records before this one."""
        if self._alone is not None:
            return self._alone
        return self._place.start + self._place.records + self._account.records - 1

    def refuse(self, reason: str) -> None:
        """Counts a refused record."""
        self._account.refused[reason] = self._account.refused.get(reason, 0) + 1

    def drain_batch(self) -> Batch:
        """The changes since the last call."""
        batch, self.batch = self.batch, Batch()
        return batch

    def takes_delete(self, shape: TableSpec) -> bool:
        """Whether this log applies deletes. If not, counts it as ignored. Raises RefusedRecordError."""
        if shape.merge.engine is Engine.APPEND:
            raise RefusedRecordError("KEYLESS_CHANGE", "A log without a key accepts only inserts.")
        if shape.merge.deletes is Deletes.QUARANTINE:
            raise RefusedRecordError("DELETE_REFUSED", "This log accepts no deletes.")
        self._account.ignored += shape.merge.deletes is Deletes.IGNORE
        return shape.merge.deletes is Deletes.APPLY

    def check_late(self, order: Order) -> None:
        """Raises RefusedRecordError for a change below the horizon, where deletes are forgotten."""
        if refused := late_change(order[0] if order else None, self._place.horizon):
            raise refused

    def is_new(self, topic: str, partition: int, offset: int) -> bool:
        """Checks a record's offset. If the offset was taken before, counts the record and returns False.

        Raises RefusedRecordError, or LateOffsetError (the file is not taken).
        """
        place = self._place
        if place.alone:
            self.offset = None
            return True
        self.offset = offset
        if topic != place.topic or partition != place.partition:
            raise RefusedRecordError(
                "WRONG_PARTITION",
                f"The record belongs to {topic[:249]} partition {partition}, "
                f"its file to {place.topic} partition {place.partition}.",
            )
        account = self._account
        if offset == self._last and account.lowest is not None:
            if self.line != self._said:
                raise RefusedRecordError(
                    "OFFSET_TWICE", f"The record before it has the same offset {offset} and another content."
                )
            account.repeated += 1  # A line that was written twice.
            return False
        if offset <= self._last:
            raise RefusedRecordError("OFFSET_ORDER", f"Offset {offset} comes after {self._last} in the file.")
        self._last, self._said = offset, self.line
        if account.lowest is None:
            account.lowest = offset
        if offset < place.next_offset:
            if not any(first <= offset < end for first, end in place.taken):
                raise LateOffsetError(offset)
            self._count_again(offset)
            return False
        if account.first is None:
            account.first = offset
        account.last = offset
        return True

    def _count_again(self, offset: int) -> None:
        """Counts a record whose offset was taken before. Raises RefusedRecordError if that record was another one."""
        earlier = self._place.earlier
        match, file = earlier.compare(offset, self.line) if earlier else (Match.UNKNOWN, "")
        if match is Match.OTHER:
            why = f"`{file}` already brought a record with offset {offset} and another content."
            raise RefusedRecordError("OFFSET_TWICE", why)
        self._account.repeated += match is Match.SAME
        self._account.unproved += match is Match.UNKNOWN
        self._account.forgotten += match is Match.UNKNOWN and file.endswith(IMPORTED)
