"""Runs steps (ingest, materialize, quality) for some logs: small work without a JVM, the rest in ONE Spark
application whose output is written to a file.

Checks the version of Java before it starts Spark.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from tidefold.cli.output.progress import BucketLine
from tidefold.cli.spark_connection import SparkConnection
from tidefold.cli.spark_process import ProgressNotes, SparkProcess, describe_death, name_file
from tidefold.cli.terminal import Terminal
from tidefold.config import Config
from tidefold.config.models.spark import is_connect
from tidefold.errors import InvalidInputError, NotFoundError
from tidefold.operations.doctor.finding import FindingLevel
from tidefold.operations.doctor.judge_machine import judge_java
from tidefold.operations.doctor.machine import find_java
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold.spark.dispatch import run_without_spark
from tidefold.spark.request import Request, make_argument
from tidefold.spark.result_file import read_outcomes
from tidefold.spark.steps import AnyStep
from tidefold.spark.stored_job import delete_job, receive_outcomes, send_job
from tidefold.spark.submit import submit_command, submit_stored_job


def check_java() -> None:
    """Raises NotFoundError (none) or InvalidInputError (too old)."""
    java = find_java()
    failed = next((finding for finding in judge_java(java) if finding.level is FindingLevel.FAIL), None)
    if failed and java.path:
        raise InvalidInputError("JAVA_TOO_OLD", failed.message, hint=failed.hint)
    if failed:
        raise NotFoundError("JAVA_MISSING", failed.message, hint=failed.hint)


_GRACE_SECONDS = 10.0


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
        self._connection: SparkConnection | None = None

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self._connection:
            self._connection.__exit__()
        if self._job:
            self._job.end(_GRACE_SECONDS if kind is None else 0)

    def run_step(self, step: AnyStep, logs: Sequence[str]) -> list[Outcome]:
        """Returns one outcome for each log, in the given order. An error of one log does not stop the others."""
        found = run_without_spark(self._pipeline, step, logs, BucketLine(self._terminal.note))
        outcomes = {outcome.log: outcome for outcome in found.done}
        if found.spark:
            outcomes |= {outcome.log: outcome for outcome in self._run_on_spark(step, found.spark)}
        return [outcomes[log] for log in logs]

    def _run_on_spark(self, step: AnyStep, logs: Sequence[str]) -> list[Outcome]:
        spark = self._pipeline.config.spark
        if is_connect(spark.master):
            self._connection = self._connection or SparkConnection(self._terminal, self._pipeline)
            return self._connection.run_step(step, logs)
        return self._submit_to_cluster(step, logs) if spark.driver_on_cluster else self._submit(step, logs)

    def _submit(self, step: AnyStep, logs: Sequence[str]) -> list[Outcome]:
        """Sends the step to the job. A job that ends before it reports a result gives every log an error."""
        config = self._pipeline.config
        result = name_file(config.path.parent / "var" / "results", step, ".json")
        request = Request(str(config.path), tuple(logs), step, str(result))
        began = time.monotonic()
        if self._job:
            self._terminal.note(f"{step.name}: the same Spark application continues with {', '.join(logs)}")
            self._job.send(request)
        else:
            check_java()
            output = name_file(config.path.parent / "var" / "log", step, ".log")
            self._terminal.note(f"{step.name}: starting Spark for {', '.join(logs)}; its output goes to {output}")
            self._job = _Job(config, request, output)
        self._wait(self._job, step, result, began)
        if outcomes := read_outcomes(result):
            self._terminal.note(f"{step.name}: Spark done after {time.monotonic() - began:.0f} s")
            return outcomes
        job, self._job = self._job, None
        return describe_death(self._terminal, step, logs, job.end(0), job.process.output)

    def _wait(self, job: _Job, step: AnyStep, result: Path, began: float) -> None:
        """Waits until the result exists or the job has ended. Prints every few seconds that the job runs."""
        progress = ProgressNotes(self._terminal, step, began)
        while not result.exists() and job.process.runs():
            progress.note()

    def _submit_to_cluster(self, step: AnyStep, logs: Sequence[str]) -> list[Outcome]:
        """Runs the step in an application of its own, whose driver is on the cluster."""
        check_java()
        pipeline, terminal, began = self._pipeline, self._terminal, time.monotonic()
        output = name_file(pipeline.config.path.parent / "var" / "log", step, ".log")
        terminal.note(f"{step.name}: sending {', '.join(logs)} to the cluster; spark-submit's output goes to {output}")
        job = send_job(pipeline, step, logs)
        try:
            process = SparkProcess(submit_stored_job(pipeline.config, step.name, job), output)
            code = _wait_for_end(process, ProgressNotes(terminal, step, began))
            outcomes = receive_outcomes(pipeline.store, job)
        finally:
            # A driver that still works ends itself.
            delete_job(pipeline.store, job)
        if outcomes:
            terminal.note(f"{step.name}: Spark done after {time.monotonic() - began:.0f} s")
        return outcomes or describe_death(terminal, step, logs, code, output)


def _wait_for_end(process: SparkProcess, progress: ProgressNotes) -> int:
    """Returns the exit code. An interrupted wait ends the process."""
    try:
        while process.runs():
            progress.note()
    finally:
        code = process.end(0)
    return code


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
