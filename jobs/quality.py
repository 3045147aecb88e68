"""Spark job: judges the staged snapshots of all requested logs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tidefold.compute.spark_session import spark_session
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.quality.judge import judge
from tidefold.quality.run.spark_rows import SparkEngine
from tidefold.spark.job_main import run_job
from tidefold.spark.submit import Request


def act(pipeline: Pipeline, request: Request) -> Sequence[Outcome]:
    return judge(pipeline, request.logs, request.asking.run, SparkEngine(spark_session("quality")))


if __name__ == "__main__":
    sys.exit(run_job(sys.argv, act))
