"""The details of the outcomes of operations that make, complete or read a snapshot."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidefold.domain.log_state import SnapshotKind
from tidefold.operations.ground.outcome import Details, empty_if_none, inline_keys, omit_if_none
from tidefold.storage.local_copies.copies import Copied


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesRead:
    """How much was read from a storage tier."""

    files: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRead:
    """A place from which a file could not be read, and why."""

    file: str
    place: str
    why: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSources:
    """Where the rows of a snapshot were read.

    local, store, external: how much was read from each tier.
    older: key groups of buckets that were made from an older snapshot and the log, with its id (None: the log alone).
    sources: the place of each file.
    """

    local: FilesRead
    store: FilesRead
    external: FilesRead
    failed: Sequence[FailedRead]
    older: Mapping[str, int | None]
    sources: Mapping[str, str] | None = omit_if_none()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadDetails(Details):
    """What an operation read.

    manifests: places of the manifest that could not be used.
    read: where the rows were read from; None: nothing was read.
    """

    manifests: Sequence[FailedRead] | None = omit_if_none()
    read: ReadSources | None = empty_if_none()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCopyDetails(Copied):
    """The local copy of a snapshot. `warning`: why there is none."""

    warning: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRestore:
    """The result of a staged restore.

    mode: what happens to the changes after it.
    skipped, replayed: first and last sqn of the change sets that are left out, or folded again.
    as_of: changes that were committed from this instant on are left out, too.
    columns_gone: columns that the log no longer has.
    recorded: how many rows the ledger expects.
    """

    restored: int
    mode: str
    skipped: tuple[int, int] | None
    replayed: tuple[int, int] | None
    as_of: str | None = omit_if_none()
    columns_gone: Sequence[str] | None = omit_if_none()
    recorded: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedImport:
    """The result of a staged import: the address of the original, its owner, and the fields of StagedRestore.

    older_by: first and last of the folded change sets that an imported older snapshot of the same log does not have.
    """

    imported: str
    mode: str
    skipped: tuple[int, int] | None
    replayed: tuple[int, int] | None
    older_by: tuple[int, int] | None = omit_if_none()


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedDetails(ReadDetails):
    """A staged snapshot and the work for it.

    because: why it is of this kind.
    changes: how many changes were folded; upserts, deletes: how many keys.
    replaced: rows of the base that changed or were deleted; expired: rows that were dropped for their age.
    clears, cleared_rows: how often the table was cleared, and how many rows were there before.
    ties: keys with different changes of one order; ties_apart: in different files or partitions.
    parted: those listed of which a delete counts that is half of an update, and the other half landed before it.
    unresolved, unresolved_keys: keys that were left out, because a value was not sent.
    files_carried: files that were taken over unchanged.
    bytes_full: bytes of all files; bytes_written, bytes_copied: bytes that were written for it.
    as_of: its instant, if it is as of an instant.
    restore, imported: the restored or imported snapshot.
    local: its local copy, if local copies are configured.
    """

    kind: SnapshotKind
    because: str
    rows: int
    changes: int
    upserts: int
    deletes: int
    replaced: int
    expired: int
    clears: int
    cleared_rows: int
    ties: int
    ties_apart: int
    unresolved: int
    unresolved_keys: Sequence[Mapping[str, Any]]
    files: int
    files_carried: int
    bytes_full: int
    bytes_written: int
    bytes_copied: int
    buckets: int
    parted: Sequence[Mapping[str, Any]] | None = omit_if_none()
    as_of: str | None = omit_if_none()
    restore: StagedRestore | None = inline_keys()
    imported: StagedImport | None = inline_keys()
    local: LocalCopyDetails | None = omit_if_none()

    @property
    def warning(self) -> str:
        """Says that files parted updates, or that more than 1 % of the folded keys have ties apart; else empty."""
        if self.parted:
            shown = ", ".join(json.dumps(one) for one in self.parted[:3])
            return (
                "a delete came in a later file than the insert of the same order, and counts, so these have no row: "
                f"{shown}. If the source has the row, the two were one update: land the row once more, in a new file."
            )
        keys = self.upserts + self.deletes
        if self.ties_apart * 100 <= keys:
            return ""
        why = f"{self.ties_apart:,} of {keys:,} folded keys have different changes of one order in different files or "
        why += "partitions, and the later arrival counts"
        return f"{why}. Add a column that tells them apart to `order`, or set `quality.max_ties`."


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationDetails(Details):
    """A completed snapshot and its version of the published table."""

    rows: int
    table_version: int | None
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PointInTimeDetails(Details):
    """A completed snapshot as of an instant."""

    rows: int
    as_of: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PointInTimePlanDetails(Details):
    """What a snapshot as of an instant would fold.

    base: id of the snapshot that it begins with.
    change_sets, changes_at_most: what would be read.
    change_sets_later: later change sets without changes from before the instant.
    """

    as_of: str
    base: int | None
    change_sets: int
    changes_at_most: int
    change_sets_later: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TailDetails(Details):
    """A tail-only snapshot: the id of its base, and the change sets and changes after it."""

    base: int | None
    change_sets: int
    changes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionDetails(Details):
    """A compaction of the log: how many change sets with how many changes.

    into: how many change sets replace them.
    changes_kept: how many changes these have; None: nothing was written.
    """

    change_sets: int
    changes: int
    into: int
    changes_kept: int | None = omit_if_none()


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortDetails(Details):
    """How many files of aborted attempts were removed."""

    files_removed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportDetails(ReadDetails):
    """The rows of a snapshot as a Delta table elsewhere.

    sqn: the last change set in the rows.
    key_groups: first, last, and how many there are.
    share, redistribution: the part of one worker, and how rows were distributed; only if a share was asked for.
    owner: whose rows they are, if a broadcast chose one owner.
    """

    to: str
    rows: int
    files: int
    bytes: int
    sqn: int
    key_groups: tuple[int, int, int]
    share: str | None = omit_if_none()
    redistribution: str | None = omit_if_none()
    owner: str | None = omit_if_none()


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillDetails(ReadDetails):
    """The result of a restore drill. `wrong`: the differences from what was recorded."""

    seconds: float
    bytes: int
    bytes_local: int
    rows: int
    files: int
    passed: bool
    wrong: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointDetails(ReadDetails):
    """A savepoint. `sqn`: the last change set in its rows. `positions`: the source positions at that change set."""

    address: str
    kind: str
    sqn: int
    rows: int
    files: int
    bytes: int
    positions: Sequence[Mapping[str, Any]]
