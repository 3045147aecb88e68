"""The input and the result of one Spark task, as values: the recipes of a bucket, and the files that were made."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidefold.changelog.schema_alignment import Aligner
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import ChangeSet, Expire, TableSpec
from tidefold.domain.snapshot.manifest import DataFile
from tidefold.domain.table.schema import FIRST, Schema
from tidefold.domain.verify.expected_files import StorageTier
from tidefold.fold.merge.ties import Tied
from tidefold.fold.merge.unresolved import Unresolved
from tidefold.fold.rewrite import RewriteAction, RewriteDecision


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

    cleared: the order of the highest clear that was folded into the snapshot.
    schema: the id of the schema of the files.
    unchanged: what to do with the files if no change is for the bucket.
    """

    snapshot: int | None
    base: tuple[Input, ...]
    change_sets: tuple[ChangeSet, ...]
    cleared: tuple[int, ...] = ()
    schema: int = FIRST
    unchanged: RewriteDecision = field(default=RewriteDecision())


@dataclass(frozen=True, slots=True)
class FoldTask:
    """Everything that one task needs to make one bucket. It reads nothing that is not named here (I6).

    target: the folder below whose `_data/` the task writes.
    segments: roots of stores that have segments, in the order of the tries.
    recipes: tried one after the other, until all inputs of one are intact.
    is_restore: the rows are those of an existing snapshot; an error names each recipe that failed.
    table: the folder of the table that will show the linked files, if there is one.
    copy: linked files there get their own bytes.
    part: the path of the one file of a canonical savepoint, below the target's folder.
    horizon: deletes before it, in the log's order, need not be remembered.
    before: changes committed at or after this time are left out.
    marks: the task may mark rows of a large file as deleted.
    gathers: there are tasks for all buckets, which read the same change sets.
    schema: the id of the schema that `shape` has.
    schemas: see `Aligner`.
    token: the token of the attempt, for the names of its files.
    """

    log: str
    shape: TableSpec
    snapshot: int
    epoch: int
    bucket: KeyGroups
    target: Address
    segments: tuple[Address, ...]
    recipes: tuple[Recipe, ...]
    is_restore: bool = False
    table: str | None = None
    expire: Expire | None = None
    copy: bool = False
    part: str | None = None
    horizon: int | None = None
    before: int | None = None
    marks: bool = False
    gathers: bool = False
    schema: int = FIRST
    schemas: tuple[Schema, ...] = ()
    token: str = ""

    @property
    def aligner(self) -> Aligner:
        """Returns the aligner that converts inputs to the table definition."""
        return Aligner(self.shape, self.schema, self.schemas)

    @property
    def writes_rows(self) -> bool:
        """Whether the task merges or rewrites rows. If not, it links files."""
        first = self.recipes[0]
        return bool(first.change_sets) or first.unchanged.action is RewriteAction.REWRITE

    @property
    def weight(self) -> int:
        """Estimates how many bytes the task reads."""
        first = self.recipes[0]
        changes = sum(c.location.length * _share(self.bucket, c.key_groups) for c in first.change_sets)
        return sum(i.file.bytes for i in first.base) + int(changes)


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
    recipe: the number of the recipe that succeeded.
    cleared: the order of the highest clear so far.
    added: the files are added to the existing ones.
    stays: the name of a base file that is one of `files`, perhaps with more deletions.
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
    added: bool = False
    stays: str = ""
    ties: Tied = field(default=Tied())
    unresolved: Unresolved = field(default_factory=Unresolved)
    reads: tuple[Read, ...] = field(default=())


def _share(bucket: KeyGroups, span: KeyGroups) -> float:
    overlap = min(bucket.last, span.last) - max(bucket.first, span.first) + 1
    return overlap / (span.last - span.first + 1)
