"""Appends records that were refused before, and checks the conditions for that. Pure.

A table stores no order of its rows: the change that is folded later wins. So a record that was refused earlier may be
appended only if nothing newer of its key was folded or skipped since. Otherwise it would restore an old value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter

from tidefold.domain.explain.key_history import FoldedRange, layers
from tidefold.domain.ingest.append import require_fence, require_open
from tidefold.domain.log_state import ChangeSet, LandedFileRecord, LogState
from tidefold.domain.source_progress import NO_POSITION, StreamPosition
from tidefold.errors import ConflictError, RefusedError

# The change sets (after, to] that restores and imports left out.
SkippedRanges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ResolvedCounts:
    """How many records of one landed file are no longer refused, by their new result.

    number: the number of the file's record.
    key_changes: how many of them waited for what the log had under a key.
    """

    number: int
    changes: int = 0
    tombstones: int = 0
    repeated: int = 0
    ignored: int = 0
    key_changes: int = 0

    @property
    def total(self) -> int:
        return self.changes + self.tombstones + self.repeated + self.ignored


@dataclass(frozen=True, slots=True)
class RecoveredChangeSet:
    """The change set with the records of one partition that became readable."""

    topic: str
    partition: int
    change_set: ChangeSet


@dataclass(frozen=True, slots=True)
class QuarantineRetryCommit:
    """The result of a retry of one quarantine file.

    kept: the file that replaces it; None if no record is left.
    fence, last_sqn, left_out: the state of the log when the retry began; left_out: the ranges that restores skipped.
    note: who settled records by hand, and why.
    """

    path: str
    kept: str | None
    settled: tuple[ResolvedCounts, ...]
    brought: tuple[RecoveredChangeSet, ...]
    fence: int
    last_sqn: int
    left_out: SkippedRanges
    note: str = ""


def retake(state: LogState, retaken: QuarantineRetryCommit) -> LogState:
    """Appends the readable records and corrects the counts of their files in one step: no record is appended twice.

    Source positions do not change: they are beyond these records. Raises ConflictError if another retry was faster, or
    if changes or a restore came in between: they may be newer, and could be folded first. RefusedError if the log
    accepts no changes now, SupersededError if the change sets were rejected.
    """
    require_open(state)
    require_fence(state, retaken.fence)
    named = {entry.number for entry in state.landed if entry.quarantine == retaken.path}
    as_it_was = (state.last_sqn, find_skipped_ranges(state)) == (retaken.last_sqn, retaken.left_out)
    if not {one.number for one in retaken.settled} <= named or not as_it_was:
        raise ConflictError("RETRY_OVERTAKEN", f"Another retry, an ingest or a restore of `{state.log}` was faster.")
    settled = {one.number: one for one in retaken.settled}
    last = state.last_sqn + len(retaken.brought)
    landed = tuple(_correct(e, retaken, settled, last) if e.number in named else e for e in state.landed)
    highs = {(p.topic, p.partition): p.stream.max_order for p in state.positions}
    numbered = (
        replace(
            one.change_set,
            sqn=state.last_sqn + 1 + i,
            schema=state.schema,
            high=highs.get((one.topic, one.partition), ()),
        )
        for i, one in enumerate(retaken.brought)
    )
    return replace(state, landed=landed, change_sets=(*state.change_sets, *numbered))


def _correct(
    entry: LandedFileRecord, retaken: QuarantineRetryCommit, settled: dict[int, ResolvedCounts], last: int
) -> LandedFileRecord:
    one = settled.get(entry.number, ResolvedCounts(entry.number))
    left = entry.quarantined - one.total
    return replace(
        entry,
        changes=entry.changes + one.changes,
        tombstones=entry.tombstones + one.tombstones,
        repeated=entry.repeated + one.repeated,
        ignored=entry.ignored + one.ignored,
        quarantined=left,
        key_changes=entry.key_changes - one.key_changes,
        settled=(*entry.settled, f"{one.total} {retaken.note}") if retaken.note and one.total else entry.settled,
        quarantine=retaken.kept if left else None,
        retried=(*entry.retried, (last, one.total)) if one.total and not retaken.note else entry.retried,
    )


def quarantine_files(state: LogState) -> tuple[str, ...]:
    """The quarantine files of a log, the oldest first."""
    return tuple(dict.fromkeys(e.quarantine for e in state.landed if e.quarantine and e.quarantined))


def since(state: LogState, entry: LandedFileRecord) -> int:
    """Returns the first sqn whose changes may be newer than the records of this file."""
    later = [e for e in state.landed if e.number >= entry.number]
    brought = [e.sqns[0] for e in later if e.sqns] + [sqn for e in later for sqn, _ in e.retried]
    return min(brought, default=state.last_sqn + 1)


def stream_before(state: LogState, entry: LandedFileRecord) -> StreamPosition:
    """Returns the position that the partition of this file had reached before it."""
    place = entry.topic, entry.partition
    former = (e.stream for e in state.landed if e.number < entry.number and (e.topic, e.partition) == place)
    return max(former, key=attrgetter("max_order"), default=NO_POSITION)


def find_skipped_ranges(state: LogState) -> SkippedRanges:
    """The ranges (after, to) that restores skipped in the published lineage or in the open attempt.

    An import skips everything that was there.
    """
    folded = _layers(state)
    ranges = {(one.to, one.skipped_to) for one in folded if one.skipped_to is not None and not one.imported}
    return tuple(sorted({*ranges, *((0, end) for end in _import_ends(folded))}))


def is_replaced(state: LogState) -> bool:
    """Whether a restore or an import that leaves changes out is open: nobody knows which rows come next."""
    attempt = state.open_attempt
    return attempt is not None and (attempt.external is not None or attempt.skipped_from is not None)


def require_rows(state: LogState, left_out: SkippedRanges) -> None:
    """Raises RefusedError if the rows of the log are not those without these changes, or will be others.

    left_out: the ranges that were left out of the rows with which landed files were compared.
    """
    if is_replaced(state) or find_skipped_ranges(state) != left_out:
        raise RefusedError(
            "ROWS_REPLACED",
            f"What landed for `{state.log}` is compared with its rows, and a restore or an import that leaves changes "
            "out replaces them. The run ingested nothing.",
            hint=f"If its snapshot is open, run `tidefold step quality {state.log}` and `tidefold step confirm "
            f"{state.log}`, or `tidefold step abort {state.log}`. Then run ingest again.",
        )


def _layers(state: LogState) -> tuple[FoldedRange, ...]:
    return (*layers(state, state.latest), *layers(state, state.open_attempt))


def _import_ends(layers: Iterable[FoldedRange]) -> Iterator[int]:
    """The sqns up to which imports replaced the log."""
    return (one.to if one.skipped_to is None else one.skipped_to for one in layers if one.imported)


def is_skipped(state: LogState, entry: LandedFileRecord) -> bool:
    """Whether the file of this record landed in a range that a restore or an import skipped.

    The last file without changes before an import looks like one after it. It counts as before, because the imported
    rows may be newer.
    """
    if entry.sqn is not None:
        return any(after < entry.sqn <= to for after, to in find_skipped_ranges(state))
    before = max((e.sqn for e in state.landed if e.number <= entry.number and e.sqn is not None), default=0)
    ranges = find_skipped_ranges(state)
    return any(after <= before < to for after, to in ranges) or before <= max(_import_ends(_layers(state)), default=-1)


def room(state: LogState, entry: LandedFileRecord) -> tuple[int, int | None]:
    """Returns the offsets [first, end) that the file's records can have: between its neighbours in the partition."""
    mine = [e for e in state.landed if (e.topic, e.partition) == (entry.topic, entry.partition)]
    first = max((e.next_offset for e in mine if e.number < entry.number), default=0)
    end = min((e.first_offset for e in mine if e.number > entry.number), default=None)
    return first, end
