"""Lists the local copies, finds those that no log needs, and measures disk use."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tidefold.changelog.write_intents import ExpectedFiles, read_announced
from tidefold.domain.log_state import LogState
from tidefold.domain.retention.local_copies import (
    CopyName,
    LocalFile,
    PlannedCopy,
    bytes_on_disk,
    plan_eviction,
    segment_of,
    segments_needed,
    stays,
)
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.errors import CorruptError, NotFoundError, StorageError, TidefoldError, wrap_unexpected
from tidefold.ledger import Ledger
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.storage import Store
from tidefold.storage.local_copies.copies import discard_files
from tidefold.storage.local_copies.roots import LocalRoots

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SegmentCopy:
    """The finished and unfinished local files of a segment. No `logs`: the copy cannot be read."""

    path: str
    logs: frozenset[str]
    files: tuple[LocalFile, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """The local copies, listed before any ledger is read, so that the ledgers are newer than the list.

    segments: the copies of segments, without those that a run is writing.
    """

    files: tuple[LocalFile, ...]
    snapshots: Mapping[CopyName, tuple[LocalFile, ...]]
    segments: tuple[SegmentCopy, ...]


def look(store: Store, local: LocalRoots) -> Seen:
    """Lists all roots once. Raises StorageError if no root can be read, or the store cannot."""
    snapshots: dict[CopyName, list[LocalFile]] = {}
    segments: dict[str, list[LocalFile]] = {}
    for file in local.files():
        name, segment = CopyName.of(file.path), segment_of(file.path)
        if name:
            snapshots.setdefault(name, []).append(file)
        elif segment:
            segments.setdefault(segment, []).append(file)
    files = tuple(file for listed in (*snapshots.values(), *segments.values()) for file in listed)
    # A log may still commit these.
    on_their_way = ExpectedFiles(read_announced(store) if segments else ())
    idle = [SegmentCopy(p, _logs_in(local, p), tuple(segments[p])) for p in segments if p not in on_their_way]
    return Seen(files, {name: tuple(listed) for name, listed in snapshots.items()}, tuple(idle))


def _logs_in(local: LocalRoots, path: str) -> frozenset[str]:
    # Most machines have no copies of segments to read.
    from tidefold.changelog.segment import read_index

    try:
        return frozenset(entry.log for entry in read_index(local, path))
    except (NotFoundError, CorruptError):
        return frozenset()


def find_unneeded(store: Store, segments: Iterable[SegmentCopy]) -> list[SegmentCopy]:
    """Returns the copies of segments that every log in them has folded, or that no ledger names."""

    @cache
    def find_needed(log: str) -> frozenset[str] | None:
        try:
            state = Ledger(store, log).find()
        except TidefoldError:
            return None  # Its needs are unknown.
        return segments_needed(state) if state else frozenset()

    def goes(segment: SegmentCopy) -> bool:
        needs = [find_needed(log) for log in sorted(segment.logs)]
        return all(need is not None and segment.path not in need for need in needs)

    return [segment for segment in segments if goes(segment)]


@dataclass(frozen=True, slots=True)
class RootUse:
    """A root, the bytes of this pipeline's copies in it, and why it cannot be read (None: it can)."""

    path: str
    bytes: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class LocalUse:
    """Bytes on disk. A file that copies share by hard links counts once.

    logs: the bytes of the snapshots of each log.
    segments: the bytes of the copies of segments, which logs share.
    """

    bytes: int
    quota: int | None
    roots: tuple[RootUse, ...]
    logs: Mapping[str, int]
    segments: int


