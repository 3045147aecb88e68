"""PySpark job: registers published tables in the catalog of the session, through delta-spark.

Plans    which published tables the ledger does not call registered.
Deals    nothing: the driver runs `CREATE TABLE ... USING delta LOCATION ...`.
Records  the name in the catalog, in the ledger of the log.
"""

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from tidefold.operations.catalog.register import register
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold.spark.job_main import run_job
from tidefold.spark.steps import RegisterStep
from tidefold.spark.table_catalog import SparkCatalog


def run(spark: SparkSession, pipeline: Pipeline, _step: RegisterStep, logs: Sequence[str]) -> list[Outcome]:
    entry = pipeline.config.catalog
    return register(pipeline, logs, SparkCatalog(spark, entry.name if entry else ""))


if __name__ == "__main__":
    sys.exit(run_job(sys.argv, run))
