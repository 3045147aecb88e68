"""PySpark job: judges the staged snapshot of each log with its suite of Great Expectations.

Plans    for each log the checks of its suite, and the queries with which Great Expectations counts.
Deals    the files of some buckets with all these queries to each executor, and adds up the counts (decision 0049).
         Checks that cannot be counted by bucket run as queries on a DataFrame of the staged files.
Records  the verdict with its report, for exactly these files and this suite.
"""

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.quality.judge import judge
from tidefold.quality.run.spark_rows import JUDGED_AT_ONCE, SparkEngine
from tidefold.spark.job_main import run_job
from tidefold.spark.steps import QualityStep


def run(spark: SparkSession, pipeline: Pipeline, step: QualityStep, logs: Sequence[str]) -> list[Outcome]:
    return judge(pipeline, logs, step.run, SparkEngine(spark), JUDGED_AT_ONCE, recount=step.recount)


if __name__ == "__main__":
    sys.exit(run_job(sys.argv, run))
