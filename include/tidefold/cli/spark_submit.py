"""Runs one step (ingest, materialize, quality) for some logs: without a JVM when nothing is to be done, else with ONE
spark-submit whose output goes to a file.

Finds out before Spark starts whether it can start: it needs a Java of the right age.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tidefold.cli.output.restore import BucketLine
from tidefold.cli.terminal import Terminal
from tidefold.errors import InvalidInputError, NotFoundError, TidefoldError
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold.spark.dispatch import run_without_spark
from tidefold.spark.result_file import read_outcomes
from tidefold.spark.steps import AnyStep
from tidefold.spark.submit import Request, submit_command
from tidefold.storage.safe_files import make_private_folder

_OLDEST = 17
_HOW = "Install Java 17 or 21 (Debian, Ubuntu: `apt install openjdk-17-jre-headless`) or set JAVA_HOME to one."


def check_java() -> None:
    """Raises NotFoundError (none) or InvalidInputError (too old)."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not java or not os.access(java, os.X_OK):
        where = f"JAVA_HOME ({home}) holds none" if home else "there is none on the PATH"
        raise NotFoundError("JAVA_MISSING", f"Spark needs Java, and {where}.", hint=_HOW)
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    # Java 8 and older call themselves 1.8.
    major = int(found[2] or 0) if found and found[1] == "1" else int(found[1]) if found else None
    if major is None or major < _OLDEST:
        shown = f"is Java {major}" if major else "does not say its version"
        raise InvalidInputError("JAVA_TOO_OLD", f"Spark needs Java 17 or newer, and {java} {shown}.", hint=_HOW)


_PROGRESS_SECONDS = 5.0
_GRACE_SECONDS = 10.0
_TAIL_LINES = 20


def run_step(terminal: Terminal, pipeline: Pipeline, step: AnyStep, logs: Sequence[str]) -> list[Outcome]:
    """One outcome a log, in the order given; an error of one log does not stop the others."""
    found = run_without_spark(pipeline, step, logs, BucketLine(terminal.note))
    outcomes = {outcome.log: outcome for outcome in found.done}
    if found.spark:
        outcomes |= {outcome.log: outcome for outcome in _submit(terminal, pipeline, step, found.spark)}
    return [outcomes[log] for log in logs]


def _submit(terminal: Terminal, pipeline: Pipeline, step: AnyStep, logs: Sequence[str]) -> list[Outcome]:
    """Runs the job; one that ends without a word gives every log an error."""
    config = pipeline.config
    check_java()
    output = _fresh_file(config.path.parent / "var" / "log", step, ".log")
    result = _fresh_file(config.path.parent / "var" / "results", step, ".json")
    request = Request(str(config.path), tuple(logs), step, str(result))
    command = submit_command(config, request)
    terminal.note(f"{step.name}: starting Spark for {', '.join(logs)}; its output goes to {output}")
    code = _run(terminal, step, command.argv, {**os.environ, **command.env}, output)
    return read_outcomes(result) or _died(terminal, step, logs, code, output)


def _fresh_file(folder: Path, step: AnyStep, ending: str) -> Path:
    make_private_folder(folder)
    run = re.sub(r"[^\w.-]", "_", step.run or "any")[:80]
    return folder / f"{run}-{step.name}-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}{ending}"


def _run(terminal: Terminal, step: AnyStep, argv: Sequence[str], env: dict[str, str], output: Path) -> int:
    """The job's exit code. Says every few seconds that it still runs; whatever ends us ends it too."""
    began = time.monotonic()
    with output.open("wb") as sink:
        # In a session of its own, so that the JVM and its Python workers can be ended as one.
        job = subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
        )
        before = signal.signal(signal.SIGTERM, _interrupt)
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    return job.wait(_PROGRESS_SECONDS)
                terminal.note(f"{step.name}: running, {time.monotonic() - began:.0f} s")
        finally:
            signal.signal(signal.SIGTERM, before)
            _end(job)
            if job.returncode == 0:
                terminal.note(f"{step.name}: Spark done after {time.monotonic() - began:.0f} s")


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _end(job: subprocess.Popen[bytes]) -> None:
    """Ends a job that still runs, its children too."""
    if job.poll() is not None:
        return
    os.killpg(job.pid, signal.SIGTERM)
    try:
        job.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def _died(terminal: Terminal, step: AnyStep, logs: Sequence[str], code: int, output: Path) -> list[Outcome]:
    tail = output.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
    terminal.note("\n".join(["the last lines of its output:", *(f"  | {line}" for line in tail)]))
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    error = TidefoldError(
        "JOB_DIED",
        f"The Spark job of {step.name} {how} before it reported a result.",
        hint=f"Read {output}. `tidefold status` names an open attempt; the same command with its --run continues it.",
    )
    return [Outcome.of_error(log, error) for log in logs]
