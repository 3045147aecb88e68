"""The state of a log as one frozen value, and the values it is made of.

What keeps snapshots and the log for longer than retention does, and what keeps changes out of the log.

What is recorded of a restore drill.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from tidefold.domain.commit_times import AsOf, CommitTimeRange
from tidefold.domain.external_snapshot import External
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.landing_problems import NO_PROBLEMS, LandingProblems
from tidefold.domain.source_progress import LandedFileRecord as LandedFileRecord
from tidefold.domain.source_progress import NameReading
from tidefold.domain.source_progress import Position as Position
from tidefold.domain.table.schema import FIRST, Schema
from tidefold.domain.table.table_spec import Column as Column
from tidefold.domain.table.table_spec import TableSpec as TableSpec


@dataclass(frozen=True, slots=True)
class Tag:
    """A name of a snapshot. The snapshot is kept as long as it has one."""

    name: str
    snapshot: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Keeps a snapshot and the log behind it, until it is released."""

    name: str
    snapshot: int
    why: str


@dataclass(frozen=True, slots=True)
class Consumer:
    """A program that reads the log and has read it up to `sqn`. The log behind is kept for it."""

    name: str
    sqn: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """The log accepts no more changes.

    run, by, why: which run stopped it, who asked for it, and why.
    address: of the savepoint that it was stopped for.
    instant: ISO 8601, for people.
    """

    run: str
    by: str
    why: str
    address: str
    instant: str


@dataclass(frozen=True, slots=True)
class Drill:
    """The newest restore test of a snapshot.

    instant: when it was (ISO 8601, for people).
    seconds: how long it took.
    bytes, bytes_local: how many bytes were read, and how many of them from local copies.
    passed: whether everything was as recorded.
    """

    instant: str
    seconds: float
    bytes: int
    bytes_local: int
    passed: bool


class SnapshotKind(StrEnum):
    """What a snapshot consists of.

    FULL: files of its own alone.
    INCREMENTAL: it shares files with confirmed snapshots.
    TAIL: the files of another snapshot and the change sets after it.
    """

    FULL = "full"
    INCREMENTAL = "incremental"
    TAIL = "tail"


class State(StrEnum):
    """How far a snapshot is in its life."""

    ONGOING = "ONGOING"
    STAGED = "STAGED"
    COMPLETED = "COMPLETED"
    SUBSUMED = "SUBSUMED"
    DELETED = "DELETED"
    ABORTED = "ABORTED"


@dataclass(frozen=True, slots=True)
class ChangeSetLocation:
    """Where a change set is stored.

    segment: path of the segment.
    ordinal: which of the segment's change sets it is, from 0.
    offset: of its first byte in the segment. A local copy of the segment has the same offsets.
    length: in bytes.
    checksum: sha256 of its entry in the index of the segment, which has the sha256 of each piece.
    """

    segment: str
    ordinal: int
    offset: int
    length: int
    checksum: str

    def __str__(self) -> str:
        return f"{self.segment}#{self.ordinal}"


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """A run of changes of one log appended together.

    sqn: its number within the log. One that replaces a run of others (compaction) has the number of the last.
    location: where it is stored.
    rows: the number of its changes.
    key_groups: from the lowest to the highest one that it has changes of.
    high: the highest order in its partition up to the end of this change set.
    floor: changes whose order is below were sent again by the source and do not count.
    first: the number of the first change set that it replaces; None: it replaces none.
    top: the highest first number of the orders in it, where columns order the log.
    schema: id of the schema that it was made with.
    times: when its changes were committed, with those that a compaction removed; None: not known.
    """

    sqn: int
    location: ChangeSetLocation
    rows: int
    key_groups: KeyGroups
    high: tuple[int, ...]
    floor: tuple[int, ...] | None = None
    first: int | None = None
    top: int | None = None
    schema: int = FIRST
    times: CommitTimeRange | None = None

    @property
    def begin(self) -> int:
        """The lowest sqn that it replaces, or its own."""
        return self.sqn if self.first is None else self.first


@dataclass(frozen=True, slots=True)
class Verdict:
    """Pass or fail of the quality gate, bound to a manifest and a suite by their sha256."""

    passed: bool
    suite: str
    manifest: str
    path: str
    summary: str
    override_by: str | None = None
    override_why: str | None = None

    @property
    def allows(self) -> bool:
        return self.passed or self.override_by is not None


