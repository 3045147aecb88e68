"""The plan of one attempt, as values: what its tasks share, the task and recipes of a bucket, and rewrites."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tidefold.changelog.schema import Aligner
from tidefold.domain.external_snapshot import StorageTier
from tidefold.domain.key_groups import KeyGroups, OwnedRows
from tidefold.domain.log_state import ChangeSet, Expire, TableSpec
from tidefold.domain.snapshot.manifest import DataFile
from tidefold.domain.table.types import FIRST, Schema
from tidefold.fold.merge.arrow_merge import ListedKeys
from tidefold.storage.local_copies.host_copies import HostCopied, HostFolders

PlaceNumbers = npt.NDArray[np.intp]
# Numbers of change sets: from the first to the one before the second.
Ranges = tuple[tuple[int, int], ...]


class RewriteAction(StrEnum):
    """What a task does with the files of a bucket without changes."""

    KEEP = "keep"
    LINK = "link"
    REWRITE = "rewrite"


@dataclass(frozen=True, slots=True)
class RewriteDecision:
    """Whether the files of a bucket stay.

    action: a task leaves the files, links them after it has proved their bytes, or writes their rows to new files.
    reason: why the rows are written again, for people.
    """

    action: RewriteAction = RewriteAction.KEEP
    reason: str = ""


def decide_rewrite(
    files: Sequence[DataFile],
    bucket: KeyGroups,
    *,
    unchanged: RewriteAction,
    expire: Expire | None = None,
    schema_differs: bool = False,
    rescaled: bool = False,
    keeps_deletions: bool = False,
    owners_differ: bool = False,
) -> RewriteDecision:
    """Decides for the files of one bucket.

    unchanged: what to do with files that can stay.
    expire: the rows that the new snapshot drops for their age.
    schema_differs: the new schema shows other values than the files have.
    rescaled: the number of buckets changes.
    keeps_deletions: the new snapshot may mark rows of a file as deleted.
    owners_differ: the files may have rows of owners that the new ones leave out.
    """
    if rescaled:
        return _rewrite("the number of buckets changes")
    if schema_differs:
        return _rewrite("the schema changes values")
    if owners_differ:
        return _rewrite("only the rows of one owner are wanted")
    if any(not file.is_within(bucket) for file in files):
        return _rewrite("a file has rows of other buckets")
    if expire and any(_has_expired(file, expire) for file in files):
        return _rewrite("rows are too old")
    if not keeps_deletions and any(file.deletions for file in files):
        return _rewrite("rows are marked as deleted")
    return RewriteDecision(unchanged)


def _rewrite(reason: str) -> RewriteDecision:
    return RewriteDecision(RewriteAction.REWRITE, reason)


def _has_expired(file: DataFile, expire: Expire) -> bool:
    """Whether the statistics of a file show a row that is too old."""
    lowest = json.loads(file.stats).get("minValues", {}).get(expire.column)
    return lowest is not None and str(lowest) < expire.before


class ChangeSetIndex:
    """Change sets by number, with their key groups and compressed lengths as arrays."""

    def __init__(self, change_sets: Sequence[ChangeSet]) -> None:
        self.change_sets = tuple(change_sets)
        self.lengths = np.array([c.location.length for c in change_sets], np.int64)
        self._first = np.array([c.key_groups.first for c in change_sets], np.int64)
        self._last = np.array([c.key_groups.last for c in change_sets], np.int64)

    def overlaps(self, bucket: KeyGroups) -> npt.NDArray[np.bool_]:
        """Returns for each change set whether it may have changes for a bucket."""
        return (self._first <= bucket.last) & (self._last >= bucket.first)

    def find_overlapping(self, bucket: KeyGroups) -> PlaceNumbers:
        """Returns the numbers of the change sets that may have changes for a bucket."""
        return np.flatnonzero(self.overlaps(bucket))

    def estimate_bytes(self, numbers: PlaceNumbers, bucket: KeyGroups) -> int:
        """Estimates how many bytes of these change sets are for a bucket. Each must overlap it."""
        first, last = self._first[numbers], self._last[numbers]
        overlap = np.minimum(last, bucket.last) - np.maximum(first, bucket.first) + 1
        return int(np.sum(self.lengths[numbers] * (overlap / (last - first + 1))))


@dataclass(frozen=True, slots=True)
class Address:
    """One address to read or write: `root` is the address of a store, `path` is relative to it."""

    where: StorageTier
    root: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.where}:{self.path}"


@dataclass(frozen=True, slots=True)
class Input:
    """A file of a snapshot and the addresses to read it from, in this order."""

    file: DataFile
    addresses: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to make the rows of a bucket: files of a snapshot, and the change sets to fold into them.

    way: the number of the change sets in `FoldPlan.ways`; those that overlap the bucket are folded.
    cleared: the order of the highest clear that was folded into the snapshot.
    unchanged: what to do with the files if no change is for the bucket.
    """

    snapshot: int | None
    base: tuple[Input, ...]
    way: int = 0
    cleared: tuple[int, ...] = ()
    schema: int = FIRST
    unchanged: RewriteDecision = field(default=RewriteDecision())


