"""Runs steps on a Spark Connect server: in this process, which sends its tasks there. No job is started."""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from tidefold.compute.connect_session import ConnectServer, close_connected, explain, open_connected
from tidefold.compute.spark_session import name_jobs
from tidefold.config import Config
from tidefold.config.models.spark import is_connect, is_one_process
from tidefold.domain.wording import EngineName
from tidefold.errors import InvalidInputError, RefusedError, wrap_unexpected
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.spark.dispatch import run_without_spark
from tidefold.spark.steps import AnyStep, load_job
from tidefold.spark.submit import archive_code, scratch_folder
from tidefold.storage.safe_files import make_private_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# May name the address of `spark.master` once more, with a token or headers: they never stand in a file.
ADDRESS = "SPARK_REMOTE"
_PORT = "15002"
# Errors of a server that is not there, or was started again meanwhile.
_AWAY = ("CONNECT_UNREACHABLE", "CONNECT_SESSION_LOST")
_LOOK_SECONDS = 5.0
_log = logging.getLogger(__name__)


def find_server(config: Config, connection: str = "") -> ConnectServer:
    """The server of a connection of Airflow, or of `spark.master`.

    Raises InvalidInputError if both name a server, or the environment names another one. Raises RefusedError for a
    server elsewhere if local copies are configured for this machine.
    """
    named, master = connection or config.spark.master, config.spark.master
    shown = _strip(named)
    others = {ADDRESS: os.environ.get(ADDRESS, ""), "spark.master": master if is_connect(master) else ""}
    for name, other in others.items():
        if other and _strip(other) != shown:
            message = f"`{name}` does not name the same Spark Connect server as the step's address, {shown}."
            raise InvalidInputError("CONNECT_ADDRESS", message, hint=f"Remove {name}, or correct one of the two.")
    scratch = scratch_folder(config)
    code = archive_code(scratch) if config.spark.ship_code else None
    address = connection or os.environ.get(ADDRESS) or master
    server = ConnectServer(address, shown, scratch, config.spark.conf, code)
    on_hosts = config.local.shared or not is_one_process(master)
    if config.local.mode == "files" and not on_hosts and not server.is_here:
        raise _other_disk(config, shown)
    return server


def _other_disk(config: Config, shown: str) -> RefusedError:
    message = f"`local.mode: files` with `spark.master: {config.spark.master}` means this disk, not that of {shown}."
    hint = f"Set `spark.master: {shown}`: then each host keeps its own copies. Or disable `local`."
    return RefusedError("LOCAL_ON_CLUSTER", message, hint=hint)


def _strip(address: str) -> str:
    """An address without its parameters, with a port."""
    match = re.match(r"sc://([^/;]+)", address)
    place = match[1] if match else ""
    return f"sc://{place}" if ":" in place else f"sc://{place}:{_PORT}"


def run_connected(pipeline: Pipeline, step: AnyStep, logs: Sequence[str], connection: str = "") -> list[Outcome]:
    """Runs a step on the server, in the session of this process. An error of the server is an error of each log."""
    try:
        server = find_server(pipeline.config, connection)
        session = open_connected(server)
        _require_same_disk(session, pipeline.config, server.shown)
        name_jobs(session, step.name, logs)
        outcomes = load_job(step.name)(session, pipeline, step, logs)
    except Exception as error:
        failure = explain(error) or wrap_unexpected(error)
        if failure.code == "UNFORESEEN":
            _log.error("%s: %s", ", ".join(logs), failure, exc_info=error)
        outcomes = [Outcome.of_error(log, failure) for log in logs]
    # After an outage the next step connects again.
    if any(outcome.error and outcome.error.code.startswith("CONNECT_") for outcome in outcomes):
        close_connected()
    return [outcome.with_engine(EngineName.SPARK) for outcome in outcomes]


def _require_same_disk(session: SparkSession, config: Config, shown: str) -> None:
    """Raises RefusedError if the server does not see a file that lies here: one address may have two disks."""
    from pyspark.errors import AnalysisException

    if not config.local.folders or config.local.shared or not is_one_process(config.spark.master):
        return
    folder = config.path.parent / config.local.folders[0]
    make_private_folder(folder)
    with NamedTemporaryFile(dir=folder, prefix=".seen-") as marker:
        try:
            # Its address is looked up, and no job is started.
            _ = session.read.text(f"file://{marker.name}").schema
        except AnalysisException as error:
            raise _other_disk(config, shown) from error


def run_patiently(
    pipeline: Pipeline,
    step: AnyStep,
    logs: Sequence[str],
    connection: str,
    deadline: Callable[[], float],
    tell: Callable[[str], None],
) -> list[Outcome]:
    """As `run_connected`. While the server is away, it waits and runs the step again, until the deadline.

    deadline: of the monotonic clock; asked each time that the server is away.

    With `spark.unreachable: in_process` it runs the step here instead. Each try makes an attempt of its own: what tasks
    of an earlier one still write belongs to no snapshot.
    """
    outcomes, left = dict[str, Outcome](), list(logs)
    while left:
        outcomes |= {outcome.log: outcome for outcome in run_connected(pipeline, step, left, connection)}
        away = {log: error for log in left if (error := outcomes[log].error) and error.code in _AWAY}
        left = list(away)
        if not left:
            break
        why = away[left[0]].message
        if pipeline.config.spark.unreachable == "in_process":
            tell(f"{why} This process runs the step.")
            outcomes |= {one.log: one for one in run_without_spark(pipeline, step, left, above=sys.maxsize).done}
            break
        patience = deadline() - time.monotonic()
        if patience < _LOOK_SECONDS:
            break
        tell(f"{why} Trying again, for at most {patience:.0f} s.")
        time.sleep(_LOOK_SECONDS)
    return [outcomes[log] for log in logs]
