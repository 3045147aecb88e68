"""Lists the local copies, finds segment copies that no log needs, and measures disk use. Changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tidefold.changelog.write_intents import ExpectedFiles, read_announced
from tidefold.domain.retention.local_copies import CopyName, LocalFile, bytes_on_disk, segment_of, segments_needed
from tidefold.errors import CorruptError, NotFoundError, TidefoldError
from tidefold.ledger import Ledger
from tidefold.operations.pipeline import Pipeline
from tidefold.storage import Store
from tidefold.storage.local_copies.roots import LocalRoots


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
    files = tuple(file for found in (*snapshots.values(), *segments.values()) for file in found)
    # A log may still commit these.
    on_their_way = ExpectedFiles(read_announced(store) if segments else ())
    idle = [SegmentCopy(p, _logs_in(local, p), tuple(segments[p])) for p in segments if p not in on_their_way]
    return Seen(files, {name: tuple(found) for name, found in snapshots.items()}, tuple(idle))


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


_log = logging.getLogger(__name__)


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


def _absent(path: str) -> str | None:
    """Returns a warning for a missing folder: no copy was made there yet, or its disk is not mounted."""
    return (
        None
        if Path(path).is_dir()
        else "the folder does not exist. Check that its disk is mounted. The next copy creates the folder"
    )


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
        quota=pipeline.config.local.quota_bytes,
        roots=tuple(
            RootUse(
                path, bytes_on_disk(f for f in files if f.root == path), local.unreadable.get(path) or _absent(path)
            )
            for path in (str(root.root) for root in local.roots)
        ),
        logs={log: bytes_on_disk(found) for log, found in sorted(snapshots.items())},
        segments=bytes_on_disk(f for f in files if segment_of(f.path)),
    )
