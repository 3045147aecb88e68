"""A read with its inputs frozen: what each task reads, one task a bucket. Pure; pickled to Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tidefold.changelog.schema_alignment import Aligner
from tidefold.domain.key_groups import KeyGroups, bucket_ranges
from tidefold.domain.log_state import ChangeSet, TableSpec
from tidefold.domain.paths import data_path
from tidefold.domain.snapshot.manifest import DataFile
from tidefold.domain.table.schema import FIRST, Schema
from tidefold.domain.verify.expected_files import StorageTier
from tidefold.fold.task import Address, Input


@dataclass(frozen=True, slots=True)
class OneKey:
    """A key to look for: the values of its columns, in the order of the key, and its key group."""

    values: tuple[tuple[str, Any], ...]
    key_group: int


@dataclass(frozen=True, slots=True)
class ReadTask:
    """What one task reads: the files of a bucket and the change sets that may hold changes for it."""

    bucket: KeyGroups
    files: tuple[DataFile, ...]
    change_sets: tuple[ChangeSet, ...]

    @property
    def weight(self) -> int:
        """Bytes of its files and of the whole change sets: enough to put the largest task first."""
        return sum(f.bytes for f in self.files) + sum(c.location.length for c in self.change_sets)


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Everything a read will touch; what is ingested or confirmed later is not in it (I6).

    `store` is the store's address, `files` are those of snapshot `snapshot`, in the folder `home`. `folded`: the change
    sets are folded into the files' rows; if not, the change sets themselves are read, in order of their sqn.
    `share`: only these key groups. `cleared`: the highest clear folded into the files. `shape` has the schema of id
    `schema`, the files that of id `based`; `schemas`: see `Aligner`.
    """

    store: str
    log: str
    shape: TableSpec
    folded: bool
    snapshot: int | None
    files: tuple[DataFile, ...]
    change_sets: tuple[ChangeSet, ...]
    key: OneKey | None = None
    home: str = ""
    share: KeyGroups | None = None
    cleared: tuple[int, ...] = ()
    schema: int = FIRST
    based: int = FIRST
    schemas: tuple[Schema, ...] = ()

    @property
    def aligner(self) -> Aligner:
        """What brings files and change sets to the shape."""
        return Aligner(self.shape, self.schema, self.schemas)

    def inputs(self, files: Iterable[DataFile]) -> tuple[Input, ...]:
        """The files with the place where they are read."""
        return tuple(Input(f, (Address(StorageTier.STORE, self.store, data_path(self.home, f.name)),)) for f in files)

    @property
    def tasks(self) -> tuple[ReadTask, ...]:
        """One task for each bucket that has anything to read; of one key its bucket alone."""
        buckets = [b.within(self._all) for b in self._buckets if b.meets(self._all)]
        tasks = [self._task(bucket) for bucket in buckets if self.key is None or _holds(bucket, self.key)]
        return tuple(task for task in tasks if task.files or task.change_sets)

    @property
    def every_bucket(self) -> tuple[ReadTask, ...]:
        """One task for each bucket, also for those without rows."""
        return tuple(self._task(bucket) for bucket in self._buckets)

    @property
    def whole(self) -> ReadTask:
        """All buckets in one task: change sets come out one after the other."""
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
