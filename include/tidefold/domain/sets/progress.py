"""How far the landed records of one log of a set go: transactions, initial snapshots and offsets. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """One landed record, as far as it shows a place in the source's log.

    transaction: the id of its transaction; None: it has none, as a row of a snapshot or a tombstone.
    number: its number among the records of its transaction and table, from 1.
    after: the position of the commit before its transaction; of an initial snapshot's row the snapshot's position.
    is_snapshot: whether it is a row of an initial snapshot.
    begins, ends: whether it is marked as the first or the last row of its table in the snapshot.
    is_untracked: whether it is a streamed change whose connector wrote no transaction.
    place: the position of the record itself; None: the id of its transaction's END has a position.
    renumbers: whether its connector may number a transaction anew from the middle of it, after a kill.
    """

    offset: int
    transaction: str | None = None
    number: int = 0
    after: int = 0
    is_snapshot: bool = False
    begins: bool = False
    ends: bool = False
    is_untracked: bool = False
    place: int | None = None
    renumbers: bool = False


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Neighbouring records of one transaction, or of one initial snapshot (`transaction` is None).

    offset: the offset of the first one.
    before: the offset after the record before it. Topics may have gaps, so it can be lower than `offset`. Of records
        that landed late it is `taken_to` of the log, which is higher.
    after: as for SourceRecord.
    """

    offset: int
    before: int
    transaction: str | None
    after: int


@dataclass(frozen=True, slots=True)
class InitialSnapshot:
    """The initial snapshots among the new records of a log.

    first, last: the positions of the first and of the last snapshot; they differ if one was interrupted.
    is_whole: whether all rows of the last one have landed.
    """

    first: int
    last: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class LogProgress:
    """What the new landed records of a log show.

    taken_to: the offset after the last record that the log has ingested; 0: it has ingested nothing.
    known: whether the set has published or planned this log before.
    runs: the runs of records, in offset order.
    seen: for each transaction, up to which number all its records of this table have landed.
    places: for each transaction, the highest position of a record, if records have one.
    renumbers: whether the connector of any record numbers anew, as in SourceRecord; None: no record says it.
    unbroken_to: all records below this offset, from `taken_to` on, have landed.
    next_offset: the offset after the last landed record.
    first_offset: the offset of the first new record; None: there is none.
    untracked: the first record without a transaction that needs one; None: there is none.
    may_be_empty: whether the configuration says that the table begins empty.
    """

    table: str
    taken_to: int
    known: bool
    runs: tuple[RecordRun, ...] = ()
    seen: Mapping[str, int] = field(default_factory=dict)
    places: Mapping[str, int] = field(default_factory=dict)
    renumbers: bool | None = None
    unbroken_to: int = 0
    snapshot: InitialSnapshot | None = None
    next_offset: int = 0
    first_offset: int | None = None
    untracked: int | None = None
    may_be_empty: bool = False

    @property
    def is_fresh(self) -> bool:
        """Whether the log has ingested nothing, in this set or before it."""
        return not self.known and self.taken_to == 0

    @property
    def is_adopted(self) -> bool:
        """Whether the log was ingested before it came into the set."""
        return not self.known and self.taken_to > 0

    @property
    def first_transaction(self) -> RecordRun | None:
        return next((run for run in self.runs if run.transaction is not None), None)


def follow_records(
    table: str,
    records: Iterable[SourceRecord],
    taken_to: int,
    *,
    known: bool,
    may_be_empty: bool = False,
    is_unbroken: bool = True,
) -> LogProgress:
    """Returns what the new records of a log show.

    records: in offset order; those before `taken_to` are from files that landed late.
    is_unbroken: whether the log has ingested all offsets below `taken_to`.
    """
    scan = _RecordScan(taken_to, is_adopted=not known and taken_to > 0, is_unbroken=is_unbroken)
    for record in records:
        scan.add(record)
    snapshot = None
    if scan.snapshot_first is not None and scan.snapshot_last is not None:
        snapshot = InitialSnapshot(scan.snapshot_first, scan.snapshot_last, scan.is_whole)
    return LogProgress(
        table,
        taken_to,
        known,
        runs=tuple(scan.runs),
        seen=scan.seen,
        places=scan.places,
        renumbers=scan.renumbers,
        unbroken_to=scan.unbroken_to,
        snapshot=snapshot,
        next_offset=scan.next_offset,
        first_offset=scan.first_offset,
        untracked=scan.untracked,
        may_be_empty=may_be_empty,
    )


