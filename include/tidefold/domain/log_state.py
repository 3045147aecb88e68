"""The state of a log as one frozen value, and the values that it consists of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from tidefold.domain.change_set import ChangeSet as ChangeSet
from tidefold.domain.change_set import ChangeSetLocation as ChangeSetLocation
from tidefold.domain.commit_times import AsOf
from tidefold.domain.external_snapshot import External, Reshape
from tidefold.domain.landing_problems import NO_PROBLEMS, LandingProblems
from tidefold.domain.source_progress import FollowedTtl as FollowedTtl
from tidefold.domain.source_progress import LandedFileRecord as LandedFileRecord
from tidefold.domain.source_progress import NameReading
from tidefold.domain.source_progress import Position as Position
from tidefold.domain.table.table_spec import Column as Column
from tidefold.domain.table.table_spec import TableSpec as TableSpec
from tidefold.domain.table.types import FIRST, Schema
from tidefold.domain.uploads import UploadTotals


@dataclass(frozen=True, slots=True)
class Tag:
    """A name of a snapshot. A snapshot with a tag is kept."""

    name: str
    snapshot: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Keeps a snapshot and the log after it, until a person releases the hold."""

    name: str
    snapshot: int
    why: str


@dataclass(frozen=True, slots=True)
class Consumer:
    """A program that has read the log up to `sqn`. The log after that is kept for it."""

    name: str
    sqn: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """The log accepts no more changes.

    run, by, why: the run that stopped it, the person who asked for it, and the reason.
    address: the address of the savepoint that it was stopped for.
    instant: ISO 8601, for people; empty: not known.
    """

    run: str
    by: str
    why: str
    address: str
    instant: str

    def __str__(self) -> str:
        return f"stopped by {self.by}{f' on {self.instant[:10]}' if self.instant else ''} ({self.why})"

    def explain(self, log: str) -> str:
        """Says who stopped the log, and the command that ends that."""
        return f"{self}; `tidefold move resume {log}` ends that"


@dataclass(frozen=True, slots=True)
class Drill:
    """The newest restore drill of a snapshot.

    instant: when it was (ISO 8601, for people).
    seconds: how long it took.
    bytes, bytes_local: how many bytes it read, and how many of them from local copies.
    passed: whether rows and checksums were as recorded.
    """

    instant: str
    seconds: float
    bytes: int
    bytes_local: int
    passed: bool


class SnapshotKind(StrEnum):
    """What a snapshot consists of.

    FULL: only files of its own.
    INCREMENTAL: files of its own, and files that it shares with confirmed snapshots.
    TAIL: the files of another snapshot, and the change sets after it.
    """

    FULL = "full"
    INCREMENTAL = "incremental"
    TAIL = "tail"


class State(StrEnum):
    """The states of a snapshot."""

    ONGOING = "ONGOING"
    STAGED = "STAGED"
    COMPLETED = "COMPLETED"
    SUBSUMED = "SUBSUMED"
    DELETED = "DELETED"
    ABORTED = "ABORTED"


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
    """A rule that drops the rows whose `column` is before an instant.

    `before` is written like the statistics of a data file: `2026-01-31`, or `2026-01-31T00:00:00.000Z`.
    """

    column: str
    before: str


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """How many bytes were read to make a snapshot: from local copies, from the store, and from elsewhere."""

    local: int = 0
    store: int = 0
    external: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One attempt at a snapshot. It folds the change sets `from_sqn` < sqn <= `folds_to` into its parent.

    id: the number of the snapshot in its log; ids only rise.
    epoch: the number of the attempt; a newer attempt fences off an older one.
    request: sha256 of the run's request; a different request of the same run is refused.
    kind, state: see SnapshotKind and State.
    base: the newest completed snapshot when it began; None: there was none.
    from_sqn: the last change set that its parent contains.
    to_sqn: the last change set that it contains or leaves out; the next snapshot continues after it. A tail-only
        snapshot has the files of its base and the change sets up to here.
    started_at: ISO 8601, for people; no clock decides (I24).
    manifest: sha256 of its manifest, once it is staged.
    rows, files: the numbers of its rows and files.
    bytes_full: the bytes of all its files.
    bytes_written: the bytes of the files that its run wrote.
    verdict: the verdict of the quality gate.
    table_version: the version of the table that published it.
    abort_reason: why it was aborted; empty: it was not aborted.
    restored_from: the snapshot whose rows a restore brings back.
    skipped_from: change sets from here to `to_sqn` are left out for good; None: none are.
    published_at: ISO 8601, for people.
    expire: which rows it drops for their age, fixed when it began.
    drill: its newest restore drill.
    bytes_read: how many bytes its run read, by source.
    external: where its rows were imported from.
    buckets: the number of its buckets, once it is staged.
    horizon: deletes whose order begins with a lower number are forgotten; fixed when it began.
    ties, unresolved, unresolved_keys: see `Manifest`.
    schema: id of the schema of its rows: the newest schema when it began.
    as_of: it contains only changes that were committed before this instant. No snapshot is built on it, it is never
        published, and its tag keeps it.
    max_commit_time: the latest commit time of its changes; None: not known.
    token: a part of the names of its files. No other attempt has the same token, not even under a rebuilt ledger.
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
        """The sqn of the last change set that is folded into it."""
        return self.to_sqn if self.skipped_from is None else self.skipped_from

    @property
    def parent(self) -> int | None:
        """Id of the snapshot whose files it begins with."""
        if self.reshape:  # It folds the change sets of its plan onto the empty table.
            return None
        return self.base if self.restored_from is None else self.restored_from

    @property
    def reshape(self) -> Reshape | None:
        """The table definition that the log gets with it; None: it keeps its own."""
        return self.external.reshape if self.external else None

    @property
    def title(self) -> str:
        """Its number, and what it brings in if it is no fold, for messages."""
        if self.reshape or not self.external:
            origin = "" if self.restored_from is None else f"a restore of snapshot {self.restored_from}"
        else:
            origin = f"an import of {self.external.address}"
        return f"snapshot {self.id}{f' ({origin})' if origin else ''}"

    @property
    def open(self) -> bool:
        return self.state in (State.ONGOING, State.STAGED)

    @property
    def in_main_lineage(self) -> bool:
        """Whether it has files of its own and all changes up to `to_sqn`. Each is built on the one before."""
        return self.kind is not SnapshotKind.TAIL and self.as_of is None

    @property
    def published(self) -> bool:
        return self.table_version is not None


