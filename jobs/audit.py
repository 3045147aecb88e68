"""PySpark job: judges the newest completed snapshot of each log again, with the suite of today.

Plans and deals as `quality`. Records a report of its own: the verdict by which a snapshot was published stays.
"""

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.quality.judge import audit
from tidefold.quality.run.spark_rows import JUDGED_AT_ONCE, SparkEngine
from tidefold.spark.job_main import run_job
from tidefold.spark.steps import AuditStep


def run(spark: SparkSession, pipeline: Pipeline, step: AuditStep, logs: Sequence[str]) -> list[Outcome]:
    return audit(pipeline, logs, step.run, SparkEngine(spark, step.name), JUDGED_AT_ONCE)


if __name__ == "__main__":
    sys.exit(run_job(sys.argv, run))
