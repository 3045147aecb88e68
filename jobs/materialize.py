"""Spark job: folds new changes of all requested logs into full snapshots."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tidefold.fold.distribute import on_spark
from tidefold.fold.session import spark_session
from tidefold.job import run_job
from tidefold.launch import Request
from tidefold.operations.materialize import materialize
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline


def act(pipeline: Pipeline, request: Request) -> Sequence[Outcome]:
    return materialize(pipeline, request.logs, request.asking, on_spark(spark_session("materialize")))


if __name__ == "__main__":
    sys.exit(run_job(sys.argv, act))
