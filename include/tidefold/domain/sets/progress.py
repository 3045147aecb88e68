"""How far the landed records of one log of a set go: transactions, initial snapshots and offsets. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

# An offset that no record has.
NEVER = 2**63


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """The end of a transaction, as the transaction topic says it.

    position: the position of its commit; None: its id does not say it, and the records of the transaction do.
    offset: the offset of the END record.
    counts: the number of records of each table.
    rank: the order of its id among the ids of its source; None: the position is the order.
    is_partial: whether the connector was killed in the transaction, and may have counted only the rest of it.
    is_restarted: whether it began again after it had ended, because the connector was killed after the END.
    """

    id: str
    position: int | None
    offset: int
    counts: Mapping[str, int]
    rank: int | None = None
    is_partial: bool = False
    is_restarted: bool = False

    @property
    def name(self) -> str:
        """What people call it."""
        return f"the transaction at position {self.position}" if self.rank is None else f"transaction {self.id}"


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a log is cut at a point: records from this offset on come later, and the one before it does not.

    late: a file landed late, below the offset, and its records from this offset on come after the point; None: no file.
    """

    log: str
    offset: int
    late: int | None = None

    @property
    def bound(self) -> int:
        """The offset up to which new records are ingested."""
        return self.offset if self.late is None else self.late


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """One landed record, as far as it shows a place in the source's log.

    transaction: the id of its transaction; None: it has none, as a row of a snapshot or a tombstone.
    number: its number among the records of its transaction and table, from 1.
    after: the position of the commit before its transaction; of an initial snapshot's row the snapshot's position.
    is_snapshot: whether it is a row of a snapshot that is not incremental.
    is_signalled: whether the record shows that a signal asked for its snapshot, while the connector streamed.
    begins, ends: whether it is marked as the first or the last row of its table in the snapshot.
    is_untracked: whether it is a streamed change whose connector wrote no transaction.
    place: the position of the record itself; None: the id of its transaction's END has a position.
    renumbers: whether its connector may number a transaction from 1 again in the middle of it, after a kill.
    is_early: whether the connector had seen no commit, and did not send the record before. Then `after` may be too low.
    """

    offset: int
    transaction: str | None = None
    number: int = 0
    after: int = 0
    is_snapshot: bool = False
    is_signalled: bool = False
    begins: bool = False
    ends: bool = False
    is_untracked: bool = False
    place: int | None = None
    renumbers: bool = False
    is_early: bool = False


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Neighbouring records of one transaction, or of one initial snapshot (`transaction` is None).

    offset: the offset of the first one.
    before: the offset after the record before it. Topics may have gaps, so it can be lower than `offset`. Of records
        that landed late it is `taken_to` of the log, which is higher.
    after, is_early: as for SourceRecord, of the first one.
    """

    offset: int
    before: int
    transaction: str | None
    after: int
    is_early: bool = False


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
class SignalledSnapshot:
    """A snapshot by signal. Its rows show a state of the source that is later than their position, by an unknown time.

    offset: the offset of its first row.
    position: the first position that the state can be of.
    is_whole: whether all its rows have landed; of an incremental one that is not known, and it counts as whole.
    """

    offset: int
    position: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class LogProgress:
    """What the new landed records of a log show.

    taken_to: the offset after the last record that the log has ingested; 0: it has ingested nothing.
    known: whether the set has published or planned this log before.
    runs: the runs of records, in offset order.
    seen: for each transaction, up to which number all its records of this table have landed.
    places: for each transaction, the highest position of a record, if records have one.
    renumbers: whether the connector of any record counts again from 1, as in SourceRecord; None: no record shows it.
    unbroken_to: all records below this offset, from `taken_to` on, have landed.
    next_offset: the offset after the last landed record.
    first_offset: the offset of the first new record; None: there is none.
    untracked: the first record without a transaction that needs one; None: there is none.
    may_be_empty: whether the configuration says that the table begins empty.
    signalled: the snapshots by signal among the new records.
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
    signalled: tuple[SignalledSnapshot, ...] = ()

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
    gaps: Sequence[tuple[int, int]] = (),
    whole_from: int = NEVER,
) -> LogProgress:
    """Returns what the new records of a log show.

    records: in offset order; those before `taken_to` are from files that landed late.
    gaps: ranges of offsets below `taken_to` that the log has not ingested, in order: the first one, and that after it.
    whole_from: the offset from which on a missing one had no record; NEVER: none.
    """
    gaps = () if whole_from <= taken_to else gaps
    scan = _RecordScan(taken_to, is_adopted=not known and taken_to > 0, gaps=gaps, whole_from=whole_from)
    for record in records:
        scan.add(record)
    initial = [one for one in scan.snapshots if not one.is_signalled]
    snapshot = InitialSnapshot(initial[0].after, initial[-1].after, initial[-1].is_whole) if initial else None
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
        signalled=tuple(
            SignalledSnapshot(one.offset, one.after, one.is_whole) for one in scan.snapshots if one.is_signalled
        ),
    )


