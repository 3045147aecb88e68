"""Runs steps on a Spark Connect server: in this process, which sends its tasks there. No job is started."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence

from tidefold.compute.connect_session import ConnectServer, close_connected, explain, open_connected, set_value
from tidefold.config import Config
from tidefold.domain.engine_name import EngineName
from tidefold.errors import InvalidInputError, wrap_unexpected
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold.spark.steps import AnyStep, RegisterStep
from tidefold.spark.submit import archive_code

# May name the address of `spark.master` once more, with a token or headers: they never stand in a file.
ADDRESS = "SPARK_REMOTE"
_PORT = "15002"
_log = logging.getLogger(__name__)


def find_server(config: Config) -> ConnectServer:
    """The server of `spark.master`. Raises InvalidInputError if the environment names another one."""
    address = os.environ.get(ADDRESS) or config.spark.master
    shown = _strip(config.spark.master)
    if _strip(address) != shown:
        message = f"The environment variable {ADDRESS} does not name the server of `spark.master`, {shown}."
        raise InvalidInputError("CONNECT_ADDRESS", message, hint=f"Unset {ADDRESS}, or correct one of the two.")
    scratch = config.path.parent / "var" / "spark"
    code = archive_code(scratch) if config.spark.ship_code else None
    return ConnectServer(address, shown, scratch, config.spark.conf, code)


def _strip(address: str) -> str:
    """An address without its parameters, with a port."""
    found = re.match(r"sc://([^/;]+)", address)
    place = found[1] if found else ""
    return f"sc://{place}" if ":" in place else f"sc://{place}:{_PORT}"


def run_connected(pipeline: Pipeline, step: AnyStep, logs: Sequence[str]) -> list[Outcome]:
    """Runs a step on the server, in the session of this process. An error of the server is an error of each log."""
    try:
        session = open_connected(find_server(pipeline.config))
        catalog = pipeline.config.catalog
        if catalog and isinstance(step, RegisterStep):
            for name, value in catalog.settings.items():
                set_value(session, name, value)
        found = step.run_on_spark(pipeline, logs)
    except Exception as error:
        known = explain(error) or wrap_unexpected(error)
        if known.code == "UNFORESEEN":
            _log.error("%s: %s", ", ".join(logs), known, exc_info=error)
        found = [Outcome.of_error(log, known) for log in logs]
    # After an outage the next step connects again.
    if any(outcome.error and outcome.error.code.startswith("CONNECT_") for outcome in found):
        close_connected()
    return [outcome.with_engine(EngineName.SPARK) for outcome in found]
