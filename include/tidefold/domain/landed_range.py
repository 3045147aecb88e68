"""Counts refused records and table truncates in the landed files that a snapshot folds. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tidefold.domain.ingest.quarantine_retry import is_skipped
from tidefold.domain.log_state import LogState, Snapshot


@dataclass(frozen=True, slots=True)
class LandedRange:
    """Counts over the landed files of one range.

    new: their new records: changes and refused records. Repeated, re-sent, unproved and ignored ones are not new.
    refused: those that still are in quarantine.
    truncated_in: the files that contain a truncate of the whole table.
    earlier: records of earlier files that still are in quarantine, so that published rows may be missing or stale.
    """

    new: int = 0
    refused: int = 0
    truncated_in: tuple[str, ...] = ()
    earlier: int = 0


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
    return LandedRange(
        sum(entry.changes + entry.quarantined + (entry.ignored if extracts else 0) for entry in entries),
        sum(entry.quarantined for entry in entries),
        tuple(entry.name for entry in entries if entry.truncates),
        sum(entry.quarantined for entry in state.landed[:first] if entry.quarantined and not is_skipped(state, entry)),
    )
