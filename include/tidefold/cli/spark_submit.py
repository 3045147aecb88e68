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
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path

from tidefold.cli.output.progress import BucketLine
from tidefold.cli.terminal import Terminal
from tidefold.config import Config
from tidefold.errors import InvalidInputError, NotFoundError, TidefoldError
from tidefold.operations.doctor.finding import FindingLevel
from tidefold.operations.doctor.judge_machine import judge_java
from tidefold.operations.doctor.machine import find_java
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold.spark.dispatch import run_without_spark
from tidefold.spark.request import Request, make_argument
from tidefold.spark.result_file import read_outcomes
from tidefold.spark.steps import AnyStep
from tidefold.spark.submit import submit_command
from tidefold.storage.safe_files import make_private_folder


def check_java() -> None:
    """Raises NotFoundError (none) or InvalidInputError (too old)."""
    java = find_java()
    failed = next((finding for finding in judge_java(java) if finding.level is FindingLevel.FAIL), None)
    if failed and java.path:
        raise InvalidInputError("JAVA_TOO_OLD", failed.message, hint=failed.hint)
    if failed:
        raise NotFoundError("JAVA_MISSING", failed.message, hint=failed.hint)


_PROGRESS_SECONDS = 5.0
_POLL_SECONDS = 0.05
_GRACE_SECONDS = 10.0
_TAIL_LINES = 20


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

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self._job:
            self._job.end(_GRACE_SECONDS if kind is None else 0)

    def run_step(self, step: AnyStep, logs: Sequence[str]) -> list[Outcome]:
        """Returns one outcome for each log, in the given order. An error of one log does not stop the others."""
        found = run_without_spark(self._pipeline, step, logs, BucketLine(self._terminal.note))
        outcomes = {outcome.log: outcome for outcome in found.done}
        if found.spark:
            outcomes |= {outcome.log: outcome for outcome in self._submit(step, found.spark)}
        return [outcomes[log] for log in logs]

    def _submit(self, step: AnyStep, logs: Sequence[str]) -> list[Outcome]:
        """Sends the step to the job. A job that ends before it reports a result gives every log an error."""
        config = self._pipeline.config
        result = _fresh_file(config.path.parent / "var" / "results", step, ".json")
        request = Request(str(config.path), tuple(logs), step, str(result))
        began = time.monotonic()
        if self._job:
            self._terminal.note(f"{step.name}: the same Spark application continues with {', '.join(logs)}")
            self._job.send(request)
        else:
            check_java()
            output = _fresh_file(config.path.parent / "var" / "log", step, ".log")
            self._terminal.note(f"{step.name}: starting Spark for {', '.join(logs)}; its output goes to {output}")
            self._job = _Job(config, request, output)
        self._wait(self._job, step, result, began)
        if outcomes := read_outcomes(result):
            self._terminal.note(f"{step.name}: Spark done after {time.monotonic() - began:.0f} s")
            return outcomes
        job, self._job = self._job, None
        return _describe_death(self._terminal, step, logs, job.end(0), job.output)

    def _wait(self, job: _Job, step: AnyStep, result: Path, began: float) -> None:
        """Waits until the result exists or the job has ended. Prints every few seconds that the job runs."""
        noted = began
        while not result.exists() and job.runs():
            if time.monotonic() - noted >= _PROGRESS_SECONDS:
                noted = time.monotonic()
                self._terminal.note(f"{step.name}: running, {noted - began:.0f} s")


class _Job:
    """A process of spark-submit that executes one request after the other. It ends when this process ends.

    output: the file with what it prints.
    """

    def __init__(self, config: Config, request: Request, output: Path) -> None:
        self.output = output
        self._pipe = output.with_suffix(".requests")
        os.mkfifo(self._pipe, 0o600)
        # Open for reading and writing: opening does not wait for the job, and the pipe has no end while it is idle.
        self._requests = os.open(self._pipe, os.O_RDWR)
        command = submit_command(config, replace(request, more=str(self._pipe)))
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
        self._handler = signal.signal(signal.SIGTERM, _interrupt)

    def send(self, request: Request) -> None:
        os.write(self._requests, make_argument(request).encode() + b"\n")

    def runs(self) -> bool:
        """Whether the job still runs after a short wait."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_POLL_SECONDS)
        return self._process.returncode is None

    def end(self, grace: float) -> int:
        """Returns the exit code. Without requests the job ends by itself; after `grace` seconds it is killed."""
        signal.signal(signal.SIGTERM, self._handler)
        os.close(self._requests)
        self._pipe.unlink(missing_ok=True)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(grace)
        _end(self._process)
        return self._process.returncode


def _fresh_file(folder: Path, step: AnyStep, ending: str) -> Path:
    make_private_folder(folder)
    run = re.sub(r"[^\w.-]", "_", step.run or "any")[:80]
    return folder / f"{run}-{step.name}-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}{ending}"


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


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


def _describe_death(terminal: Terminal, step: AnyStep, logs: Sequence[str], code: int, output: Path) -> list[Outcome]:
    tail = output.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
    terminal.note("\n".join(["the last lines of its output:", *(f"  | {line}" for line in tail)]))
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    error = TidefoldError(
        "JOB_DIED",
        f"The Spark job of {step.name} {how} before it reported a result.",
        hint=f"Read {output}. Then repeat the command with the --run of the open attempt that `tidefold status` shows.",
    )
    return [Outcome.of_error(log, error) for log in logs]
