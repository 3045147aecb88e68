"""The input and the result of one task, as values: the plan with a bucket, and the files made."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import ChangeSet
from tidefold.domain.snapshot.manifest import DataFile
from tidefold.domain.storage_tier import StorageTier
from tidefold.fold.change_set_index import Numbers
from tidefold.fold.merge.ties import Tied
from tidefold.fold.merge.unresolved import Unresolved
from tidefold.fold.plan import FoldPlan, Recipe
from tidefold.fold.rewrite import RewriteAction


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
        return first.unchanged.action is RewriteAction.REWRITE or bool(len(self.near(first)))

    @property
    def weight(self) -> int:
        """Estimates how many bytes the task reads."""
        first = self.recipes[0]
        changes = self.plan.index.estimate_bytes(self.near(first), self.bucket)
        return sum(i.file.bytes for i in first.base) + changes

    def near(self, recipe: Recipe) -> Numbers:
        """Returns the numbers of the change sets that a recipe folds."""
        return self.plan.near(recipe.way, self.bucket)

    def change_sets(self, recipe: Recipe) -> tuple[ChangeSet, ...]:
        """Returns the change sets that a recipe folds."""
        return tuple(self.plan.change_sets[number] for number in self.near(recipe))


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