def local_use(pipeline: Pipeline) -> LocalUse | None:
    """Returns the use of the roots that can be read; None while local copies are disabled."""
    local = pipeline.local
    if local is None:
        return None
    files: list[LocalFile] = []
    snapshots: dict[str, list[LocalFile]] = {}
    try:
        for file in local.files():
            name = CopyName.of(file.path)
            if name:
                snapshots.setdefault(name.log, []).append(file)
            if name or segment_of(file.path):
                files.append(file)
    except TidefoldError as error:
        _log.warning("local copies cannot be looked at: %s", error)
    return LocalUse(
        bytes=bytes_on_disk(files),
        quota=pipeline.config.local.quota,
        roots=tuple(
            RootUse(
                path, bytes_on_disk(f for f in files if f.root == path), local.unreadable.get(path) or _absent(path)
            )
            for path in (str(root.root) for root in local.roots)
        ),
        logs={log: bytes_on_disk(copies_of_log) for log, copies_of_log in sorted(snapshots.items())},
        segments=bytes_on_disk(f for f in files if segment_of(f.path)),
    )


def _absent(path: str) -> str | None:
    """Returns a warning for a missing folder: no copy was made there yet, or its disk is not mounted."""
    return (
        None
        if Path(path).is_dir()
        else "the folder does not exist. Check that its disk is mounted. The next copy creates the folder"
    )


def provide_room(pipeline: Pipeline, manifest: Manifest) -> None:
    """Deletes copies until the copy of this snapshot fits: only copies that `retain clean --local` would delete too.

    Raises StorageError (LOCAL_QUOTA) if that is not enough; then nothing is deleted.
    """
    local, quota = pipeline.local, pipeline.config.local.quota
    if local is None or quota is None:
        return
    seen = look(pipeline.store, local)
    going = list(_removable(pipeline.store, seen))
    name = CopyName(manifest.log, manifest.snapshot)
    # An older copy under the same id is deleted in any case before the new one is made.
    may_go = {file for copy in going for file in copy}
    kept = [f for f in seen.files if not _is_of(f, name) and f not in may_go]
    wanted = PlannedCopy(name, local.root_of(str(name)), {file.name: file.bytes for file in manifest.files})
    room = plan_eviction(quota, wanted, kept, [copy for copy in going if not _is_of(copy[0], name)])
    if not room.fits:
        raise StorageError(
            "LOCAL_QUOTA",
            f"Local copies use {room.used:,} bytes of their quota of {quota:,}, and this one needs {room.needed:,}.",
        )
    for copy in room.going:
        discard_files(local, [file.path for file in copy])
        _log.info("removed %s from the local copies to keep their quota", copy[0].path)


def _is_of(file: LocalFile, name: CopyName) -> bool:
    copy = CopyName.of(file.path)
    return copy is not None and (copy.log, copy.snapshot) == (name.log, name.snapshot)


def _removable(store: Store, seen: Seen) -> Iterator[tuple[LocalFile, ...]]:
    """Yields what `retain clean --local` would delete: unfinished copies, old ones by age, then segments."""
    states = {log: _state(store, log) for log in {name.log for name in seen.snapshots}}
    for name in sorted(seen.snapshots, key=lambda n: (not n.ongoing, n.snapshot, n.log)):
        evidence, state = states[name.log]
        if evidence and not stays(state, name):
            yield seen.snapshots[name]
    for segment in find_unneeded(store, seen.segments):
        yield segment.files


def _state(store: Store, log: str) -> tuple[bool, LogState | None]:
    """Returns whether the state of the log is known, and the state."""
    try:
        return True, Ledger(store, log).find()
    except TidefoldError:
        return False, None


def without_room(pipeline: Pipeline) -> str:
    """Returns why segments get no local copy now: the quota is used up. Empty: they get one."""
    local, quota = pipeline.local, pipeline.config.local.quota
    if local is None or quota is None:
        return ""
    try:
        used = bytes_on_disk(f for f in local.files() if CopyName.of(f.path) or segment_of(f.path))
    except Exception as error:
        # The writer of the copy will report the error.
        _log.warning("local copies cannot be looked at: %s", wrap_unexpected(error))
        return ""
    return f"LOCAL_QUOTA: Local copies use {used:,} bytes of their quota of {quota:,}." if used >= quota else ""