class _RecordScan:
    """Adds up the records of one log."""

    def __init__(self, taken_to: int, is_adopted: bool, is_unbroken: bool) -> None:
        self.next_offset = taken_to
        self.first_offset: int | None = None
        self.runs: list[RecordRun] = []
        self.seen: dict[str, int] = {}
        self.places: dict[str, int] = {}
        self.renumbers: bool | None = None
        self.unbroken_to = taken_to if is_unbroken else -1
        self.untracked: int | None = None
        self.snapshot_first: int | None = None
        self.snapshot_last: int | None = None
        self.is_whole = False
        # The newest transaction, with a position before it.
        self._newest: tuple[int, str] = (-1, "")
        # For each transaction: up to which number its present numbering has no gap, and the last number.
        self._numbering: dict[str, tuple[int, int]] = {}
        # Of the first transaction of an adopted log, records may have been ingested before.
        self._may_begin_later = is_adopted
        # Whether every row of the present snapshot, from its first one on, has been seen.
        self._has_all_rows = False
        self._was_snapshot = False

    def add(self, record: SourceRecord) -> None:
        follows = record.offset == self.next_offset
        if record.transaction is not None:
            self._add_run(record)
            self._count(record.transaction, record)
        elif record.is_snapshot:
            self._add_run(record)
            self._add_snapshot_row(record, follows)
        elif record.is_untracked and self.untracked is None:
            self.untracked = record.offset
        if self.first_offset is None:
            self.first_offset = record.offset
        if record.offset == self.unbroken_to:
            self.unbroken_to += 1
        self._was_snapshot = record.is_snapshot
        self.next_offset = max(self.next_offset, record.offset + 1)

    def _add_run(self, record: SourceRecord) -> None:
        last = self.runs[-1] if self.runs else None
        if last is None or (last.transaction, last.after) != (record.transaction, record.after):
            self.runs.append(RecordRun(record.offset, self.next_offset, record.transaction, record.after))

    def _count(self, transaction: str, record: SourceRecord) -> None:
        """Counts a record of a transaction.

        If the number does not rise, the connector was killed and sends records again. It may number them anew from the
        middle of the transaction. Then numbers from before and after the kill are never added up.
        """
        self.renumbers = bool(self.renumbers) or record.renumbers
        if record.place is not None:
            self.places[transaction] = max(self.places.get(transaction, 0), record.place)
        if record.after < self._newest[0] and transaction != self._newest[1]:
            # A later transaction stands before it in the topic, and an earlier copy of it before that one.
            return
        self._newest = (max(record.after, self._newest[0]), transaction)
        number = record.number
        begins = number - 1 if self._may_begin_later else 0
        self._may_begin_later = False
        reached, last = self._numbering.get(transaction, (begins, begins))
        if number <= last and record.renumbers:
            reached = 0
        if number == reached + 1:
            reached = number
        self._numbering[transaction] = (reached, number)
        self.seen[transaction] = max(self.seen.get(transaction, 0), reached)

    def _add_snapshot_row(self, record: SourceRecord, follows: bool) -> None:
        if self.snapshot_first is None:
            self.snapshot_first = record.after
        begins = record.begins or record.after != self.snapshot_last
        if begins:
            # Without a mark, only an unbroken line of offsets shows that no row came before.
            self._has_all_rows = record.begins or follows
        elif not follows:
            self._has_all_rows = False
        self.snapshot_last = record.after
        self.is_whole = record.ends and self._has_all_rows
