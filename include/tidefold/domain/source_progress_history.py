"""Finds source positions at an earlier sqn, and counts of landed files, from their records. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidefold.domain.ingest.quarantine_retry import is_skipped
from tidefold.domain.log_state import LogState, Snapshot
from tidefold.domain.source_progress import (
    IMPORTED,
    LandedFileRecord,
    Position,
    SourceProgress,
    pack_files,
    unpack_files,
)


def positions_at(state: LogState, sqn: int) -> tuple[Position, ...]:
    """Returns the position of each partition when the log ended with this sqn, never a later one."""
    positions: dict[tuple[str, int], Position] = {}
    behind: set[tuple[str, int]] = set()
    for entry in state.landed:
        place = (entry.topic, entry.partition)
        if entry.sqn is not None and entry.sqn > sqn:
            behind.add(place)
        if place not in behind:
            positions[place] = _after(positions.get(place), entry)
    # A partition that has not moved since then is known exactly.
    now = {(p.topic, p.partition): p for p in state.positions}
    return tuple(now[place] if place not in behind else positions[place] for place in sorted(positions))


def _after(before: Position | None, entry: LandedFileRecord) -> Position:
    reached = max(before.next_offset if before else 0, entry.next_offset)
    return Position(entry.topic, entry.partition, reached, entry.stream)


def progress_at(state: LogState, sqn: int) -> SourceProgress:
    """Returns what the log knew of its source when it ended with this sqn."""
    later = next((i for i, entry in enumerate(state.landed) if entry.sqn is not None and entry.sqn > sqn), None)
    files = pack_files(state.landed[:later], sqn)
    return SourceProgress(positions_at(state, sqn), state.names, state.last_file, files, state.followed_ttl)


def continue_from(state: LogState, progress: SourceProgress) -> LogState:
    """Returns the log with this progress in place of its own: it ingests nothing from before it again."""
    files = unpack_files(progress)
    placed = [position for position in progress.positions if position.next_offset or position.stream.max_order]
    former = tuple(_stand_for(position, progress.last_file + i) for i, position in enumerate(placed, 1))
    return replace(
        state,
        positions=progress.positions,
        names=progress.names,
        landed=(*files, *former),
        last_file=progress.last_file + len(former),
        followed_ttl=progress.followed_ttl,
    )


def _stand_for(position: Position, number: int) -> LandedFileRecord:
    """Returns the record of all files of a partition before its position."""
    return LandedFileRecord(
        number=number,
        name=f"{position.topic}+{position.partition}{IMPORTED}",
        length=0,
        checksum="",
        topic=position.topic,
        partition=position.partition,
        next_offset=position.next_offset,
        stream=position.stream,
    )


@dataclass(frozen=True, slots=True)
class LandedRange:
    """Counts over the landed files of one range.

    new: their new records: changes and refused records. Repeated, re-sent, unproved and ignored ones are not new.
    refused: those that still are in quarantine.
    truncated_in: the files that contain a truncate of the whole table.
    earlier: records of earlier files that still are in quarantine, so that published rows may be missing or stale.
    unended: the topics with a snapshot of the source whose last row did not come, so that rows are missing.
    is_unended_new: one of these snapshots took no rows away before this range.
    """

    new: int = 0
    refused: int = 0
    truncated_in: tuple[str, ...] = ()
    earlier: int = 0
    unended: tuple[str, ...] = ()
    is_unended_new: bool = False


def find_landed_range(state: LogState, snapshot: Snapshot, *, extracts: bool = False) -> LandedRange:
    """Returns the counts of a snapshot; zeros for a restore and an as-of snapshot, whose rows are of another range.

    extracts: the files are full extracts. All their rows are new, although unchanged ones count as ignored.
    """
    if snapshot.restored_from is not None or snapshot.external or snapshot.as_of is not None:
        return LandedRange()
    # All files after the last file of the former range, including files without changes.
    numbers = [entry.sqn or 0 for entry in state.landed]
    first = max((i + 1 for i, sqn in enumerate(numbers) if 0 < sqn <= snapshot.from_sqn), default=0)
    end = next((i for i, sqn in enumerate(numbers) if sqn > snapshot.folds_to), len(state.landed))
    entries = state.landed[first:end]
    unended = _find_unended(state.landed[:end])
    before = _find_unended(state.landed[:first]) if unended else {}
    # What a retry took after the snapshot is not in it.
    refused = {entry.number: entry.quarantined + entry.count_retried(snapshot.folds_to) for entry in state.landed[:end]}
    return LandedRange(
        sum(entry.changes + entry.quarantined + (entry.ignored if extracts else 0) for entry in entries),
        sum(refused[entry.number] for entry in entries),
        tuple(entry.name for entry in entries if entry.truncates),
        sum(refused[e.number] for e in state.landed[:first] if refused[e.number] and not is_skipped(state, e)),
        tuple(sorted(unended)),
        any(before.get(topic) != order for topic, order in unended.items()),
    )


def _find_unended(landed: Sequence[LandedFileRecord]) -> dict[str, tuple[int, ...]]:
    """Returns the topics with a snapshot of the source that replaced the rows and lacks its last row, and its order.

    A first load replaced nothing: if the connector is killed in it, it begins again.
    """
    marks: dict[str, tuple[tuple[int, ...], ...]] = {}
    replaced: dict[str, tuple[int, ...]] = {}
    for entry in landed:
        begun, ended, high = marks.get(entry.topic, ((), (), ()))
        stream = entry.stream
        if high and stream.begun[:-1] > high:
            replaced[entry.topic] = stream.begun[:-1]
        marks[entry.topic] = max(begun, stream.begun), max(ended, stream.ended), max(high, stream.max_order)
    return {
        topic: order for topic, order in replaced.items() if marks[topic][0] == (*order, 2) and marks[topic][1] < order
    }
