"""The descriptions of a snapshot, written once: its manifest (files, their origin), and that of a savepoint."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidefold.domain.external_snapshot import Layout
from tidefold.domain.key_groups import KeyGroups, Redistribution, bucket_ranges
from tidefold.domain.log_state import Snapshot, SnapshotKind, TableSpec
from tidefold.domain.paths import DataFileName, LogPaths
from tidefold.domain.source_progress import SourceProgress
from tidefold.domain.table.types import FIRST, Schema
from tidefold.errors import CorruptError, TidefoldError

_COUNT, _KEYS = "leftOut", "leftOutKeys"
# A manifest, and each file of it, names so many of the keys that are left out.
NAMED = 10
# The description. It is written last; a folder without it is no savepoint.
DESCRIPTION = "savepoint.json"
# The mark of an unfinished savepoint: written first, removed last.
BEGUN = "savepoint.begun"
ROWS, SIDECAR = "rows", "beside"
# The folders of a savepoint of either kind.
FOLDERS = f"_data|_delta_log|{ROWS}|{SIDECAR}"
DELTA_LOG = "_delta_log/00000000000000000000.json"
_PART = re.compile(rf"({ROWS}/part|{SIDECAR}/{SIDECAR})-\d{{5}}(-[0-9a-f]{{32}})?\.parquet")


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
    stats: the Delta statistics document; of a hidden file also the keys that it leaves out of the table.
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


def as_hidden(file: DataFile, count: int, listed: Sequence[str]) -> DataFile:
    """Returns the file as a hidden one that leaves out so many keys. listed: the first of them, as JSON."""
    # They go wherever the file is carried, linked, copied or imported. A log without any pays nothing.
    left_out = json.dumps({"numRecords": file.rows, _COUNT: count, _KEYS: listed})
    return replace(file, hidden=True, stats=left_out if count else file.stats)


def data_folder(log: str, kind: SnapshotKind, snapshot: int) -> str:
    """Returns the folder of a snapshot's files: its own if it is full, else the table's, which many snapshots share."""
    return LogPaths(log).snapshot(snapshot) if kind is SnapshotKind.FULL else LogPaths(log).table


@dataclass(frozen=True, slots=True)
class Manifest:
    """A snapshot: its files and their origin. Immutable; the ledger identifies it by its sha256.

    bytes_copied: the bytes of carried files that were copied (as in object stores) instead of linked.
    expired: how many rows were dropped for their age.
    cleared: the order of the highest clear that was ever folded.
    clears, cleared_rows: how often its changes cleared the table, and how many rows were there before.
    ties: how many keys had different changes of the same order. tied: some of these keys, as JSON.
    token: the token of the attempt that wrote it.
    schema: the id of the schema of `shape`. A file may lack columns that were added without a value.

    The remaining fields are for `rebuild`.
    claim: the snapshot as it was claimed.
    schemas: the schemas of the log at that time.
    progress: the progress of the source at the snapshot's last sqn.

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
    progress: SourceProgress
    bytes_copied: int = 0
    expired: int = 0
    cleared: tuple[int, ...] = ()
    ties: int = 0
    tied: tuple[str, ...] = ()
    schema: int = FIRST
    token: str = ""
    claim: Snapshot | None = None
    schemas: tuple[Schema, ...] = ()
    redistribution: Redistribution | None = None
    clears: int = 0
    cleared_rows: int = 0

    @property
    def data_folder(self) -> str:
        """The folder whose `_data/` contains the files."""
        return data_folder(self.log, self.kind, self.snapshot)

    @property
    def shown(self) -> tuple[DataFile, ...]:
        """The files that readers of the table see."""
        return tuple(f for f in self.files if not f.hidden)

    @property
    def rows(self) -> int:
        return sum(f.rows for f in self.shown)

    @property
    def unresolved(self) -> int:
        """How many keys are left out until they are whole: a value was not sent, and no earlier row has it."""
        return sum(one.get(_COUNT, 0) for one in self._sidecar_stats)

    @property
    def unresolved_keys(self) -> tuple[str, ...]:
        """The first of these keys, as JSON."""
        return tuple(key for one in self._sidecar_stats for key in one.get(_KEYS, ()))[:NAMED]

    @property
    def _sidecar_stats(self) -> list[dict[str, Any]]:
        # Only where the source may leave a value out of a whole row is there such a key.
        return [json.loads(f.stats) for f in self.files if f.hidden] if self.shape.replaces_rows else []

    @property
    def is_outdated(self) -> bool:
        """Whether rows were dropped for their age, and no row that has an age is left."""
        column = self.claim.expire.column if self.claim and self.claim.expire else ""
        ages = (f.rows_written - json.loads(f.stats)["nullCount"].get(column, f.rows_written) for f in self.shown)
        return self.expired > 0 and not any(ages)

    @property
    def bytes_full(self) -> int:
        return sum(f.bytes for f in self.files)

    @property
    def bytes_written(self) -> int:
        """The bytes that the snapshot added: new files and copied files."""
        return sum(f.bytes for f in self.files if not f.carried) + self.bytes_copied


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A Parquet file of a savepoint.

    path: its path relative to the savepoint.
    stats: the Delta statistics document.
    hidden: see DataFile.
    """

    path: str
    bytes: int
    rows: int
    sha256: str
    key_groups: KeyGroups
    stats: str
    hidden: bool = False

    def data_file(self, key_groups: KeyGroups | None = None) -> DataFile:
        return DataFile(
            name=self.path.rsplit("/", 1)[1],
            bytes=self.bytes,
            rows=self.rows,
            sha256=self.sha256,
            key_groups=key_groups or self.key_groups,
            stats=self.stats,
            hidden=self.hidden,
        )

    @classmethod
    def of(cls, folder: str, file: DataFile) -> SavedFile:
        assert file.deletions is None, "savepoints contain no deletion vectors"
        return cls(
            path=f"{SIDECAR if file.hidden and folder == ROWS else folder}/{file.name}",
            bytes=file.bytes,
            rows=file.rows,
            sha256=file.sha256,
            key_groups=file.key_groups,
            stats=file.stats,
            hidden=file.hidden,
        )


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A snapshot outside of a store.

    sqn: its last change set.
    progress: the progress of the source at that change set.
    delta_log: the other files that belong to it.
    cleared, redistribution: see Manifest.
    instant: when it was taken, for people.
    """

    kind: Layout
    log: str
    snapshot: int
    sqn: int
    instant: str
    rows: int
    shape: TableSpec
    progress: SourceProgress
    files: tuple[SavedFile, ...]
    delta_log: tuple[str, ...] = ()
    cleared: tuple[int, ...] = ()
    redistribution: Redistribution | None = None

    @property
    def bytes(self) -> int:
        return sum(f.bytes for f in self.files)

    @property
    def manifest(self) -> Manifest:
        """Returns a native savepoint as the manifest of a full snapshot."""
        return Manifest(
            log=self.log,
            snapshot=self.snapshot,
            epoch=0,
            kind=SnapshotKind.FULL,
            base=None,
            from_sqn=self.sqn,
            to_sqn=self.sqn,
            shape=self.shape,
            files=tuple(f.data_file() for f in self.files),
            progress=self.progress,
            cleared=self.cleared,
            redistribution=self.redistribution,
        )


