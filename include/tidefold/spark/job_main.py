"""The main function of all Spark jobs: takes a request, runs its step, writes the result file, ends with a code."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tidefold.errors import InvalidInputError, TidefoldError
from tidefold.spark.result_file import write_outcomes
from tidefold.spark.submit import Request
from tidefold.wiring import open_pipeline


def run_job(argv: Sequence[str]) -> int:
    """Runs the step of a request over all its logs; returns 0, or the exit code of the first log's error."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    for noisy in ("py4j", "great_expectations"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        request = _parse(argv)
        outcomes = request.step.run_on_spark(open_pipeline(Path(request.config)), request.logs)
    except TidefoldError as error:
        print(f"error {error}", file=sys.stderr)
        return error.exit_code
    for outcome in outcomes:
        print(f"{outcome.log}: {outcome.status}: {outcome.message}", flush=True)
    if request.result:
        write_outcomes(Path(request.result), outcomes)
    return next((o.error.exit_code for o in outcomes if o.error), 0)


def _parse(argv: Sequence[str]) -> Request:
    try:
        return msgspec.json.decode(argv[1], type=Request)
    except (IndexError, msgspec.DecodeError) as error:
        raise InvalidInputError(
            "REQUEST_INVALID", f"The job's argument is not a request: {error}.", hint="Start jobs with `tidefold`."
        ) from error
