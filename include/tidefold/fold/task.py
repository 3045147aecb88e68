"""The work of one Spark task and its answer, as values: what to make a bucket from, and what became of it."""

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
    """One place where something may be read or written: `root` is the address of a store, `path` is relative to it."""

    where: StorageTier
    root: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.where}:{self.path}"


@dataclass(frozen=True, slots=True)
class Input:
    """A file of a snapshot and where it may be read, in the order in which the places are tried."""

    file: DataFile
    addresses: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to make the rows of a bucket: files of a snapshot, and the change sets to fold into them.

    `cleared`: the order of the highest clear that was folded into the snapshot.
    `schema`: the id of the schema that the files have.
    `unchanged`: what happens to the files if no change is for the bucket.
    """

    snapshot: int | None
    base: tuple[Input, ...]
    change_sets: tuple[ChangeSet, ...]
    cleared: tuple[int, ...] = ()
    schema: int = FIRST
    unchanged: RewriteDecision = field(default=RewriteDecision())


@dataclass(frozen=True, slots=True)
class FoldTask:
    """Everything one task needs to make one bucket; it reads nothing that is not named here (I6).

    `target`: the folder below whose `_data/` it writes. `segments`: roots of stores that have segments, in the order
    in which they are tried. The recipes are tried one after the other, until the inputs of one are all good.
    `is_restore`: the rows are those of a snapshot that exists; an error names each recipe that was tried. `table`: the
    folder of the table that will show what is taken over, if one will. `copy`: that gets bytes of its own.
    `part`: of a canonical savepoint, the path below the target's folder of the one file that it writes. `horizon`: what
    was deleted before it, in the log's order, need not be remembered. `before`: what was committed later than that,
    or then, is left out. `marks`: rows of a large file may be marked as deleted. `gathers`: there are tasks for all
    buckets, which read the same change sets. `shape` has the schema of this id; `schemas`: see `Aligner`.
    `token`: that of the attempt, for the names of its files.
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
        """What brings inputs to the shape."""
        return Aligner(self.shape, self.schema, self.schemas)

    @property
    def writes_rows(self) -> bool:
        """Whether the task merges or rewrites rows. If not, it links files."""
        first = self.recipes[0]
        return bool(first.change_sets) or first.unchanged.action is RewriteAction.REWRITE

    @property
    def weight(self) -> int:
        """About how many bytes the task reads."""
        first = self.recipes[0]
        changes = sum(c.location.length * _share(self.bucket, c.key_groups) for c in first.change_sets)
        return sum(i.file.bytes for i in first.base) + int(changes)


@dataclass(frozen=True, slots=True)
class Read:
    """One try to read an input: `why` says why it could not serve; empty: it did. `seconds` are for people."""

    name: str
    where: StorageTier
    place: str
    bytes: int
    seconds: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class FoldResult:
    """What became of one bucket: `files` are all that it consists of now, unless it was not `touched`.

    Counts are of keys after compaction; `replaced`: base rows that went, `expired`: rows dropped for their age;
    `bytes_copied`: of files taken over, those that were not linked. `recipe` is the number of the one that served.
    `cleared`: the order of the highest clear so far. `added`: the files come beside those that are there. `stays` is
    the name of a base file that is one of `files`, perhaps with more deletions.
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
