"""Names and paths of local copies: which of them stay, and which are deleted to make room for a new copy. Pure.

Only the newest completed snapshot keeps its local copy (I18), whatever the primary store retains.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind, State
from tidefold.domain.paths import CHANGELOG, data_path

_ONGOING = ".ongoing"
_IN_COPY = re.compile(rf"([a-z][a-z0-9_]{{0,62}})/(\d{{10}})({re.escape(_ONGOING)})?/.+")
# A killed writer leaves its unfinished file under a longer name.
_SEGMENT = re.compile(rf"({CHANGELOG}/.+\.seg)(\.\w+\.part)?")


@dataclass(frozen=True, slots=True)
class CopyName:
    """The folder of a snapshot's copy, below the pipeline's local folder. An unfinished copy has another name (L4)."""

    log: str
    snapshot: int
    ongoing: bool = False

    def __str__(self) -> str:
        return f"{self.log}/{self.snapshot:010d}{_ONGOING if self.ongoing else ''}"

    @property
    def manifest(self) -> str:
        """Returns the path of the manifest. It is written last and deleted first: without it there is no copy."""
        return f"{self}/manifest"

    @classmethod
    def of(cls, path: str) -> CopyName | None:
        """Returns the copy that a file belongs to; None: it belongs to no copy."""
        parts = _IN_COPY.fullmatch(path)
        return cls(parts[1], int(parts[2]), parts[3] is not None) if parts else None

    @classmethod
    def around(cls, path: str) -> CopyName | None:
        """Returns the copy that a file or a folder belongs to; also for the copy's own folder."""
        return cls.of(f"{path}/-")


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of a local copy.

    root, path: its folder and its path below it.
    identity: equal for all hard links to one file; several copies may share a file.
    """

    root: str
    path: str
    bytes: int
    identity: str


def segment_of(path: str) -> str | None:
    """Returns the segment that a file is a finished or unfinished copy of; None for any other file."""
    parts = _SEGMENT.fullmatch(path)
    return parts[1] if parts and CopyName.of(path) is None else None


def root_number(path: str, pipeline: str, count: int) -> int:
    """Returns which of `count` roots a path of the pipeline belongs to (L3).

    Copies of snapshots take turns by id. All segments of a pipeline are in one root.
    """
    name = CopyName.around(path)
    turn = name.snapshot if name else int(hashlib.sha256(pipeline.encode()).hexdigest()[:8], 16)
    return turn % count


def stays(state: LogState | None, name: CopyName) -> bool:
    """Whether local retention keeps a copy: of the newest completed snapshot, of one that is being judged, or of the
    base of a newer tail (C11).

    An unfinished copy stays while its snapshot is open. After that no process completes it.
    """
    attempt = state.open_attempt.id if state and state.open_attempt else None
    latest = state.latest.id if state and state.latest else None
    needed = {latest, *(tail.base for tail in find_newer_tails(state))} if state else set()
    return name.snapshot == attempt or (name.snapshot in needed and not name.ongoing)


def find_newer_tails(state: LogState) -> tuple[Snapshot, ...]:
    """Returns the tails that are newer than the newest materialization. They may lie on an older one."""
    newest = state.latest.id if state.latest else 0
    tails = (s for s in state.snapshots if s.kind is SnapshotKind.TAIL and s.state is State.COMPLETED)
    return tuple(tail for tail in tails if tail.id > newest)


def leftover(state: LogState, name: CopyName) -> bool:
    """Whether no process will complete or use a copy (L4).

    That is an unfinished copy of a snapshot that is not open, or any copy of an aborted one. An id above those of the
    state may belong to an attempt that began after the state was read.
    """
    snapshot = state.snapshot(name.snapshot)
    if name.log != state.log:
        return False
    if snapshot is None:
        return name.ongoing and name.snapshot <= max((s.id for s in state.snapshots), default=state.last_snapshot)
    return snapshot.state is State.ABORTED or (name.ongoing and not snapshot.open)


def segments_needed(state: LogState) -> frozenset[str]:
    """Segments whose local copies still serve the log (C7, C11).

    The newest completed snapshot did not fold all of them, or a newer tail has them.
    """
    needed = [*state.unfolded]
    for tail in find_newer_tails(state):
        needed += state.change_sets_in(tail.from_sqn, tail.to_sqn)
    return frozenset(change_set.location.segment for change_set in needed)


def bytes_on_disk(files: Iterable[LocalFile]) -> int:
    """Returns the bytes of the files on the disk; a file with several names counts once."""
    return sum({file.identity: file.bytes for file in files}.values())


@dataclass(frozen=True, slots=True)
class PlannedCopy:
    """A copy to be made in a root.

    files: name and bytes of each data file.
    """

    name: CopyName
    root: str
    files: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class EvictionPlan:
    """Whether a copy fits the quota, and which copies are deleted for it.

    used: the bytes of all present copies.
    needed: the bytes that the new copy adds; files that it shares with a copy in its root add none.
    going: the copies to delete.
    """

    fits: bool
    used: int
    needed: int
    going: tuple[tuple[LocalFile, ...], ...] = ()


def plan_eviction(
    quota: int, wanted: PlannedCopy, kept: Sequence[LocalFile], removable: Sequence[tuple[LocalFile, ...]]
) -> EvictionPlan:
    """Returns which of the removable copies to delete, in the given order, so that all copies fit the quota.

    Deletes no more than needed, and nothing if the new copy would not fit even then.
    """

    def within(copies: Iterable[tuple[LocalFile, ...]]) -> bool:
        files = (*kept, *chain.from_iterable(copies))
        return bytes_on_disk(files) + _count_needed(wanted, files) <= quota

    everything = (*kept, *chain.from_iterable(removable))
    used, needed = bytes_on_disk(everything), _count_needed(wanted, everything)
    count = next((n for n in range(len(removable) + 1) if within(removable[n:])), None)
    if count is None:
        return EvictionPlan(False, used, needed)
    staying, going = list(removable[count:]), []
    for copy in removable[:count]:
        # Keep this copy if the rest is enough: a later copy may free enough alone, or this one shares all its files.
        if within([*staying, copy]):
            staying.append(copy)
        else:
            going.append(copy)
    return EvictionPlan(True, used, needed, tuple(going))


def _count_needed(wanted: PlannedCopy, files: Iterable[LocalFile]) -> int:
    """Returns the bytes of the files that no finished copy of the same log in the same root has."""
    sizes = {file.path: file.bytes for file in files if file.root == wanted.root}
    copies = {CopyName.of(path) for path in sizes}
    sources = [n for n in copies if n and n.log == wanted.name.log and not n.ongoing and n.manifest in sizes]
    return sum(
        size
        for name, size in wanted.files.items()
        if not any(sizes.get(data_path(str(source), name)) == size for source in sources)
    )
