"""Spark job: compares what Spark's Delta reader returns of the published tables with the published snapshots."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tidefold.compute.spark_session import spark_session
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.verify.check_readers import check_readers
from tidefold.read.delta_reader import SparkDeltaReader
from tidefold.spark.job_main import run_job
from tidefold.spark.submit import Request


def act(pipeline: Pipeline, request: Request) -> Sequence[Outcome]:
    return check_readers(pipeline, request.logs, SparkDeltaReader(spark_session("verify")))


if __name__ == "__main__":
    sys.exit(run_job(sys.argv, act))
