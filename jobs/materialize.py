"""Spark job: folds new changes of all requested logs into full snapshots. See `tidefold.job` for the request."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tidefold.fold.distribute import on_spark
from tidefold.fold.session import spark_session
from tidefold.job import Request, run_job
from tidefold.lifecycle.errors import InvalidInputError
from tidefold.operations.materialize import materialize
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline


def act(pipeline: Pipeline, request: Request) -> Sequence[Outcome]:
    if not request.run:
        raise InvalidInputError("RUN_MISSING", "A materialization needs a run id.", hint="Add `run` to the request.")
    run = on_spark(spark_session("materialize"))
    return materialize(pipeline, request.logs, request.run, run, request.takeover)


if __name__ == "__main__":
    sys.exit(run_job(sys.argv, act))
