"""Plans of any number of buckets and change sets, and how many bytes Spark would send for them."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from functools import partial

from pyspark import cloudpickle

from tidefold.compute import runners
from tidefold.compute.broadcast_work import BroadcastWork
from tidefold.compute.runners import partition_tasks
from tidefold.domain.external_snapshot import StorageTier
from tidefold.domain.key_groups import KeyGroups, bucket_ranges
from tidefold.domain.log_state import ChangeSet, ChangeSetLocation
from tidefold.domain.paths import DataFileName
from tidefold.domain.snapshot.manifest import DataFile
from tidefold.domain.table.table_spec import Column, TableSpec
from tidefold.fold.plan import Address, FoldPlan, FoldTask, Input, Recipe, number_ways
from tidefold.fold.tasks import serialize_tasks

_STORE = "file:///var/lib/tidefold/production/store"
_COLUMNS = ("id", "amount", "seen", "city", "text")
_DIGEST = "0123456789abcdef" * 4


@dataclass(frozen=True, slots=True)
class DealtBytes:
    """Bytes that Spark sends.

    shared: to each executor once.
    tasks: of all tasks together.
    function: with each of Spark's tasks.
    largest: of the largest of Spark's tasks.
    """

    shared: int
    tasks: int
    function: int
    partitions: int
    largest: int

    @property
    def all(self) -> int:
        return self.shared + self.tasks + self.function * self.partitions


def tasks_of(buckets: int, change_sets: int, ways: int = 1) -> list[FoldTask]:
    """Tasks of a fold of so many change sets into so many buckets, each with a file of five columns."""
    shape = TableSpec(
        key=("id",),
        order="arrival",
        columns=tuple(Column(name, "long" if name == "id" else "string") for name in _COLUMNS),
        key_groups=max(buckets, 1),
        buckets=buckets,
    )
    made = [_change_set(number, shape.key_groups) for number in range(1, change_sets + 1)]
    size = change_sets // ways
    numbered, ranges = number_ways([made[change_sets - size * (way + 1) :] for way in range(ways)])
    store = Address(StorageTier.STORE, _STORE, "tables/bench")
    plan = FoldPlan("bench", shape, 7, 7, store, (Address(StorageTier.STORE, _STORE),), numbered, ranges, gathers=True)
    spans = bucket_ranges(shape.key_groups, shape.buckets)
    return [FoldTask(plan, span, tuple(Recipe(6, (_input(span),), way) for way in range(ways))) for span in spans]


def _change_set(number: int, groups: int) -> ChangeSet:
    # Small ones miss some key groups at the ends, each others.
    span = KeyGroups(number * 7 % max(groups // 10, 1), groups - 1 - number * 13 % max(groups // 10, 1))
    place = ChangeSetLocation(f"changelog/2026-01-01/run-{number:032d}/0.seg", 0, 8, 40_000, _DIGEST)
    return ChangeSet(sqn=number, location=place, rows=1_000, key_groups=span, high=(number,))


def _input(span: KeyGroups) -> Input:
    texts = {name: f"a value of {name}, of 32 characters" for name in _COLUMNS}
    statistics = {
        "numRecords": 100_000,
        "minValues": texts,
        "maxValues": texts,
        "nullCount": dict.fromkeys(_COLUMNS, 0),
    }
    name = str(DataFileName(span, 6, 6, "0" * 32, "0" * 16))
    file = DataFile(name, 1 << 20, 100_000, _DIGEST, span, json.dumps(statistics))
    return Input(file, (Address(StorageTier.STORE, _STORE, f"tables/bench/_data/{name}"),))


def count_bytes(buckets: int, change_sets: int, cores: int | None = None) -> DealtBytes:
    """Counts what the runner on Spark sends. cores: of one machine, which gets some tasks a core; None: a cluster."""
    work, texts = serialize_tasks(tasks_of(buckets, change_sets))
    partitions = partition_tasks(texts, min(len(texts), runners.PARTITIONS_PER_CORE * cores) if cores else len(texts))
    dealt = [len(pickle.dumps(partition)) for partition in partitions]
    function = len(cloudpickle.dumps(partial(runners.work_partitions, None)))
    return DealtBytes(len(pickle.dumps(BroadcastWork(work))), sum(dealt), function, len(partitions), max(dealt))
