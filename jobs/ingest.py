"""Spark job: ingests the landed files of all requested logs into their changelogs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tidefold.compute.runners import on_spark
from tidefold.compute.spark_session import spark_session
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold.spark.job_main import run_job
from tidefold.spark.submit import Request


def act(pipeline: Pipeline, request: Request) -> Sequence[Outcome]:
    return ingest(pipeline, request.logs, on_spark(spark_session("ingest")))


if __name__ == "__main__":
    sys.exit(run_job(sys.argv, act))
