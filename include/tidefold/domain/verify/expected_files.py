"""The locations of a log's files, required and possible, and damage of their copies. Pure.

Names are not copies: a file that table and snapshots share by hard link is one copy on one disk, whatever its names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tidefold.domain.external_snapshot import StorageTier
from tidefold.domain.log_state import ChangeSet, DeletionState, LogState, Snapshot, SnapshotKind, State
from tidefold.domain.paths import LogPaths, data_path
from tidefold.domain.retention.local_copies import CopyName
from tidefold.domain.retention.log_bounds import with_files
from tidefold.domain.snapshot.manifest import DataFile, Deletions, Manifest


class FileRole(StrEnum):
    """What of a log a file is."""

    DATA = "data file"
    MANIFEST = "manifest"
    DELTA_LOG = "delta log"
    TABLE = "published table"
    SEGMENT = "segment"
    CHANGE_DATA = "change data file"
    VECTOR = "deletion vector"
    REFUSED = "refused records"


class DamageKind(StrEnum):
    """What is wrong with a copy. `unreadable`: the disk does not give its bytes; `foreign`: it names other files."""

    MISSING = "missing"
    CUT = "cut"
    ALTERED = "altered"
    UNREADABLE = "unreadable"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True, order=True)
class StoredLocation:
    """One name of a file, relative to the root of the store or of the local copies."""

    path: str
    where: StorageTier = StorageTier.STORE

    def __str__(self) -> str:
        return self.path if self.where is StorageTier.STORE else f"local:{self.path}"


@dataclass(frozen=True, slots=True)
class Expected:
    """A name of a file, and the snapshots that need it there.

    required: an absent file is missing.
    requested: report damage there. Other names only show whether they hold an intact copy.
    """

    place: StoredLocation
    snapshots: tuple[int, ...]
    required: bool = True
    requested: bool = True


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file by what it must hold: its sha256 and, where that is recorded, its length in bytes.

    change_sets: what a segment holds of the log. Its sha256 is in no ledger.
    manifest: what the Delta log of a snapshot's own table must say, or a manifest with `vector`.
    vector: the deletion vector that the file has.
    """

    part: FileRole
    sha256: str
    bytes: int | None
    names: tuple[Expected, ...]
    change_sets: tuple[ChangeSet, ...] = field(default=(), compare=False)
    manifest: Manifest | None = field(default=None, compare=False)
    vector: Deletions | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """Stays the same while copies come and go."""
        return _stable_name(self.part, self.names[0].place)

    @property
    def read_bytes(self) -> int:
        """How many bytes of a copy are read."""
        return self.bytes or sum(one.location.length for one in self.change_sets)

    def check_length(self, size: int) -> DamageKind | None:
        """Returns what is wrong with a copy of this size."""
        least = max((one.location.offset + one.location.length for one in self.change_sets), default=0)
        if size < (self.bytes or least):
            return DamageKind.CUT
        return DamageKind.ALTERED if self.bytes is not None and size > self.bytes else None


