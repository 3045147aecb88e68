"""How many jobs, stages, tasks and shuffles Spark runs for fixed small workloads, against tests/data/counts.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support import workloads
from support.counted import check
from support.workloads import LOG, append, copied, fold, local, opened, uniform
from tidefold.compute.runners import on_spark
from tidefold.domain.paths import LogPaths
from tidefold.operations.quality.judge import judge
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.quality.run.spark_rows import SparkEngine
from tidefold.spark.data_source import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return workloads.begun(tmp_path_factory.mktemp("counts") / "base")


@pytest.fixture
def root(base: Path, tmp_path: Path) -> Path:
    return copied(base, tmp_path / "root")


def counted_jobs(spark: SparkSession, act: Callable[[], object]) -> Counter[str]:
    """What Spark ran for it, by its own account once that is complete."""
    context = spark.sparkContext._jsc.sc()
    before = _jobs(context)
    act()
    counts: Counter[str] = Counter()
    told = context.statusStore()
    for job, stages in _jobs(context).items():
        for stage in stages if job not in before else ():
            ran = told.lastStageAttempt(stage)
            counts["stages"] += ran.numCompleteTasks() > 0
            counts["tasks"] += ran.numCompleteTasks()
            counts["shuffles"] += ran.shuffleWriteRecords() > 0
            counts["rows shuffled"] += ran.shuffleWriteRecords()
        counts["jobs"] += job not in before
    return counts


def _jobs(context: Any) -> dict[int, list[int]]:
    """The stages of each job so far, whoever asked for it."""
    context.listenerBus().waitUntilEmpty()
    told = context.statusStore().jobsList(None)
    jobs = [told.apply(i) for i in range(told.size())]
    return {job.jobId(): [job.stageIds().apply(i) for i in range(job.stageIds().size())] for job in jobs}


def test_a_fold_is_one_job_without_a_shuffle(spark: SparkSession, root: Path) -> None:
    append(root, uniform(1_000, 16))
    counts = counted_jobs(spark, lambda: fold(root, "next", runner=on_spark(spark)))
    check("Spark: 1 % changed anywhere", counts)
    assert (counts["jobs"], counts["stages"], counts["shuffles"]) == (1, 1, 0)


def test_the_gate(spark: SparkSession, root: Path) -> None:
    append(root, local(root, 1_000, 4))
    check("Spark: changes in 4 of 128 key groups", counted_jobs(spark, lambda: fold(root, "a", runner=on_spark(spark))))
    check("Spark: the gate, 3 checks", counted_jobs(spark, lambda: judge(opened(root), [LOG], "a", SparkEngine(spark))))
    assert confirm(opened(root), LOG, Confirmation(run="a")).status == "published"


def test_reads(spark: SparkSession, root: Path) -> None:
    append(root, uniform(1_000, 16))
    register(spark)
    given = {"config": str(root / "tidefold.yaml"), "log": LOG, "what": "live"}

    def live() -> None:
        assert spark.read.format("tidefold").options(**given).load().count() == workloads.ROWS

    def table() -> None:
        read = spark.read.format("delta").load(opened(root).store.uri(LogPaths(LOG).table))
        assert read.where("id >= 0").count() == workloads.ROWS

    check("Spark: a live read, 1 % in the tail", counted_jobs(spark, live))
    check("Spark: the table, read by Delta", counted_jobs(spark, table))
