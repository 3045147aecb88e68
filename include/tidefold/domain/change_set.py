"""Change sets of a log, and where each is stored."""

from __future__ import annotations

from dataclasses import dataclass

from tidefold.domain.commit_times import CommitTimeRange
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.table.types import FIRST


@dataclass(frozen=True, slots=True)
class ChangeSetLocation:
    """Where a change set is stored.

    ordinal: its place among the segment's change sets, from 0.
    offset: the offset of its first byte in the segment, and in local copies of the segment.
    length: its bytes.
    checksum: sha256 of its entry in the index of the segment; the entry has the sha256 of each piece.
    """

    segment: str
    ordinal: int
    offset: int
    length: int
    checksum: str

    def __str__(self) -> str:
        return f"{self.segment}#{self.ordinal}"


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """A run of changes of one log appended together.

    sqn: its number within the log. A compacted change set has the number of the last one that it replaces.
    location: where it is stored.
    rows: the number of its changes.
    key_groups: from the lowest to the highest key group of its changes.
    high: the highest order in its partition up to the end of this change set.
    floor: the source sent changes with a lower order again; they do not count.
    first: the number of the first change set that it replaces; None: it replaces none.
    top: the highest first number of the orders in it, if columns order the log.
    schema: id of the schema that it was made with.
    times: the commit times of its changes, also of those that a compaction removed; None: not known.
    file: the number of the landed file whose rows it has, if rows have no offsets. None: each change has its own place.
    batch: the order `file` of its rows, if names do not decide it: the number of the first file of its ingest.
    rows_before: how many rows of its file earlier parts of the file have; its own count from there.
    """

    sqn: int
    location: ChangeSetLocation
    rows: int
    key_groups: KeyGroups
    high: tuple[int, ...]
    floor: tuple[int, ...] | None = None
    first: int | None = None
    top: int | None = None
    schema: int = FIRST
    times: CommitTimeRange | None = None
    file: int | None = None
    batch: int | None = None
    rows_before: int = 0

    @property
    def begin(self) -> int:
        """The lowest sqn that it replaces, or its own."""
        return self.sqn if self.first is None else self.first
