"""What all readers of landed records share: the place of a file, and how far its reading has come.

Every record is counted as exactly one of: change, tombstone, repeated, re-sent, unproved, ignored, or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from tidefold.domain.log_state import TableSpec
from tidefold.domain.source_progress import IMPORTED, NO_POSITION, StreamPosition
from tidefold.domain.table.table_spec import Deletes, Engine
from tidefold.sources.feed import PLACEHOLDER
from tidefold.sources.landing.plan import Formers, Match, TakenRecords
from tidefold.sources.records.errors import RefusedRecordError
from tidefold.sources.records.stream_order import OrderPoint, StreamOrder
from tidefold.sources.records.unavailable_values import Placeholder, placeholder_of

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
    time: the time in the name of the file.
    earlier: the records that were taken at offsets that the file may bring again.
    placeholder: what the source writes for a value that it did not send.
    name: the path of the file below the log's folder.
    before: finds the records with a text right before this file, oldest first, each with its offset as lines count it;
        None: they are gone.
    formers: as in FileTask.
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
    time: int | None = None
    earlier: TakenRecords | None = None
    placeholder: str = PLACEHOLDER
    name: str = ""
    before: Callable[[bytes], list[tuple[int, bytes]] | None] = lambda text: []
    formers: Formers | None = None


@dataclass(slots=True)
class Batch:
    """Changes in the order of the file, column by column.

    rows: the user's columns.
    absent: for each change the columns that it does not set; None: it sets all.
    """

    ops: list[int] = field(default_factory=list)
    orders: list[OrderPoint] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    times: list[int | None] = field(default_factory=list)
    absent: list[list[str] | None] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)

    def add(
        self, op: int, order: OrderPoint, offset: int, time: int | None, row: Any, absent: list[str] | None = None
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
    snapshot_rows: how many rows of a snapshot there were, initial or not, also such as came again.
    cleared: the order of the last clear.
    truncates: how often the source emptied the whole table; a new initial snapshot does not count.
    unresolved: how many changes depend on rows of other keys.
    awaiting: how many refused records need what the log had under a key.
    lacked: columns that a record lacked, and no record of the partition had brought.
    is_early: whether records have their order by the snapshot before them, because the connector had seen no commit.
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
    awaiting: int = 0
    lowest: int | None = None
    first: int | None = None
    last: int | None = None
    low: OrderPoint | None = None
    stream: StreamPosition = NO_POSITION
    refused_low: OrderPoint | None = None
    snapshot: OrderPoint | None = None
    snapshot_rows: int = 0
    cleared: OrderPoint = ()
    truncates: int = 0
    unresolved: int = 0
    lacked: tuple[str, ...] = ()
    is_early: bool = False


class ReaderPosition:
    """How far the reading of one file has come: all that changes from record to record.

    place: what the log knew about the file.
    account: how its records were counted.
    batch: the changes since the last `drain_batch`.
    stream: the order of the records so far.
    line, number: the current record as it landed, and its number in the file.
    offset: of the current record, once it is known.
    is_alone: whether each record is read alone: earlier ones then say nothing about its order.
    placeholder: what the source writes for a value that it did not send.
    unsent: the same, if values of the current record may be placeholders.
    deleted: the order of the delete right before the current record.
    """

    __slots__ = (
        "_last", "_last_line", "_marks", "_only", "_says_offset", "account", "batch", "deleted",
        "is_alone", "line", "number", "offset", "place", "placeholder", "stream", "undone", "unsent",
    )  # fmt: skip

    def __init__(self, place: FilePosition, shape: TableSpec) -> None:
        self.place = place
        self.account = Account(stream=place.stream)
        self.batch = Batch()
        self.stream = StreamOrder(counting=shape.merge.engine in COUNTING, **place.stream._asdict())
        optional = {column.name for column in shape.columns if column.may_lack}
        self.stream.columns = tuple(name for name in place.stream.columns if name in optional)
        self.line, self.number = b"", 0
        self.offset: int | None = None
        self.is_alone = False
        self.placeholder = placeholder_of(place.placeholder)
        self.unsent: Placeholder | None = None
        # The delete may have come with an earlier file; then nothing is newer.
        self.deleted: OrderPoint | None = place.stream.max_order or None
        self._marks = self.placeholder.marks(shape)
        # The offsets of changes that were taken back.
        self.undone = set[int]()
        # The offset and the text of the record before; the offset of the only record, if it is read alone.
        self._last, self._last_line = place.start - 1, b""
        self._only: int | None = None
        # Whether the records of this file have their offset; None: no record was read yet.
        self._says_offset: bool | None = None

    def begin(self, line: bytes, number: int) -> None:
        """Counts a record; a reader or `refuse` follows."""
        self.account.records += 1
        self.offset = None
        self.line, self.number = line, number

    def begin_single_record(self, line: bytes, number: int, offset: int | None, early: OrderPoint = ()) -> None:
        """Counts a record that is read alone, independently of earlier ones.

        offset: if known. early: as in StreamPosition, at the place of the record, or the order that it had there.
        """
        self.stream.early = self.stream.max_order = early
        self.is_alone, self._only, self._says_offset = True, offset, None
        self.account = Account(stream=self.place.stream)
        self._last = self.place.start - 1
        self.begin(line, number)
        self.preview(line)

    def preview(self, data: bytes) -> None:
        """Receives the bytes of the next records. They are searched for placeholders only if one may be in them."""
        self.unsent = self.placeholder if any(mark in data for mark in self._marks) else None

    @property
    def counted_offset(self) -> int:
        """The file's first offset plus the number of records before this one."""
        if self._only is not None:
            return self._only
        return self.place.start + self.place.records + self.account.records - 1

    @property
    def known_offset(self) -> int:
        """The offset of the current record; -1: it has none."""
        return -1 if self.offset is None else self.offset

    def count(self, outcome: str) -> None:
        """Counts a record that is no change."""
        setattr(self.account, outcome, getattr(self.account, outcome) + 1)

    def refuse(self, reason: str) -> None:
        """Counts a refused record."""
        self.account.refused[reason] = self.account.refused.get(reason, 0) + 1

    def drain_batch(self) -> Batch:
        """The changes since the last call."""
        batch, self.batch = self.batch, Batch()
        return batch

    def undo(self, offsets: Collection[int]) -> None:
        """Takes changes of the file back, and counts their records as ignored."""
        self.undone.update(offsets)
        self.account.changes -= len(offsets)
        self.account.ignored += len(offsets)

    def is_new(self, topic: str | None, partition: int | None, offset: int | None) -> bool:
        """Checks the place of a record; what it does not say is that of its file, with offsets counted.

        Returns False for an offset that was taken before, and counts the record. Raises RefusedRecordError, or
        LateOffsetError (the file is not taken).
        """
        place = self.place
        if offset is None:
            offset = self._count_offset()
        elif self._says_offset is None:
            self._says_offset = True
        if place.alone:
            self.offset = None
            return True
        self.offset = offset
        topic = place.topic if topic is None else topic
        partition = place.partition if partition is None else partition
        if topic != place.topic or partition != place.partition:
            raise RefusedRecordError(
                "WRONG_PARTITION",
                f"The record belongs to {topic[:249]} partition {partition}, "
                f"its file to {place.topic} partition {place.partition}.",
            )
        if offset <= self._last:
            self._count_twice(offset)
            return False
        account = self.account
        self._last, self._last_line = offset, self.line
        if account.lowest is None:
            account.lowest = offset
        if offset < place.next_offset:
            self._count_again(offset)
            return False
        if account.first is None:
            account.first = offset
        account.last = offset
        return True

    def _count_offset(self) -> int:
        if self._says_offset:
            raise RefusedRecordError("NOT_A_RECORD", "The record has no offset, but the record before it has one.")
        self._says_offset = False
        return self.counted_offset

    def _count_twice(self, offset: int) -> None:
        """Counts a line that was written twice. Raises RefusedRecordError for any other record of this offset."""
        if offset < self._last or self.account.lowest is None:
            raise RefusedRecordError("OFFSET_ORDER", f"Offset {offset} comes after {self._last} in the file.")
        if self.line != self._last_line:
            raise RefusedRecordError(
                "OFFSET_TWICE", f"The record before it has the same offset {offset} and another content."
            )
        self.account.repeated += 1

    def _count_again(self, offset: int) -> None:
        """Counts a record whose offset was taken before.

        Raises RefusedRecordError if that record was another one, LateOffsetError if the offset was never taken.
        """
        if not any(first <= offset < end for first, end in self.place.taken):
            raise LateOffsetError(offset)
        earlier = self.place.earlier
        match, file = earlier.compare(offset, self.line) if earlier else (Match.UNKNOWN, "")
        if match is Match.OTHER:
            why = f"`{file}` already brought a record with offset {offset} and another content."
            raise RefusedRecordError("OFFSET_TWICE", why)
        self.account.repeated += match is Match.SAME
        self.account.unproved += match is Match.UNKNOWN
        self.account.forgotten += match is Match.UNKNOWN and file.endswith(IMPORTED)


def takes_delete(shape: TableSpec) -> bool:
    """Whether a log applies deletes; if not, it ignores them. Raises RefusedRecordError."""
    if shape.merge.engine is Engine.APPEND:
        raise RefusedRecordError("KEYLESS_CHANGE", "A log without a key accepts only inserts.")
    if shape.merge.deletes is Deletes.QUARANTINE:
        raise RefusedRecordError("DELETE_REFUSED", "This log accepts no deletes.")
    return shape.merge.deletes is Deletes.APPLY
