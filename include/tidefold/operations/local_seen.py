"""What lies among the local copies, and which segments of it nobody needs. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from tidefold.changelog.intents import announced
from tidefold.changelog.segment import read_index
from tidefold.ledger import Ledger
from tidefold.lifecycle.errors import CorruptError, NotFoundError, TidefoldError
from tidefold.lifecycle.local_copies import CopyName, LocalFile, segment_of, segments_needed
from tidefold.storage import Store
from tidefold.storage.local_roots import LocalRoots


@dataclass(frozen=True, slots=True)
class SegmentCopy:
    """A segment's local files, whole or half. No `logs`: the copy cannot be read."""

    path: str
    logs: frozenset[str]
    files: tuple[LocalFile, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What lay there before any ledger was read: so it is no newer than what the ledgers say. `segments`: but for those
    that a run is writing.
    """

    files: tuple[LocalFile, ...]
    snapshots: Mapping[CopyName, tuple[LocalFile, ...]]
    segments: tuple[SegmentCopy, ...]


def look(store: Store, local: LocalRoots) -> Seen:
    """Looks at all roots once. Raises StorageError when none of them answers, or the store does not."""
    snapshots: dict[CopyName, list[LocalFile]] = {}
    segments: dict[str, list[LocalFile]] = {}
    for file in local.files():
        name, segment = CopyName.of(file.path), segment_of(file.path)
        if name:
            snapshots.setdefault(name, []).append(file)
        elif segment:
            segments.setdefault(segment, []).append(file)
    files = tuple(file for found in (*snapshots.values(), *segments.values()) for file in found)
    # A log may still be told of these.
    on_their_way = {path for run in announced(store) for path in run.files} if segments else set()
    idle = [SegmentCopy(p, _logs_in(local, p), tuple(segments[p])) for p in segments if p not in on_their_way]
    return Seen(files, {name: tuple(found) for name, found in snapshots.items()}, tuple(idle))


def _logs_in(local: LocalRoots, path: str) -> frozenset[str]:
    try:
        return frozenset(entry.log for entry in read_index(local, path))
    except (NotFoundError, CorruptError):
        return frozenset()


def unneeded(store: Store, segments: Iterable[SegmentCopy]) -> list[SegmentCopy]:
    """The copies of segments that every log in them has folded, or that no ledger names."""

    @cache
    def needed_by(log: str) -> frozenset[str] | None:
        try:
            state = Ledger(store, log).find()
        except TidefoldError:
            return None  # Nobody knows what it needs.
        return segments_needed(state) if state else frozenset()

    def goes(segment: SegmentCopy) -> bool:
        needs = [needed_by(log) for log in sorted(segment.logs)]
        return all(need is not None and segment.path not in need for need in needs)

    return [segment for segment in segments if goes(segment)]