@dataclass(frozen=True)
class FoldPlan:
    """What all tasks of one attempt share. Each process gets it once, however many tasks it runs.

    target: the folder below whose `_data/` the tasks write.
    segments: roots of stores that have segments, in the order of the tries.
    change_sets: those that any task folds, each once.
    ways: for each recipe of a task, by number, which change sets it folds.
    is_restore: the rows are those of an existing snapshot; an error names each recipe that failed.
    table: the folder of the table that will show the linked files, if there is one.
    copy: linked files there get their own bytes.
    horizon: deletes before it, in the log's order, need not be remembered.
    before: changes committed at or after this time are left out.
    marks: the tasks may mark rows of a large file as deleted.
    gathers: there are tasks for all buckets, which read the same change sets.
    schema: the id of the schema that `shape` has.
    schemas: see `Aligner`.
    token: the token of the attempt, for the names of its files.
    only: only the rows of this owner are written.
    hosts: where the tasks find the copies of their hosts; None: they have none.
    """

    log: str
    shape: TableSpec
    snapshot: int
    epoch: int
    target: Address
    segments: tuple[Address, ...]
    change_sets: tuple[ChangeSet, ...] = ()
    ways: tuple[Ranges, ...] = ((),)
    is_restore: bool = False
    table: str | None = None
    expire: Expire | None = None
    copy: bool = False
    horizon: int | None = None
    before: int | None = None
    marks: bool = False
    gathers: bool = False
    schema: int = FIRST
    schemas: tuple[Schema, ...] = ()
    token: str = ""
    only: OwnedRows | None = None
    hosts: HostFolders | None = None

    @property
    def aligner(self) -> Aligner:
        """Returns the aligner that converts inputs to the table definition."""
        return Aligner(self.shape, self.schema, self.schemas)

    @cached_property
    def index(self) -> ChangeSetIndex:
        """Returns the change sets, to be searched by key groups."""
        return ChangeSetIndex(self.change_sets)

    @cached_property
    def checksums(self) -> int:
        """Returns a hash of the change sets and their schemas, to tell them from others with the same numbers."""
        return hash(tuple((c.location.checksum, c.schema) for c in self.change_sets))

    @cached_property
    def _in_way(self) -> tuple[npt.NDArray[np.bool_], ...]:
        masks = tuple(np.zeros(len(self.change_sets), np.bool_) for _ in self.ways)
        for mask, ranges in zip(masks, self.ways, strict=True):
            for first, end in ranges:
                mask[first:end] = True
        return masks

    def find_change_sets(self, way: int, bucket: KeyGroups) -> PlaceNumbers:
        """Returns the numbers of the change sets of a way that may have changes for a bucket."""
        return np.flatnonzero(self._in_way[way] & self.index.overlaps(bucket))


def number_ways(ways: Sequence[Sequence[ChangeSet]]) -> tuple[tuple[ChangeSet, ...], tuple[Ranges, ...]]:
    """Returns the change sets of all ways, each once, and the ways as ranges of their numbers."""
    change_sets = {(c.location.segment, c.location.ordinal): c for way in ways for c in way}
    ordered = sorted(change_sets, key=lambda place: change_sets[place].sqn)
    numbers = {place: number for number, place in enumerate(ordered)}
    ranges = (_find_ranges([numbers[c.location.segment, c.location.ordinal] for c in way]) for way in ways)
    return tuple(change_sets[place] for place in ordered), tuple(ranges)


def _find_ranges(numbers: Sequence[int]) -> Ranges:
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number:
            ranges[-1] = ranges[-1][0], number + 1
        else:
            ranges.append((number, number + 1))
    return tuple(ranges)


@dataclass(frozen=True, slots=True)
class FoldTask:
    """One bucket to make. The task reads nothing that it or its plan does not name (I6).

    recipes: tried one after the other, until all inputs of one are intact.
    part: the path of the one file of a canonical savepoint, below the target's folder.
    """

    plan: FoldPlan
    bucket: KeyGroups
    recipes: tuple[Recipe, ...]
    part: str | None = None

    @property
    def writes_rows(self) -> bool:
        """Whether the task merges or rewrites rows. If not, it links files."""
        first = self.recipes[0]
        return first.unchanged.action is RewriteAction.REWRITE or bool(len(self.find_change_sets(first)))

    @property
    def weight(self) -> int:
        """Estimates how many bytes the task reads."""
        first = self.recipes[0]
        changes = self.plan.index.estimate_bytes(self.find_change_sets(first), self.bucket)
        return sum(i.file.bytes for i in first.base) + changes

    def find_change_sets(self, recipe: Recipe) -> PlaceNumbers:
        """Returns the numbers of the change sets that a recipe folds."""
        return self.plan.find_change_sets(recipe.way, self.bucket)

    def change_sets(self, recipe: Recipe) -> tuple[ChangeSet, ...]:
        """Returns the change sets that a recipe folds."""
        return tuple(self.plan.change_sets[number] for number in self.find_change_sets(recipe))


@dataclass(frozen=True, slots=True)
class Read:
    """One try to read an input.

    why: why it failed; empty: it succeeded.
    seconds: for people.
    """

    name: str
    where: StorageTier
    place: str
    bytes: int
    seconds: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class FoldResult:
    """The result for one bucket.

    touched: the bucket was made again.
    files: all files of the bucket now, if it was touched.
    changes, upserts, deletes: keys after compaction.
    replaced: the base rows that were removed or replaced.
    expired: the rows that were dropped for their age.
    bytes_copied: bytes of linked files that had to be copied.
    cleared: the order of the highest clear so far.
    clears, cleared_rows: see `MergeResult`.
    added: the files are added to the existing ones.
    stays: the name of a base file that is one of `files`, perhaps with more deletions.
    copied: the copies that were made on the host.
    """

    bucket: KeyGroups
    touched: bool
    files: tuple[DataFile, ...] = ()
    upserts: int = 0
    deletes: int = 0
    replaced: int = 0
    changes: int = 0
    expired: int = 0
    bytes_copied: int = 0
    recipe: int = 0
    cleared: tuple[int, ...] = ()
    clears: int = 0
    cleared_rows: int = 0
    added: bool = False
    stays: str = ""
    ties: ListedKeys = field(default_factory=ListedKeys)
    reads: tuple[Read, ...] = field(default=())
    copied: tuple[HostCopied, ...] = ()
