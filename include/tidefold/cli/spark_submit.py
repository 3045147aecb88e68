"""Runs steps (ingest, materialize, quality) for some logs: small work without a JVM, the rest in ONE Spark
application whose output is written to a file.

Checks the version of Java before it starts Spark.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidefold.cli.output.outcomes import BucketLine
from tidefold.cli.terminal import Terminal
from tidefold.compute.connect_session import close_connected, interrupt_connected
from tidefold.config import Config
from tidefold.config.models.spark import is_connect
from tidefold.errors import InvalidInputError, NotFoundError, TidefoldError
from tidefold.operations.doctor.finding import FindingLevel
from tidefold.operations.doctor.machine import OLDEST_JAVA, check_java, find_java
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.spark import local_server
from tidefold.spark.connect import run_patiently
from tidefold.spark.dispatch import run_without_spark
from tidefold.spark.jars import require_spark
from tidefold.spark.request import Request, make_argument
from tidefold.spark.result_file import read_outcomes
from tidefold.spark.steps import AnyStep
from tidefold.spark.submit import Command, submit_command
from tidefold.storage.safe_files import make_private_folder

_PATIENCE = 60.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_POLL_SECONDS = 0.05
_GRACE_SECONDS = 10.0
_PROGRESS_SECONDS = 5.0
_TAIL_LINES = 20


class SparkProcess:
    """Runs a command until it ends or is ended.

    output: the file with what it prints.
    """

    def __init__(self, command: Command, output: Path) -> None:
        self.output = output
        with output.open("wb") as sink:
            # In a session of its own, so that the JVM and its Python workers can be ended as one.
            self._process = subprocess.Popen(
                command.argv,
                env={**os.environ, **command.env},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def runs(self) -> bool:
        """Whether it still runs after a short wait."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_POLL_SECONDS)
        return self._process.returncode is None

    def end(self, grace: float) -> int:
        """Returns the exit code. After `grace` seconds the process and its children are killed."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(grace)
        _end(self._process)
        return self._process.returncode


def name_file(folder: Path, step: AnyStep, ending: str) -> Path:
    """Returns the path of a file of this step of this process. Makes the folder."""
    make_private_folder(folder)
    run = re.sub(r"[^\w.-]", "_", step.run or "any")[:80]
    return folder / f"{run}-{step.name}-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}{ending}"


def _end(job: subprocess.Popen[bytes]) -> None:
    """Kills a job that still runs, and its children."""
    if job.poll() is not None:
        return
    os.killpg(job.pid, signal.SIGTERM)
    try:
        job.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def describe_death(terminal: Terminal, step: AnyStep, logs: Sequence[str], code: int, output: Path) -> list[Outcome]:
    """Prints the last lines of a job that ended without a result. Returns the error of each log."""
    tail = output.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
    terminal.note("\n".join(["the last lines of its output:", *(f"  | {line}" for line in tail)]))
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    error = TidefoldError(
        "JOB_DIED",
        f"The Spark job of {step.name} {how} before it reported a result.",
        hint=f"Read {output}. Then repeat the command with the --run of the open attempt that `tidefold status` shows.",
    )
    return [Outcome.of_error(log, error) for log in logs]


def require_java() -> None:
    """Raises NotFoundError (none) or InvalidInputError (too old, or too new for the installed Spark)."""
    java = find_java()
    failed = next((finding for finding in check_java(java) if finding.level is FindingLevel.FAIL), None)
    if failed and java.path:
        code = "JAVA_TOO_NEW" if (java.major or 0) >= OLDEST_JAVA else "JAVA_TOO_OLD"
        raise InvalidInputError(code, failed.message, hint=failed.hint)
    if failed:
        raise NotFoundError("JAVA_MISSING", failed.message, hint=failed.hint)


def run_step(terminal: Terminal, pipeline: Pipeline, step: AnyStep, logs: Sequence[str]) -> list[Outcome]:
    """Runs one step; if it needs Spark, in an application of its own."""
    with SparkApplication(terminal, pipeline) as application:
        return application.run_step(step, logs)


class SparkApplication(AbstractContextManager["SparkApplication"]):
    """One Spark application for all steps of a command. The first step that needs Spark starts it. The end of the
    `with` block ends it.

    terminal: prints when the application starts, runs and ends.
    pipeline: the logs, and the configuration with Spark's settings.
    """

    def __init__(self, terminal: Terminal, pipeline: Pipeline) -> None:
        self._terminal = terminal
        self._pipeline = pipeline
        self._job: _Job | None = None
        # Those before it connected. Ctrl-C and SIGTERM then also cancel what the server does for this process.
        self._handlers: dict[signal.Signals, Any] = {}
        self._server = local_server.find_running(pipeline.config)
        if not self._server and (fault := local_server.find_fault(pipeline.config)):
            terminal.note(f"{fault} This command works without it.")

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        close_connected()
        if self._job:
            self._job.end(_GRACE_SECONDS if kind is None else 0)

    def run_step(self, step: AnyStep, logs: Sequence[str]) -> list[Outcome]:
        """Returns one outcome for each log, in the given order. An error of one log does not stop the others."""
        above = 0 if self._server else None
        local = run_without_spark(self._pipeline, step, logs, BucketLine(self._terminal.note), above)
        outcomes = {outcome.log: outcome for outcome in local.done}
        if local.spark:
            outcomes |= {outcome.log: outcome for outcome in self._run_on_spark(local.step, local.spark)}
        return [outcomes[log] for log in logs]

    def _run_on_spark(self, step: AnyStep, logs: Sequence[str]) -> list[Outcome]:
        began = time.monotonic()
        if self._server or is_connect(self._pipeline.config.spark.master):
            outcomes = self._connect(step, logs)
        else:
            try:
                outcomes = self._submit(step, logs)
            except TidefoldError as error:  # Spark does not start here: a run aborts what it began, and is counted.
                return [Outcome.of_error(log, error) for log in logs]
        if not all(outcome.error for outcome in outcomes):
            self._terminal.note(f"{step.name}: Spark done after {time.monotonic() - began:.0f} s")
        return outcomes

    def _connect(self, step: AnyStep, logs: Sequence[str]) -> list[Outcome]:
        """Sends the step to the server at an address, or to that of `spark.master`."""
        self._terminal.note(f"{step.name}: the Spark Connect server works on {', '.join(logs)}")
        self._handlers = self._handlers or {number: signal.signal(number, _interrupt_connection) for number in _SIGNALS}
        address, config, ends = self._server.connection if self._server else "", self._pipeline.config, list[float]()

        def find_deadline() -> float:
            # A server of this machine that died or hangs is started again by its supervisor, and by nobody else.
            if not self._server or not local_server.find_running(config):
                return 0.0
            if not ends:
                ends.append(time.monotonic() + _PATIENCE)
            return ends[0]

        return run_patiently(self._pipeline, step, logs, address, find_deadline, self._terminal.note)

    def _submit(self, step: AnyStep, logs: Sequence[str]) -> list[Outcome]:
        """Sends the step to the job. A job that ends before it reports a result gives every log an error."""
        config = self._pipeline.config
        result = name_file(config.path.parent / "var" / "results", step, ".json")
        plan = self._pipeline.plan_of
        request = Request(str(config.path), tuple(logs), step, str(result), plan=plan.state.version if plan else None)
        if self._job:
            self._terminal.note(f"{step.name}: the same Spark application continues with {', '.join(logs)}")
            self._job.send(request)
        else:
            require_spark()
            require_java()
            output = name_file(config.path.parent / "var" / "log", step, ".log")
            self._terminal.note(f"{step.name}: starting Spark for {', '.join(logs)}; its output goes to {output}")
            self._job = _Job(config, request, output)
        _wait(self._terminal, step, self._job.process, result.exists)
        if outcomes := read_outcomes(result):
            return outcomes
        job, self._job = self._job, None
        return describe_death(self._terminal, step, logs, job.end(0), job.process.output)


def _interrupt_connection(_number: int, _frame: Any) -> None:
    interrupt_connected()
    raise KeyboardInterrupt


def _wait(terminal: Terminal, step: AnyStep, process: SparkProcess, has_result: Callable[[], bool]) -> None:
    """Waits until there is a result or the process has ended. Prints every few seconds that the step runs."""
    began = noted = time.monotonic()
    while not has_result() and process.runs():
        if time.monotonic() - noted >= _PROGRESS_SECONDS:
            noted = time.monotonic()
            terminal.note(f"{step.name}: running, {noted - began:.0f} s")


class _Job:
    """A process of spark-submit that executes one request after the other. It ends when this process ends."""

    def __init__(self, config: Config, request: Request, output: Path) -> None:
        self._pipe = output.with_suffix(".requests")
        os.mkfifo(self._pipe, 0o600)
        # Open for reading and writing: opening does not wait for the job, and the pipe has no end while it is idle.
        self._requests = os.open(self._pipe, os.O_RDWR)
        self.process = SparkProcess(submit_command(config, replace(request, more=str(self._pipe))), output)

    def send(self, request: Request) -> None:
        os.write(self._requests, make_argument(request).encode() + b"\n")

    def end(self, grace: float) -> int:
        """Returns the exit code. Without requests the job ends by itself; after `grace` seconds it is killed."""
        os.close(self._requests)
        self._pipe.unlink(missing_ok=True)
        return self.process.end(grace)
