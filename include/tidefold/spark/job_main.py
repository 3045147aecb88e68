"""The main function of all Spark jobs: takes requests, runs their steps, writes the result files, ends with a code."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidefold.compute.spark_session import name_jobs, spark_session
from tidefold.domain.wording import EngineName
from tidefold.errors import TidefoldError
from tidefold.spark.request import Request, parse_argument
from tidefold.spark.result_file import write_outcomes
from tidefold.spark.steps import Job, load_job
from tidefold.wiring import open_pipeline, open_plan


def run_job(argv: Sequence[str], run: Job) -> int:
    """Runs the step of each request over its logs; returns 0, or the exit code of the first error.

    run: does the step of the first request. The files beside it do the steps of the others.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    for noisy in ("py4j", "great_expectations"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        codes: list[int] = []
        for request in _read_requests(*argv[1:2]):
            codes.append(_run(load_job(request.step.name) if codes else run, request))
    except TidefoldError as error:
        print(f"error {error}", file=sys.stderr)
        return error.exit_code
    return next((code for code in codes if code), 0)


def _run(run: Job, request: Request) -> int:
    """The exit code of the first log's error, or 0."""
    spark, step = spark_session(request.step.name), request.step
    name_jobs(spark, step.name, request.logs)
    pipeline = open_pipeline(Path(request.config))
    if request.plan is not None:
        pipeline = open_plan(pipeline, request.logs[0], request.plan)
    outcomes = [outcome.with_engine(EngineName.SPARK) for outcome in run(spark, pipeline, step, request.logs)]
    for outcome in outcomes:
        print(f"{outcome.log}: {outcome.status}: {outcome.message}", flush=True)
    if request.result:
        write_outcomes(Path(request.result), outcomes)
    return next((o.error.exit_code for o in outcomes if o.error), 0)


def _read_requests(argument: str = "") -> Iterator[Request]:
    """The request of the command line, and those of its pipe."""
    first = parse_argument(argument)
    if not first.more:
        yield first
        return
    # Opening never waits: if the process that asked is gone already, the pipe is at its end.
    pipe = os.open(first.more, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(pipe, True)
    with open(pipe, encoding="utf-8") as lines:
        yield first
        yield from map(parse_argument, lines)