@dataclass(frozen=True, slots=True)
class _SnapshotRows:
    """The rows of one snapshot. has_all: whether every row from the first one on has been seen."""

    offset: int
    after: int
    is_signalled: bool
    has_all: bool
    is_whole: bool


class _RecordScan:
    """Adds up the records of one log."""

    def __init__(self, taken_to: int, is_adopted: bool, gaps: Sequence[tuple[int, int]], whole_from: int) -> None:
        self.next_offset, self._whole_from = taken_to, whole_from
        self.first_offset: int | None = None
        self.runs: list[RecordRun] = []
        self.seen: dict[str, int] = {}
        self.places: dict[str, int] = {}
        self.renumbers: bool | None = None
        self._gaps = [*gaps, (taken_to, -1)]
        self.unbroken_to = self._gaps[0][0]
        self.untracked: int | None = None
        self.snapshots: list[_SnapshotRows] = []
        self._taken_to = taken_to
        # The newest transaction, with a position before it.
        self._newest: tuple[int, str] = (-1, "")
        # For each transaction: up to which number its present numbering has no gap, and the last number.
        self._numbering: dict[str, tuple[int, int]] = {}
        # Of the first transaction of an adopted log, records may have been ingested before.
        self._may_begin_later = is_adopted

    def add(self, record: SourceRecord) -> None:
        follows = record.offset == self.next_offset or self._whole_from <= self.next_offset
        if record.transaction is not None:
            self._add_run(record)
            self._count(record.transaction, record)
        elif record.is_snapshot:
            self._add_snapshot_row(record, follows)
        elif record.is_signalled and not (self._taken_to or self.snapshots):
            # A table of which nothing else was read. In any other, such a row is one that the log has.
            self._add_snapshot_row(replace(record, begins=True, ends=True), follows)
        elif record.is_untracked and self.untracked is None:
            self.untracked = record.offset
        if self.first_offset is None:
            self.first_offset = self._taken_to if follows else record.offset
        if record.offset == self.unbroken_to or self._whole_from <= self.unbroken_to < record.offset:
            self.unbroken_to = record.offset + 1
            if self.unbroken_to == self._gaps[0][1]:
                del self._gaps[0]
                self.unbroken_to = self._gaps[0][0]
        self.next_offset = max(self.next_offset, record.offset + 1)

    def _add_run(self, record: SourceRecord) -> None:
        last = self.runs[-1] if self.runs else None
        if last is None or (last.transaction, last.after) != (record.transaction, record.after):
            run = RecordRun(record.offset, self.next_offset, record.transaction, record.after, record.is_early)
            self.runs.append(run)

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
        is_signalled = record.is_signalled or self._taken_to > 0 or self._newest[1] != ""
        after = record.after + is_signalled
        self._add_run(replace(record, after=after))
        last = self.snapshots[-1] if self.snapshots else None
        if last is None or record.begins or after != last.after:
            # Without a mark, only an unbroken line of offsets shows that no row came before.
            offset, has_all = record.offset, record.begins or follows
        else:
            offset, has_all = last.offset, last.has_all and follows
            del self.snapshots[-1]
        self.snapshots.append(_SnapshotRows(offset, after, is_signalled, has_all, record.ends and has_all))
