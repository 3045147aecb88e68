"""PySpark job: compares each published table, as Delta's reader on Spark returns it, with what was judged.

Plans    which columns and files of the newest version are read, by the manifest of the snapshot that it shows.
Deals    one query a table to the executors, through delta-spark, as any user of Spark sends it. It returns the rows and
         values of each file, and the sha256 of the files.
Records  the proof, or how the table differs from the manifest, beside the ledger of the log. A difference is an error
         and an alarm.
"""

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.verify.check_readers import check_readers
from tidefold.read.delta_reader import SparkDeltaReader
from tidefold.spark.job_main import run_job
from tidefold.spark.steps import VerifyStep


def run(spark: SparkSession, pipeline: Pipeline, step: VerifyStep, logs: Sequence[str]) -> list[Outcome]:
    return check_readers(pipeline, logs, SparkDeltaReader(spark), sample=step.sample)


if __name__ == "__main__":
    sys.exit(run_job(sys.argv, run))
