"""A read with frozen inputs: one task for each bucket. Pure; it is pickled to Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tidefold.changelog.schema import Aligner
from tidefold.domain.external_snapshot import StorageTier
from tidefold.domain.key_groups import SPLIT, KeyGroups, OwnedRows, Redistribution, bucket_ranges
from tidefold.domain.log_state import ChangeSet, Expire, TableSpec
from tidefold.domain.paths import data_path
from tidefold.domain.snapshot.manifest import DataFile
from tidefold.domain.table.types import FIRST, Schema
from tidefold.fold.plan import Address, Input


@dataclass(frozen=True, slots=True)
class OneKey:
    """A key to look for: the values of its columns, in the order of the key, and its key group."""

    values: tuple[tuple[str, Any], ...]
    key_group: int


@dataclass(frozen=True, slots=True)
class ReadTask:
    """The input of one task: the files of a bucket, and the change sets that may have changes for it."""

    bucket: KeyGroups
    files: tuple[DataFile, ...]
    change_sets: tuple[ChangeSet, ...]

    @property
    def weight(self) -> int:
        """Returns the bytes of its files and of the whole change sets, to start the largest task first."""
        return sum(f.bytes for f in self.files) + sum(c.location.length for c in self.change_sets)


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Everything that a read touches. What is ingested or confirmed later does not belong to it (I6).

    shape: the table definition, with the schema of id `schema`.
    folded: the change sets are folded into the rows of the files. If not, the read returns the change sets by sqn.
    snapshot: the snapshot that `files` belong to.
    data_folder: the folder of the files.
    share: read only these key groups.
    cleared: the highest clear that was folded into the files.
    based: the id of the schema of the files.
    schemas: see `Aligner`.
    expire: rows that readers do not see any more.
    redistribution: how the rows of the snapshot are distributed to workers.
    only: read only the rows of one owner.
    """

    store: str
    log: str
    shape: TableSpec
    folded: bool
    snapshot: int | None
    files: tuple[DataFile, ...]
    change_sets: tuple[ChangeSet, ...]
    key: OneKey | None = None
    data_folder: str = ""
    share: KeyGroups | None = None
    cleared: tuple[int, ...] = ()
    schema: int = FIRST
    based: int = FIRST
    schemas: tuple[Schema, ...] = ()
    expire: Expire | None = None
    redistribution: Redistribution = SPLIT
    only: OwnedRows | None = None

    @property
    def aligner(self) -> Aligner:
        """Returns the aligner that converts files and change sets to the table definition."""
        return Aligner(self.shape, self.schema, self.schemas)

    def inputs(self, files: Iterable[DataFile]) -> tuple[Input, ...]:
        """Returns the files with their addresses."""
        return tuple(
            Input(f, (Address(StorageTier.STORE, self.store, data_path(self.data_folder, f.name)),)) for f in files
        )

    @property
    def tasks(self) -> tuple[ReadTask, ...]:
        """Returns one task for each bucket with anything to read; for one key only its bucket."""
        buckets = [b.within(self._all) for b in self._buckets if b.meets(self._all)]
        tasks = [self._task(bucket) for bucket in buckets if self.key is None or _holds(bucket, self.key)]
        return tuple(task for task in tasks if task.files or task.change_sets)

    @property
    def every_bucket(self) -> tuple[ReadTask, ...]:
        """One task for each bucket, also for those without rows."""
        return tuple(self._task(bucket) for bucket in self._buckets)

    @property
    def whole(self) -> ReadTask:
        """Returns all buckets as one task: change sets come out one after the other."""
        return self._task(self._all)

    @property
    def _all(self) -> KeyGroups:
        return self.share or KeyGroups(0, self.shape.key_groups - 1)

    @property
    def _buckets(self) -> tuple[KeyGroups, ...]:
        return bucket_ranges(self.shape.key_groups, self.shape.buckets)

    def _task(self, bucket: KeyGroups) -> ReadTask:
        files = tuple(f for f in self.files if f.key_groups.meets(bucket))
        return ReadTask(bucket, files, tuple(c for c in self.change_sets if c.key_groups.meets(bucket)))


def _holds(bucket: KeyGroups, key: OneKey) -> bool:
    return bucket.first <= key.key_group <= bucket.last
