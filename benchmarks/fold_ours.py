"""The ways in which tidefold folds."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from pathlib import Path

from pyspark.sql import SparkSession

from fold_data import Case, fold, open_bench
from fold_measured import Way
from tidefold.compute.runners import in_threads, on_spark
from tidefold.domain.snapshot.claim import KindPolicy

SPARK, FULL, ALONE = "tidefold on Spark, incremental", "tidefold on Spark, full", "tidefold without Spark, incremental"
SPARK_VECTORS, ALONE_VECTORS = "tidefold on Spark, deletion vectors", "tidefold without Spark, deletion vectors"
MINE = (SPARK, SPARK_VECTORS, ALONE, ALONE_VECTORS)


def incremental_in_process(root: Path, case: Case) -> None:
    fold(open_bench(root), "measured", KindPolicy.INCREMENTAL, in_threads())


def with_vectors(root: Path) -> None:
    """Switches deletion vectors on, in this copy alone."""
    path = root / "tidefold.yaml"
    text = path.read_text()
    path.unlink()
    path.write_text(f"{text.rstrip()}\n    deletion_vectors: true\n")


def awake(spark: SparkSession) -> None:
    """Python workers with all that they import, as a session has them that has just worked: Spark ends them after a
    minute without work.
    """
    on_spark(spark)(lambda name: import_module(name).__name__, ["tidefold.fold.tasks"] * 16)


def ours(spark: SparkSession) -> list[Way]:
    def ready(root: Path, vectors: bool = False) -> None:
        if vectors:
            with_vectors(root)
        awake(spark)

    def by_spark(root: Path, case: Case, kind: KindPolicy) -> None:
        fold(open_bench(root), "measured", kind, on_spark(spark))

    incremental = partial(by_spark, kind=KindPolicy.INCREMENTAL)
    return [
        Way(SPARK, incremental, prepare=ready),
        Way(FULL, partial(by_spark, kind=KindPolicy.FULL), prepare=ready),
        Way(SPARK_VECTORS, incremental, prepare=partial(ready, vectors=True)),
        *ours_alone(),
    ]


def ours_alone() -> list[Way]:
    """The ways that need no session."""
    return [
        Way(ALONE, incremental_in_process, alone=True),
        Way(ALONE_VECTORS, incremental_in_process, prepare=with_vectors, alone=True),
    ]
