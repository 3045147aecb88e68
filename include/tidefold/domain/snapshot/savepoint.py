"""The description of a savepoint, and its checks. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidefold.domain.external_snapshot import Layout
from tidefold.domain.key_groups import KeyGroups, Redistribution, bucket_ranges
from tidefold.domain.log_state import SnapshotKind, TableSpec
from tidefold.domain.paths import DataFileName, LogPaths
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.domain.source_progress import Position
from tidefold.errors import CorruptError, TidefoldError

# The description. It is written last; a folder without it is no savepoint.
DESCRIPTION = "savepoint.json"
# The mark of an unfinished savepoint: written first, removed last.
BEGUN = "savepoint.begun"
ROWS = "rows"
DELTA_LOG = "_delta_log/00000000000000000000.json"
_PART = re.compile(rf"{ROWS}/part-\d{{5}}\.parquet")


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
            path=f"{folder}/{file.name}",
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
    positions: the source positions at that change set.
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
    positions: tuple[Position, ...]
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
            cleared=self.cleared,
            redistribution=self.redistribution,
        )


def part_path(number: int) -> str:
    """Returns the path of a data file of a canonical savepoint."""
    return f"{ROWS}/part-{number:05d}.parquet"


def check_savepoint(found: Savepoint) -> Savepoint:
    """Returns the savepoint. Raises CorruptError if tidefold cannot have written it."""
    try:
        LogPaths(found.log)
        bucket_ranges(found.shape.key_groups, found.shape.buckets)
    except TidefoldError as error:
        raise _corrupt(error.message) from error
    paths = [f.path for f in found.files]
    if len(set(paths)) < len(paths):
        raise _corrupt("it names a file twice")
    for file in found.files:
        _check_file(found, file)
    if sum(f.rows for f in found.files if not f.hidden) != found.rows:
        raise _corrupt(f"its files do not have {found.rows:,} rows together")
    if found.sqn < 0 or found.snapshot < 1:
        raise _corrupt("the number of its snapshot or of its last change set is not possible")
    if set(found.delta_log) - {DELTA_LOG}:
        raise _corrupt("`delta_log` names a file outside `_delta_log`")
    return found


def _check_file(found: Savepoint, file: SavedFile) -> None:
    """Refuses a path outside the savepoint, because tidefold later deletes an original that it owns by these paths."""
    if found.kind is Layout.CANONICAL:
        known = _PART.fullmatch(file.path) is not None
    else:
        known = file.path.startswith("_data/") and DataFileName.parse(file.path.removeprefix("_data/")) is not None
    if not known or min(file.bytes, file.rows) < 0 or file.key_groups.last >= found.shape.key_groups:
        raise _corrupt(f"it names a file that cannot be in it: `{file.path}`")


def _corrupt(what: str) -> CorruptError:
    return CorruptError(
        "SAVEPOINT_INVALID",
        f"The description of the savepoint is damaged: {what}.",
        hint="Nothing was changed. Take another savepoint, or restore this one from a backup.",
    )
