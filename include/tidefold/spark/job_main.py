"""The main function of all Spark jobs: takes requests, runs their steps, writes the result files, ends with a code."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidefold.compute.spark_session import name_jobs, spark_session
from tidefold.domain.paths import JobPaths
from tidefold.domain.wording import EngineName
from tidefold.errors import TidefoldError
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold.spark.request import Request, parse_argument
from tidefold.spark.result_file import write_outcomes
from tidefold.spark.steps import AnyStep, Job, load_job
from tidefold.spark.stored_job import end_without_starter, read_request, send_outcomes
from tidefold.storage import open_store
from tidefold.storage.safe_files import open_scratch
from tidefold.wiring import connect, open_pipeline

# The program and its request.
_ARGUMENTS = 2


def run_job(argv: Sequence[str], run: Job) -> int:
    """Runs the step of each request over its logs; returns 0, or the exit code of the first error.

    run: does the step of the first request. The files beside it do the steps of the others.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    for noisy in ("py4j", "great_expectations"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        if len(argv) > _ARGUMENTS:
            return _run_stored(run, *argv[1:])
        codes: list[int] = []
        for request in _read_requests(*argv[1:2]):
            codes.append(_run(load_job(request.step.name) if codes else run, request))
    except TidefoldError as error:
        print(f"error {error}", file=sys.stderr)
        return error.exit_code
    return next((code for code in codes if code), 0)


def _run(run: Job, request: Request) -> int:
    """The exit code of the first log's error, or 0."""
    outcomes = _run_step(run, request.step, open_pipeline(Path(request.config)), request.logs)
    if request.result:
        write_outcomes(Path(request.result), outcomes)
    return _find_code(outcomes)


def _run_step(run: Job, step: AnyStep, pipeline: Pipeline, logs: Sequence[str]) -> list[Outcome]:
    spark = spark_session(step.name)
    name_jobs(spark, step.name, logs)
    outcomes = [outcome.with_engine(EngineName.SPARK) for outcome in run(spark, pipeline, step, logs)]
    for outcome in outcomes:
        print(f"{outcome.log}: {outcome.status}: {outcome.message}", flush=True)
    return outcomes


def _find_code(outcomes: Sequence[Outcome]) -> int:
    return next((o.error.exit_code for o in outcomes if o.error), 0)


def _run_stored(run: Job, address: str, folder: str) -> int:
    """The same for a request in the store, on a machine that has nothing else."""
    store, paths = open_store(address, Path("/")), JobPaths(folder)
    request, ended = read_request(store, paths), threading.Event()
    threading.Thread(target=end_without_starter, args=(store, paths, ended), daemon=True).start()
    with open_scratch() as scratch:
        try:
            outcomes = _run_step(run, request.read_step(), connect(request.read_config(Path(scratch))), request.logs)
        except TidefoldError as error:
            print(f"error {error}", file=sys.stderr)
            outcomes = [Outcome.of_error(log, error) for log in request.logs]
    ended.set()
    send_outcomes(store, paths, outcomes)
    return _find_code(outcomes)


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
