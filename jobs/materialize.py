"""PySpark job: stages a snapshot of each log: folded, restored, imported, or as of an instant.

Plans    which buckets of each log have changes, and the files that each of them reads. The driver reads no row.
Deals    one task a bucket to the executors, the largest first. A task folds the changes of its keys onto the rows of
         its bucket, and writes one Parquet file into the folder of the snapshot.
Records  the files with their rows, statistics and checksums, as a STAGED snapshot in the ledger of each log. No reader
         sees it before `quality` has judged it and `confirm` has published it.
"""

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from tidefold.compute.runners import on_spark
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.snapshot.materialize import begin
from tidefold.spark.job_main import run_job
from tidefold.spark.steps import MaterializeStep


def run(spark: SparkSession, pipeline: Pipeline, step: MaterializeStep, logs: Sequence[str]) -> list[Outcome]:
    with begin(pipeline, logs, step.request) as attempts:
        work, tasks = attempts.serialize_tasks()
        # On a Spark Connect server `range(hands).mapInArrow(work)`; in a classic session a broadcast of the work, and
        # `parallelize(tasks).mapPartitions(work)` (decisions 0040 and 0057).
        answers = on_spark(spark)(work, tasks)
        return attempts.record(answers)


if __name__ == "__main__":
    sys.exit(run_job(sys.argv, run))
