"""Spark job: stages a snapshot of each requested log: folded, restored, imported or as of an instant."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tidefold.compute.runners import on_spark
from tidefold.compute.spark_session import spark_session
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.snapshot.materialize import materialize
from tidefold.spark.job_main import run_job
from tidefold.spark.submit import Request


def act(pipeline: Pipeline, request: Request) -> Sequence[Outcome]:
    return materialize(pipeline, request.logs, request.asking, on_spark(spark_session("materialize")))


if __name__ == "__main__":
    sys.exit(run_job(sys.argv, act))