@dataclass(frozen=True, slots=True)
class Expire:
    """Rows whose `column` lies before this instant are dropped.

    `before` is written like the statistics of a data file: `2026-01-31`, or `2026-01-31T00:00:00.000Z`.
    """

    column: str
    before: str


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """How many bytes were read to make a snapshot: from local copies, from the store, and from outside of both."""

    local: int = 0
    store: int = 0
    external: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One attempt at a snapshot. It folds the change sets `from_sqn` < sqn <= `folds_to` into its parent.

    id: numbers the snapshots of a log; it only rises.
    epoch: numbers the attempts; a newer one fences off an older one.
    run: id of the run that began it.
    request: sha256 of what the run asked for; the same run asking for something else is refused.
    kind, state: see there.
    base: the newest completed snapshot when it began; None: there was none.
    from_sqn: the last change set that its parent has.
    to_sqn: the last change set that it has or leaves out; the next snapshot continues after it. A tail-only one
        has the files of its base and the change sets up to here.
    started_at: ISO 8601, for people; no clock decides (I24).
    manifest: sha256 of its manifest, once it is staged.
    rows, files: how many it has.
    bytes_full: of all its files.
    bytes_written: of the files that its run wrote.
    verdict: of the quality gate.
    table_version: the version of the table that published it.
    abort_reason: why it was aborted; empty: it was not.
    restored_from: the snapshot whose rows a restore brings back.
    skipped_from: change sets from here to `to_sqn` are left out for good; None: none are.
    progress: a count that the process at work raises, so that others see that it lives.
    published_at: ISO 8601, for people.
    kind_reason: why it is of this kind.
    expire: which rows it drops for their age, frozen when it began.
    drill: the newest restore test of it.
    bytes_read: what it was made from.
    external: where its rows were imported from.
    buckets: how many its files are in, once it is staged.
    horizon: deletes below this first number of the order are forgotten, frozen when it began.
    ties, unresolved, unresolved_keys: see `Manifest`.
    schema: id of the schema of its rows, the newest when it began.
    as_of: it has the changes that were committed before an instant. Nothing is built on it, it is never published,
        and its tag keeps it.
    max_commit_time: the last commit time of a change in it; None: not known.
    token: a part of the names of its files; no other attempt, of whatever ledger, has the same one.
    """

    id: int
    epoch: int
    run: str
    request: str
    kind: SnapshotKind
    state: State
    base: int | None
    from_sqn: int
    to_sqn: int
    started_at: str
    manifest: str | None = None
    rows: int = 0
    files: int = 0
    bytes_full: int = 0
    bytes_written: int = 0
    verdict: Verdict | None = None
    table_version: int | None = None
    abort_reason: str = ""
    restored_from: int | None = None
    skipped_from: int | None = None
    progress: int = 0
    published_at: str = ""
    kind_reason: str = ""
    expire: Expire | None = None
    drill: Drill | None = None
    bytes_read: ReadFrom | None = None
    external: External | None = None
    buckets: int | None = None
    horizon: int | None = None
    ties: int = 0
    unresolved: int = 0
    unresolved_keys: tuple[str, ...] = ()
    schema: int = FIRST
    as_of: AsOf | None = None
    max_commit_time: int | None = None
    token: str = ""

    @property
    def folds_to(self) -> int:
        """The last sqn whose change set is folded in."""
        return self.to_sqn if self.skipped_from is None else self.skipped_from

    @property
    def parent(self) -> int | None:
        """Id of the snapshot whose files it begins with."""
        return self.base if self.restored_from is None else self.restored_from

    @property
    def open(self) -> bool:
        return self.state in (State.ONGOING, State.STAGED)

    @property
    def in_main_lineage(self) -> bool:
        """Whether it has files of its own and all changes up to `to_sqn`: each of these is built on the one before."""
        return self.kind is not SnapshotKind.TAIL and self.as_of is None

    @property
    def published(self) -> bool:
        return self.table_version is not None


class DeletionState(StrEnum):
    """How far the deletion of a log is."""

    NO = "no"
    GOING = "going"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class LogState:
    """Everything that tidefold knows of one log. A transition makes the next state; nothing changes in place.

    log: its id.
    shape: the definition of its table, with the newest columns.
    version: of the ledger.
    epoch: of the newest attempt.
    change_sets: those that are in the log, in order.
    landed: a record of each landed file, in order.
    positions: how far each partition of the source is ingested.
    snapshots: all of them, in order of their ids.
    tags, holds, readers: what keeps snapshots and the log for longer than retention does.
    truncated_to: change sets up to here are deleted.
    garbage: segments that are marked and not yet deleted.
    deletion: how far the deletion of the log is; no transition is possible while it is under way. The next log of that
        name begins with the epoch and above `last_snapshot` of this one, so that no number is used again.
    last_snapshot: the highest snapshot id of deleted logs of this name.
    fence: rises when announced change sets are given up; who announced them is refused from then on.
    generation: counts the logs of this name.
    stopped: the log accepts nothing more until it is resumed.
    schemas: the columns that it had, oldest first; none: they never changed.
    incarnation: random, new each time the ledger begins; tokens of attempts begin with it.
    former: incarnations of the deleted logs of this name.
    names: how it reads the names of landed files, since the first one; None: there was none.
    landing: what the last ingest did not ingest, or ingested in vain.
    """

    log: str
    shape: TableSpec
    version: int = 0
    epoch: int = 0
    change_sets: tuple[ChangeSet, ...] = ()
    landed: tuple[LandedFileRecord, ...] = ()
    positions: tuple[Position, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()
    tags: tuple[Tag, ...] = ()
    truncated_to: int = 0
    garbage: tuple[str, ...] = ()
    deletion: DeletionState = DeletionState.NO
    last_snapshot: int = 0
    holds: tuple[Hold, ...] = ()
    readers: tuple[Consumer, ...] = ()
    fence: int = 0
    generation: int = 0
    stopped: Stopped | None = None
    schemas: tuple[Schema, ...] = ()
    incarnation: str = ""
    former: tuple[str, ...] = ()
    names: NameReading | None = None
    landing: LandingProblems = NO_PROBLEMS

    @property
    def schema(self) -> int:
        """The id of the newest schema."""
        return self.schemas[-1].id if self.schemas else FIRST

    @property
    def last_sqn(self) -> int:
        return self.change_sets[-1].sqn if self.change_sets else self.truncated_to

    @property
    def latest(self) -> Snapshot | None:
        """The newest completed snapshot with files of its own: the next one is built on it."""
        return next((s for s in reversed(self.snapshots) if s.state is State.COMPLETED and s.in_main_lineage), None)

    @property
    def open_attempt(self) -> Snapshot | None:
        """The attempt under way at the next snapshot: at most one such is open at a time."""
        return next((s for s in reversed(self.snapshots) if s.open and s.as_of is None), None)

    @property
    def as_of_attempts(self) -> tuple[Snapshot, ...]:
        """The attempts under way at snapshots as of an instant: any number, beside the other one."""
        return tuple(s for s in self.snapshots if s.open and s.as_of is not None)

    def open_of(self, run: str | None) -> Snapshot | None:
        """What this run has open, whatever it is; without a run the attempt at the next snapshot."""
        if run is None:
            return self.open_attempt
        return next((s for s in reversed(self.snapshots) if s.open and s.run == run), None)

    @property
    def unfolded(self) -> tuple[ChangeSet, ...]:
        """The change sets after the newest completed snapshot."""
        return self.change_sets_in(self.latest.to_sqn if self.latest else 0, self.last_sqn)

    def change_sets_in(self, after: int, to: int) -> tuple[ChangeSet, ...]:
        """The change sets with `after` < sqn <= `to`."""
        return tuple(c for c in self.change_sets if after < c.sqn <= to)

    def snapshot(self, snapshot: int) -> Snapshot | None:
        return next((s for s in self.snapshots if s.id == snapshot), None)

    def with_snapshot(self, changed: Snapshot) -> LogState:
        """The state with one snapshot replaced, or added when its id is new."""
        kept = tuple(changed if s.id == changed.id else s for s in self.snapshots)
        return replace(self, snapshots=kept if changed in kept else (*kept, changed))
