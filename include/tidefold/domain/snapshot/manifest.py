"""What a snapshot consists of, as it is stored once and never changed."""

from __future__ import annotations

from dataclasses import dataclass

from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import Position, Snapshot, SnapshotKind, TableSpec
from tidefold.domain.paths import LogPaths
from tidefold.domain.table.schema import FIRST, Schema


@dataclass(frozen=True, slots=True)
class Deletions:
    """Rows of a file that do not count any more: how many, and which, as an inline deletion vector of Delta: its text,
    and how many bytes it stands for.
    """

    rows: int
    vector: str
    bytes: int


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of a snapshot. `stats` is the Delta statistics document; `carried`: taken over from the base;
    `hidden`: no reader sees it (what a fold must know beyond the rows), and its rows are none of the table's. `rows`
    are those that count: without `deletions`, which `stats` and the file still have.
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
        """All rows that the file has."""
        return self.rows + (self.deletions.rows if self.deletions else 0)

    def is_within(self, bucket: KeyGroups) -> bool:
        """Whether all rows of the file belong to the bucket."""
        return bucket.first <= self.key_groups.first and self.key_groups.last <= bucket.last


def home(log: str, kind: SnapshotKind, snapshot: int) -> str:
    """Folder of a snapshot's files: a full one's own, else the table's, which many snapshots share."""
    return LogPaths(log).snapshot(snapshot) if kind is SnapshotKind.FULL else LogPaths(log).table


@dataclass(frozen=True, slots=True)
class Manifest:
    """THE snapshot: its files and what they were made of. Immutable; the ledger names it by its sha256.

    `bytes_copied`: of the files taken over, those whose bytes were copied, as object stores do, and not linked.
    `expired`: how many rows went for their age. `cleared`: the order of the highest clear that was ever folded.
    `ties`: how many keys had changes of one order that say different things; `tied` are some of them, as JSON.
    `unresolved`: how many keys are left out, as a value was not sent and no former row has it; `unresolved_keys` are
    some of them, as JSON. `token`: that of the attempt that wrote it. `schema`: the id of that of the log which
    `shape` has; a file may lack columns that were added without a value.

    A ledger is rebuilt from the rest. `claim` is the snapshot as it was claimed, `schemas` are those of the log then.
    `positions` say how far the source was taken at the snapshot's last sqn; None: not known.
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

    @property
    def home(self) -> str:
        """Folder whose `_data/` holds the files."""
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
        """What the snapshot really cost: new files, and the bytes of those taken over as copies."""
        return sum(f.bytes for f in self.files if not f.carried) + self.bytes_copied
