"""PySpark job: ingests the landed files of each log into its changelog.

Plans    which landed files are new, and which share of them each task reads. The driver reads no record.
Deals    one task a share to the executors. A task decodes the records of its files against the columns of the log,
         sets refused ones aside, and writes the changes into a segment of the changelog, by key group.
Records  for each log which files it took, its change sets and its position, in one commit of the ledger.
"""

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from tidefold.compute.runners import on_spark
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import execute, prepare
from tidefold.spark.job_main import run_job
from tidefold.spark.steps import IngestStep


def run(spark: SparkSession, pipeline: Pipeline, step: IngestStep, logs: Sequence[str]) -> list[Outcome]:
    planned = prepare(pipeline, logs, step.landed)
    # All logs in one round of tasks; what it returns is committed log by log.
    return execute(pipeline, planned, on_spark(spark))


if __name__ == "__main__":
    sys.exit(run_job(sys.argv, run))
