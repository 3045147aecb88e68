"""The plan of one attempt, as values: what all its tasks share, and the recipes of a bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tidefold.changelog.schema_alignment import Aligner
from tidefold.domain.key_groups import KeyGroups, OwnedRows
from tidefold.domain.log_state import ChangeSet, Expire, TableSpec
from tidefold.domain.snapshot.manifest import DataFile
from tidefold.domain.storage_tier import StorageTier
from tidefold.domain.table.schema import FIRST, Schema
from tidefold.fold.change_set_index import ChangeSetIndex, Numbers
from tidefold.fold.rewrite import RewriteDecision


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

    way: the number of the change sets in `FoldPlan.ways`; those that are near the bucket are folded.
    cleared: the order of the highest clear that was folded into the snapshot.
    unchanged: what to do with the files if no change is for the bucket.
    """

    snapshot: int | None
    base: tuple[Input, ...]
    way: int = 0
    cleared: tuple[int, ...] = ()
    schema: int = FIRST
    unchanged: RewriteDecision = field(default=RewriteDecision())


# Numbers of change sets: from the first to the one before the second.
Ranges = tuple[tuple[int, int], ...]


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
        """Returns a hash of the change sets, to tell them from others with the same numbers."""
        return hash(tuple(c.location.checksum for c in self.change_sets))

    @cached_property
    def _in_way(self) -> tuple[npt.NDArray[np.bool_], ...]:
        masks = tuple(np.zeros(len(self.change_sets), np.bool_) for _ in self.ways)
        for mask, ranges in zip(masks, self.ways, strict=True):
            for first, end in ranges:
                mask[first:end] = True
        return masks

    def near(self, way: int, bucket: KeyGroups) -> Numbers:
        """Returns the numbers of the change sets of a way that may have changes for a bucket."""
        return np.flatnonzero(self._in_way[way] & self.index.is_near(bucket))


def number_ways(ways: Sequence[Sequence[ChangeSet]]) -> tuple[tuple[ChangeSet, ...], tuple[Ranges, ...]]:
    """Returns the change sets of all ways, each once, and the ways as ranges of their numbers."""
    found = {(c.location.segment, c.location.ordinal): c for way in ways for c in way}
    ordered = sorted(found, key=lambda place: found[place].sqn)
    numbers = {place: number for number, place in enumerate(ordered)}
    ranges = (_find_ranges([numbers[c.location.segment, c.location.ordinal] for c in way]) for way in ways)
    return tuple(found[place] for place in ordered), tuple(ranges)


def _find_ranges(numbers: Sequence[int]) -> Ranges:
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number:
            found[-1] = found[-1][0], number + 1
        else:
            found.append((number, number + 1))
    return tuple(found)
