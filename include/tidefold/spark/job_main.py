"""The main function of all Spark jobs: takes requests, runs their steps, writes the result files, ends with a code."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidefold.domain.engine_name import EngineName
from tidefold.errors import TidefoldError
from tidefold.spark.request import Request, parse_argument
from tidefold.spark.result_file import write_outcomes
from tidefold.wiring import open_pipeline


def run_job(argv: Sequence[str]) -> int:
    """Runs the step of each request over its logs; returns 0, or the exit code of the first error."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    for noisy in ("py4j", "great_expectations"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        codes = [_run(request) for request in _read_requests(*argv[1:2])]
    except TidefoldError as error:
        print(f"error {error}", file=sys.stderr)
        return error.exit_code
    return next((code for code in codes if code), 0)


def _run(request: Request) -> int:
    """The exit code of the first log's error, or 0."""
    found = request.step.run_on_spark(open_pipeline(Path(request.config)), request.logs)
    outcomes = [outcome.with_engine(EngineName.SPARK) for outcome in found]
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
