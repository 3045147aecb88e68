"""Spark job: audits the newest completed snapshots of all requested logs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tidefold.fold.session import spark_session
from tidefold.job import run_job
from tidefold.launch import Request
from tidefold.operations.audit import audit
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline


def act(pipeline: Pipeline, request: Request) -> Sequence[Outcome]:
    return audit(pipeline, request.logs, request.asking.run, spark_session("audit"))


if __name__ == "__main__":
    sys.exit(run_job(sys.argv, act))
