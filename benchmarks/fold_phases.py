"""Where the time of one fold goes: the steps of all its tasks one after the other, each brought to its end."""

from __future__ import annotations

import copy
import shutil
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from fold_data import Case, fold, link_tree, open_bench
from tables import seconds
from tidefold.changelog.schema import change_schema, table_schema
from tidefold.compute.broadcast_work import TaskWork
from tidefold.compute.runners import TaskAnswer, in_process, on_spark
from tidefold.delta.data_files import FileStatistics, write_data_file
from tidefold.domain.paths import DataFileName
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.fold.base_rows import BaseFiles, BucketRows, open_base
from tidefold.fold.fold_bucket import MERGE_MEMORY
from tidefold.fold.inputs import Inputs
from tidefold.fold.merge.merge import merge_bucket
from tidefold.fold.plan import FoldTask
from tidefold.fold.tasks import FoldWork

_SCRATCH = "phases"


class Phases:
    """Adds up seconds by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - begun


def shares(spark: SparkSession, case: Case, scratch: Path) -> list[str]:
    """Lines of a table: seconds of each phase and its share of the whole without Spark."""
    root = scratch / _SCRATCH
    link_tree(case.root, root)
    texts: list[str] = []
    asked: list[FoldTask] = []
    phases = Phases()

    def run(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        texts.extend(tasks)
        asked.extend(work.task(task) for task in tasks if isinstance(work, FoldWork))
        with phases.phase("all tasks"):
            return in_process(work, tasks)

    whole = seconds(lambda: fold(open_bench(root), "phases", KindPolicy.INCREMENTAL, run))
    in_tasks = phases.seconds.pop("all tasks")
    for task in asked:
        _by_hand(task, root, phases)
    phases.seconds["plan, ledger, manifest, Delta commits"] = whole - in_tasks
    phases.seconds["rest of the tasks (overlap counts against it)"] = in_tasks - sum(
        value for name, value in phases.seconds.items() if not name.startswith("plan")
    )
    job = min(seconds(lambda: on_spark(spark)(copy.copy, texts)) for _ in range(3))
    shutil.rmtree(root)
    lines = [f"| {name} | {value:.2f} s | {value / whole:.0%} |" for name, value in phases.seconds.items()]
    return [
        *lines,
        f"| whole, one thread | {whole:.2f} s | 100% |",
        f"| Spark: a job of as many tasks that do nothing | {job:.2f} s | |",
    ]


def _by_hand(task: FoldTask, root: Path, phases: Phases) -> None:
    inputs, plan, recipe = Inputs(), task.plan, task.recipes[0]
    shape, near = plan.shape, task.find_change_sets(recipe)
    based = BaseFiles(recipe.base, plan.aligner, recipe.schema)
    schema, store = table_schema(shape), inputs.store(plan.target)
    with phases.phase("read segments: sha256, decode, filter"):
        found = inputs.changes(plan.snapshot, plan.segments, plan.index, near, task.bucket, 1)
        read = [one for one, _ in found]
        changes = pa.concat_tables([change_schema(shape).empty_table(), *read])
    with phases.phase("sha256 of base files"):
        for one in recipe.base:
            inputs.open(one)
    begun = time.perf_counter()
    with open_base(inputs, based, task.bucket) as stream:
        table = stream.read_all() if stream else schema.empty_table()
    both = time.perf_counter() - begun
    phases.seconds["decode base"] += both
    with tempfile.TemporaryDirectory() as scratch:
        begun = time.perf_counter()
        with merge_bucket(BucketRows(table.to_reader()), changes, shape, memory=MERGE_MEMORY, scratch=scratch) as done:
            phases.seconds["squash"] += time.perf_counter() - begun
            with phases.phase("merge"):
                rows = pa.Table.from_batches(done.bucket.rows or (), schema)
    with phases.phase("statistics"):
        for start in range(0, rows.num_rows, 262_144):
            FileStatistics(schema).add(rows.slice(start, 262_144))
    with phases.phase("encode, sha256, statistics, fsync"):
        name = DataFileName(task.bucket, 1, 1, uuid.uuid4().hex, "")
        write_data_file(store, f"bench/{_SCRATCH}", name, rows.to_batches(), schema)
