"""Values that many tests start from, made as the program makes them."""

from __future__ import annotations

from tidefold.domain.ingest.append import IngestedFile, append
from tidefold.domain.key_groups import KeyGroups, bucket_ranges
from tidefold.domain.log_state import (
    ChangeSet,
    ChangeSetLocation,
    Column,
    LandedFileRecord,
    LogState,
    Position,
    Snapshot,
    SnapshotKind,
    TableSpec,
    Verdict,
)
from tidefold.domain.paths import DataFileName
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.domain.source_progress import NO_PROGRESS, StreamPosition

SHAPE = TableSpec(("id",), (Column("id", "int"), Column("text", "string")), "postgresql", 16, 4)


def new_log(shape: TableSpec = SHAPE) -> LogState:
    return LogState("accounts", shape, version=1)


def arrival(state: LogState, changes: int = 10) -> IngestedFile:
    """Returns the next landed file of a log, with one offset for each change."""
    first = state.positions[0].next_offset if state.positions else 0
    end = first + max(changes, 1)
    landed = LandedFileRecord(
        number=0,
        name=f"accounts+0+{first:010d}.jsonl",
        length=100,
        checksum="00",
        topic="accounts",
        partition=0,
        first_offset=first,
        next_offset=end,
        records=end - first,
        changes=changes,
        tombstones=end - first - changes,
        repeated=0,
        quarantined=0,
        ignored=0,
        sqn=None,
    )
    span = KeyGroups(0, state.shape.key_groups - 1)
    change_set = ChangeSet(0, ChangeSetLocation(f"changelog/{first}.seg", 0, 8, 100, "00"), changes, span, (0, end))
    return IngestedFile(landed, change_set if changes else None, Position("accounts", 0, end, StreamPosition((0, end))))


def appended(state: LogState, changes: int = 10) -> LogState:
    return append(state, [arrival(state, changes)])


def _name(snapshot: Snapshot, bucket: KeyGroups, number: int) -> DataFileName:
    return DataFileName(bucket, snapshot.id, snapshot.epoch, f"{number:032x}", snapshot.token)


def manifest_of(state: LogState, snapshot: Snapshot, rows: int = 10) -> Manifest:
    """Returns a manifest of an attempt, with one file for each bucket."""
    files = tuple(
        DataFile(str(_name(snapshot, bucket, i)), 100, rows, "00", bucket, "{}")
        for i, bucket in enumerate(bucket_ranges(state.shape.key_groups, state.shape.buckets))
    )
    return Manifest(
        state.log,
        snapshot.id,
        snapshot.epoch,
        SnapshotKind.FULL,
        snapshot.base,
        snapshot.from_sqn,
        snapshot.to_sqn,
        state.shape,
        files,
        NO_PROGRESS,
        token=snapshot.token,
    )


def verdict_for(snapshot: Snapshot, passed: bool = True, suite: str = "suite") -> Verdict:
    return Verdict(passed, suite, snapshot.manifest or "", "logs/x/quality/verdict.json", "1 of 1 checks")