class DeletionState(StrEnum):
    """The progress of the deletion of a log."""

    NO = "no"
    GOING = "going"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class LogState:
    """Everything that tidefold knows about one log. A transition makes a new state and changes nothing in place.

    shape: the definition of its table, with the newest columns.
    epoch: the epoch of the newest attempt.
    landed: a record of each landed file, in order.
    last_file: the number of the last landed file, or part of one. Numbers only rise, also over an import.
    positions: how far each partition of the source is ingested.
    snapshots: all snapshots, in the order of their ids.
    tags, holds, consumers: tags, holds and consumers, which keep snapshots and the log longer than retention does.
    truncated_to: change sets up to here are deleted.
    lost_from: change sets from here to `truncated_to` were lost when the ledger was rebuilt; 0: none were.
    garbage: segments that are marked for deletion.
    deletion: the progress of the deletion of the log. Until it is done, no transition is possible. The next log of this
        name continues the epochs and snapshot ids of this one, so that no number is used twice.
    last_snapshot: the highest snapshot id of deleted logs of this name.
    fence: rises when announced change sets are rejected. Their writers are refused from then on.
    generation: counts the logs of this name.
    stopped: set while the log accepts no changes.
    schemas: the schemas of the log, oldest first; empty: the columns never changed.
    incarnation: a random text, new each time a ledger begins; tokens of attempts begin with it.
    former: incarnations of the deleted logs of this name.
    names: how the log reads the names of landed files, set by the first file; None: there was none.
    landing: landed files that the last ingest did not ingest, or that brought nothing new.
    uploads: the uploads of its change sets so far; None: none were counted.
    followed_ttl: the time to live that its metadata set; None: that of the configuration counts.
    folders: the landing folders that own it. Files of others are refused. Empty: the next ingest decides.
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
    consumers: tuple[Consumer, ...] = ()
    fence: int = 0
    generation: int = 0
    stopped: Stopped | None = None
    schemas: tuple[Schema, ...] = ()
    incarnation: str = ""
    former: tuple[str, ...] = ()
    names: NameReading | None = None
    landing: LandingProblems = NO_PROBLEMS
    uploads: UploadTotals | None = None
    lost_from: int = 0
    last_file: int = 0
    followed_ttl: FollowedTtl | None = None
    folders: tuple[str, ...] = ()

    @property
    def stays(self) -> Stopped | None:
        """The stop of a restore whose rows stay until somebody resumes the log; None: it is not stopped so."""
        restored = {s.run for s in self.snapshots if s.restored_from is not None}
        return self.stopped if self.stopped and self.stopped.run in restored else None

    @property
    def cut_reason(self) -> str:
        """How the change sets up to `truncated_to` went away, for messages."""
        return "cut by a rebuild of its ledger" if self.lost_from else "truncated"

    @property
    def schema(self) -> int:
        """The id of the newest schema."""
        return self.schemas[-1].id if self.schemas else FIRST

    @property
    def last_sqn(self) -> int:
        return self.change_sets[-1].sqn if self.change_sets else self.truncated_to

    @property
    def latest(self) -> Snapshot | None:
        """The newest completed snapshot with files of its own. The next snapshot is built on it."""
        return next((s for s in reversed(self.snapshots) if s.state is State.COMPLETED and s.in_main_lineage), None)

    @property
    def open_attempt(self) -> Snapshot | None:
        """The open attempt at the next snapshot. At most one is open at a time."""
        return next((s for s in reversed(self.snapshots) if s.open and s.as_of is None), None)

    @property
    def reshaped(self) -> Snapshot | None:
        """The snapshot with which the log got its present table definition; None: it has its first one."""
        undone = (State.ABORTED, State.ONGOING, State.STAGED)
        return next((s for s in reversed(self.snapshots) if s.reshape and s.state not in undone), None)

    @property
    def begins(self) -> int:
        """The last sqn before the present table definition: later change sets are the log's whole history."""
        return self.reshaped.from_sqn if self.reshaped else 0

    @property
    def as_of_attempts(self) -> tuple[Snapshot, ...]:
        """The open attempts at snapshots as of an instant. Any number can be open, besides the next snapshot's."""
        return tuple(s for s in self.snapshots if s.open and s.as_of is not None)

    def find_open(self, run: str | None) -> Snapshot | None:
        """Returns the open attempt of this run, of whatever kind; without a run, the attempt at the next snapshot."""
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
        """Returns the state with one snapshot replaced, or added if its id is new."""
        kept = tuple(changed if s.id == changed.id else s for s in self.snapshots)
        return replace(self, snapshots=kept if changed in kept else (*kept, changed))