def part_path(number: int, savepoint: str) -> str:
    """Returns the path of a data file of a canonical savepoint. No other savepoint has it, also at the same place."""
    return f"{ROWS}/part-{number:05d}-{savepoint}.parquet"


def sidecar_path(part: str) -> str:
    """Returns the path of the sidecar of a part."""
    return part.replace(f"{ROWS}/part", f"{SIDECAR}/{SIDECAR}")


def check_savepoint(savepoint: Savepoint) -> Savepoint:
    """Returns the savepoint. Raises CorruptError if tidefold cannot have written it."""
    try:
        LogPaths(savepoint.log)
        bucket_ranges(savepoint.shape.key_groups, savepoint.shape.buckets)
    except TidefoldError as error:
        raise _corrupt(error.message) from error
    paths = [f.path for f in savepoint.files]
    if len(set(paths)) < len(paths):
        raise _corrupt("it names a file twice")
    for file in savepoint.files:
        _check_file(savepoint, file)
    if sum(f.rows for f in savepoint.files if not f.hidden) != savepoint.rows:
        raise _corrupt(f"its files do not have {savepoint.rows:,} rows together")
    if savepoint.sqn < 0 or savepoint.snapshot < 1:
        raise _corrupt("the number of its snapshot or of its last change set is not possible")
    if set(savepoint.delta_log) - {DELTA_LOG}:
        raise _corrupt("`delta_log` names a file outside `_delta_log`")
    return savepoint


def _check_file(savepoint: Savepoint, file: SavedFile) -> None:
    """Refuses a path outside the savepoint, because tidefold later deletes an original that it owns by these paths."""
    if savepoint.kind is Layout.CANONICAL:
        is_part = _PART.fullmatch(file.path) is not None
    else:
        is_part = file.path.startswith("_data/") and DataFileName.parse(file.path.removeprefix("_data/")) is not None
    if not is_part or min(file.bytes, file.rows) < 0 or file.key_groups.last >= savepoint.shape.key_groups:
        raise _corrupt(f"it names a file that cannot be in it: `{file.path}`")


def _corrupt(what: str) -> CorruptError:
    return CorruptError("SAVEPOINT_INVALID", f"The description of the savepoint is damaged: {what}.")
