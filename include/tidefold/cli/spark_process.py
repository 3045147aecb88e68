"""A process of spark-submit: how it is started and ended, and what is reported if it ends without a result."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tidefold.cli.terminal import Terminal
from tidefold.errors import TidefoldError
from tidefold.operations.outcome import Outcome
from tidefold.spark.steps import AnyStep
from tidefold.spark.stored_job import describe_application
from tidefold.spark.submit import Command
from tidefold.storage.safe_files import make_private_folder

_POLL_SECONDS = 0.05
_GRACE_SECONDS = 10.0
_PROGRESS_SECONDS = 5.0
_TAIL_LINES = 20


class SparkProcess:
    """Runs a command until it ends or is ended. Meanwhile SIGTERM interrupts this process.

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
        self._handler = signal.signal(signal.SIGTERM, _interrupt)

    def runs(self) -> bool:
        """Whether it still runs after a short wait."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_POLL_SECONDS)
        return self._process.returncode is None

    def end(self, grace: float) -> int:
        """Returns the exit code. After `grace` seconds the process and its children are killed."""
        signal.signal(signal.SIGTERM, self._handler)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(grace)
        _end(self._process)
        return self._process.returncode


class ProgressNotes:
    """Prints every few seconds that a step runs."""

    def __init__(self, terminal: Terminal, step: AnyStep, began: float) -> None:
        self._terminal, self._step = terminal, step
        self._began = self._noted = began

    def note(self) -> None:
        if time.monotonic() - self._noted >= _PROGRESS_SECONDS:
            self._noted = time.monotonic()
            self._terminal.note(f"{self._step.name}: running, {self._noted - self._began:.0f} s")


def name_file(folder: Path, step: AnyStep, ending: str) -> Path:
    """Returns the path of a file of this step of this process. Makes the folder."""
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


def describe_death(terminal: Terminal, step: AnyStep, logs: Sequence[str], code: int, output: Path) -> list[Outcome]:
    """Prints the last lines of a job that ended without a result. Returns the error of each log."""
    printed = output.read_text(errors="replace")
    tail = printed.splitlines()[-_TAIL_LINES:]
    terminal.note("\n".join(["the last lines of its output:", *(f"  | {line}" for line in tail)]))
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    where = describe_application(printed)
    error = TidefoldError(
        "JOB_DIED",
        f"The Spark job of {step.name} {how} before it reported a result.",
        hint=f"Read {output}.{where} Then repeat the command with the --run of the open attempt that `tidefold status` "
        "shows.",
    )
    return [Outcome.of_error(log, error) for log in logs]
