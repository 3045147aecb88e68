"""The manifest of a snapshot: its files and their origin. It is written once and never changed."""

from __future__ import annotations

from dataclasses import dataclass

from tidefold.domain.key_groups import KeyGroups, Redistribution
from tidefold.domain.log_state import Position, Snapshot, SnapshotKind, TableSpec
from tidefold.domain.paths import LogPaths
from tidefold.domain.table.schema import FIRST, Schema


@dataclass(frozen=True, slots=True)
class Deletions:
    """Deleted rows of a file: their number, and Delta's inline deletion vector as text and as decoded bytes."""

    rows: int
    vector: str
    bytes: int


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of a snapshot.

    rows: the number of its rows without the deleted ones, which the file and `stats` still contain.
    stats: the Delta statistics document.
    carried: whether it was taken over from the base.
    hidden: whether it is no part of the table: it has what later folds must know beside the rows.
    deletions: its deleted rows.
    """

    name: str
    bytes: int
    rows: int
    sha256: str
    key_groups: KeyGroups
    stats: str
    carried: bool = False
    hidden: bool = False
    deletions: Deletions | None = None

    @property
    def rows_written(self) -> int:
        """All rows in the file, including the deleted ones."""
        return self.rows + (self.deletions.rows if self.deletions else 0)

    def is_within(self, bucket: KeyGroups) -> bool:
        """Whether all rows of the file belong to the bucket."""
        return bucket.first <= self.key_groups.first and self.key_groups.last <= bucket.last


def home(log: str, kind: SnapshotKind, snapshot: int) -> str:
    """Returns the folder of a snapshot's files: its own if it is full, else the table's, which many snapshots share."""
    return LogPaths(log).snapshot(snapshot) if kind is SnapshotKind.FULL else LogPaths(log).table


@dataclass(frozen=True, slots=True)
class Manifest:
    """A snapshot: its files and their origin. Immutable; the ledger identifies it by its sha256.

    bytes_copied: the bytes of carried files that were copied (as in object stores) instead of linked.
    expired: how many rows were dropped for their age.
    cleared: the order of the highest clear that was ever folded.
    ties: how many keys had different changes of the same order. tied: some of these keys, as JSON.
    unresolved: how many keys are left out, because a value was not sent and no earlier row has it.
    unresolved_keys: some of these keys, as JSON.
    token: the token of the attempt that wrote it.
    schema: the id of the schema of `shape`. A file may lack columns that were added without a value.

    The remaining fields are for `rebuild`.
    claim: the snapshot as it was claimed.
    schemas: the schemas of the log at that time.
    positions: the source positions at the snapshot's last sqn; None: not known.

    redistribution: how its rows are distributed to workers; None: split.
    """

    log: str
    snapshot: int
    epoch: int
    kind: SnapshotKind
    base: int | None
    from_sqn: int
    to_sqn: int
    shape: TableSpec
    files: tuple[DataFile, ...]
    bytes_copied: int = 0
    expired: int = 0
    cleared: tuple[int, ...] = ()
    ties: int = 0
    tied: tuple[str, ...] = ()
    schema: int = FIRST
    unresolved: int = 0
    unresolved_keys: tuple[str, ...] = ()
    token: str = ""
    claim: Snapshot | None = None
    schemas: tuple[Schema, ...] = ()
    positions: tuple[Position, ...] | None = None
    redistribution: Redistribution | None = None

    @property
    def home(self) -> str:
        """The folder whose `_data/` contains the files."""
        return home(self.log, self.kind, self.snapshot)

    @property
    def shown(self) -> tuple[DataFile, ...]:
        """The files that readers of the table see."""
        return tuple(f for f in self.files if not f.hidden)

    @property
    def rows(self) -> int:
        return sum(f.rows for f in self.shown)

    @property
    def bytes_full(self) -> int:
        return sum(f.bytes for f in self.files)

    @property
    def bytes_written(self) -> int:
        """The bytes that the snapshot added: new files and copied files."""
        return sum(f.bytes for f in self.files if not f.carried) + self.bytes_copied