def _stable_name(part: FileRole, place: StoredLocation) -> str:
    # No two data files have one name, wherever they lie.
    return place.path.rpartition("/")[2] if part is FileRole.DATA else place.path


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a file, with all names that it was found under; `harm`: what is wrong with it, if anything is."""

    names: tuple[Expected, ...]
    harm: DamageKind | None = None

    @property
    def place(self) -> StoredLocation:
        return self.names[0].place

    @property
    def damaged(self) -> bool:
        """Whether there is damage to report."""
        return self.harm is not None and any(name.requested for name in self.names)


@dataclass(frozen=True, slots=True)
class Damage:
    """One damaged copy: its names, the snapshots that need it, and one name of each good copy that exists beside it.

    `repaired` says from what it was repaired; `why` why it was not, `hint` what to do then.
    """

    part: FileRole
    harm: DamageKind
    places: tuple[StoredLocation, ...]
    snapshots: tuple[int, ...]
    good: tuple[StoredLocation, ...] = ()
    repaired: str = ""
    why: str = ""
    hint: str = ""

    @property
    def name(self) -> str:
        """That of the `StoredFile`."""
        return _stable_name(self.part, self.places[0])

    def to_dict(self) -> dict[str, Any]:
        """For JSON: places as texts."""
        return {
            "part": self.part,
            "harm": self.harm,
            "snapshots": list(self.snapshots),
            "paths": [str(place) for place in self.places],
            "good": [str(place) for place in self.good],
            "repaired": self.repaired,
            "why": self.why,
            "hint": self.hint,
        }


def list_kept(state: LogState | None) -> tuple[Snapshot, ...]:
    """The snapshots whose files must be there: completed and staged ones with files of their own."""
    if state is None or state.deletion is not DeletionState.NO:
        return ()
    return with_files(s for s in state.snapshots if s.state in (State.COMPLETED, State.STAGED))


def manifest_files(
    log: str, snapshots: Iterable[Snapshot], local: Collection[int], requested: Collection[int]
) -> dict[int, StoredFile]:
    """The manifest of each snapshot; `local`: the snapshots that have a local copy."""
    return {s.id: _manifest_file(log, s, s.id in local, s.id in requested) for s in snapshots}


def _manifest_file(log: str, snapshot: Snapshot, local: bool, requested: bool) -> StoredFile:
    places = [StoredLocation(LogPaths(log).manifest(snapshot.id))]
    places += [StoredLocation(CopyName(log, snapshot.id).manifest, StorageTier.LOCAL)] if local else []
    # Whatever is asked for, the files of a snapshot are known by its manifest alone.
    names = tuple(Expected(place, (snapshot.id,), required=True, requested=requested) for place in places)
    return StoredFile(FileRole.MANIFEST, snapshot.manifest or "", None, names)


def data_files(
    log: str,
    snapshots: Iterable[Snapshot],
    manifests: Mapping[int, Manifest],
    local: Collection[int],
    requested: Collection[int],
) -> tuple[StoredFile, ...]:
    """Returns every data file of the requested snapshots with all its names; skips those without a known manifest."""
    naming: dict[DataFile, list[Snapshot]] = {}
    for snapshot in snapshots:
        for file in manifests[snapshot.id].files if snapshot.id in manifests else ():
            # Statistics and `carried` belong to the manifest, not to the bytes.
            naming.setdefault(DataFile(file.name, file.bytes, 0, file.sha256, file.key_groups, ""), []).append(snapshot)
    return tuple(
        StoredFile(FileRole.DATA, file.sha256, file.bytes, tuple(_names(log, file.name, named_by, local, requested)))
        for file, named_by in naming.items()
        if any(s.id in requested for s in named_by)
    )


def _names(
    log: str, name: str, named_by: Collection[Snapshot], local: Collection[int], requested: Collection[int]
) -> Iterable[Expected]:
    paths = LogPaths(log)
    for snapshot in named_by:
        own = snapshot.id in requested
        if snapshot.kind is SnapshotKind.FULL:
            place = StoredLocation(data_path(paths.snapshot(snapshot.id), name))
            yield Expected(place, (snapshot.id,), required=own, requested=own)
        if snapshot.id in local:
            place = StoredLocation(data_path(str(CopyName(log, snapshot.id)), name), StorageTier.LOCAL)
            yield Expected(place, (snapshot.id,), required=own, requested=own)
    # Readers of older versions of the table need the files of all that were published; those of a staged full snapshot
    # are put there beforehand, and once more when it is published. An incremental one has them nowhere else.
    shown = tuple(s.id for s in named_by if (s.published or s.kind is SnapshotKind.INCREMENTAL) and s.id in requested)
    yield Expected(StoredLocation(data_path(paths.table, name)), shown, required=bool(shown), requested=True)


def segment_files(change_sets: Iterable[ChangeSet]) -> tuple[StoredFile, ...]:
    """Returns the segments with these change sets. A local copy of each may exist."""
    inside: dict[str, list[ChangeSet]] = {}
    for one in change_sets:
        inside.setdefault(one.location.segment, []).append(one)
    return tuple(StoredFile(FileRole.SEGMENT, "", None, _segment_names(p), tuple(sets)) for p, sets in inside.items())


def _segment_names(path: str) -> tuple[Expected, ...]:
    return Expected(StoredLocation(path), ()), Expected(StoredLocation(path, StorageTier.LOCAL), (), required=False)


def delta_logs(manifest: Manifest, local: bool, commit: str) -> tuple[StoredFile, ...]:
    """Returns the Delta log of a snapshot's own folder, and of its local copy; `commit`: the name of its only file."""
    paths = LogPaths(manifest.log)
    folders = [StoredLocation(paths.snapshot(manifest.snapshot))] if manifest.kind is SnapshotKind.FULL else []
    folders += [StoredLocation(str(CopyName(manifest.log, manifest.snapshot)), StorageTier.LOCAL)] if local else []
    places = [StoredLocation(f"{folder.path}/{commit}", folder.where) for folder in folders]
    names = [Expected(place, (manifest.snapshot,)) for place in places]
    return tuple(StoredFile(FileRole.DELTA_LOG, "", None, (name,), manifest=manifest) for name in names)


def count_copies(file: StoredFile, links: bool) -> int:
    """How many copies of a file reading all of them takes at most; `links`: names in the store share one copy."""
    required = [name.place.where for name in file.names if name.required]
    stored = sum(where is StorageTier.STORE for where in required)
    return (min(stored, 1) if links else stored) + sum(where is StorageTier.LOCAL for where in required)


def damages(file: StoredFile, copies: Iterable[Copy]) -> list[Damage]:
    """Returns the damage of a file to report."""
    listed = tuple(copies)
    good = tuple(copy.place for copy in listed if copy.harm is None)
    return [
        Damage(
            file.part,
            copy.harm,
            tuple(sorted(name.place for name in copy.names)),
            tuple(sorted({i for name in copy.names for i in name.snapshots})),
            good,
        )
        for copy in listed
        if copy.harm is not None and copy.damaged
    ]
