"""The fixtures that Airflow tests share: one running Airflow over the demo's pipeline, observed from outside."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from demo.truth import check
from demo.watch import DAG, Run, last_try, next_run
from local_airflow.processes import Register, members
from local_airflow.stack import LocalAirflow
from tidefold.cli.sample import LOGS, land
from tidefold.domain.log_state import LogState
from tidefold.domain.paths import LogPaths
from tidefold.errors import NotFoundError
from tidefold.operations.pipeline import Pipeline

# DAG files do not change while a test looks, so Airflow need not read them again each 30 seconds. The scheduler looks
# for work twice a second instead of five times. Other tests need the CPU.
SELDOM = {
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "120",
    "TIDEFOLD_DOCTOR_SCHEDULE": "",
    "TIDEFOLD_SCRUB_SCHEDULE": "",
}


@dataclass(frozen=True)
class Scene:
    """The Airflow under test and the pipeline that its DAG works on."""

    airflow: LocalAirflow
    pipeline: Pipeline

    @property
    def folder(self) -> Path:
        return self.pipeline.config.path.parent

    def state(self, log: str) -> LogState:
        return self.pipeline.ledger(log).read()

    def land(self, phase: str) -> datetime:
        """Lands a phase while no run is active. The next run, which starts after the returned instant, finds all
        of it.
        """
        api = self.airflow.api
        api.set_paused(DAG, True)
        while self._under_way():
            # A paused DAG's run would not go on either.
            api.set_paused(DAG, False)
            wait_until(lambda: not self._under_way())
            api.set_paused(DAG, True)
        land(self.pipeline.config.path, phase)
        landed = datetime.now(UTC)
        api.set_paused(DAG, False)
        return landed

    def _under_way(self) -> bool:
        return any(run["state"] in ("queued", "running") for run in self.airflow.api.runs(DAG))

    def follow(self, since: datetime) -> Run:
        return next_run(self.airflow, since, lambda line: print(f"{time.strftime('%X')} {line}", flush=True))

    def task(self, run: Run, name: str) -> dict[str, Any]:
        return next(t for t in self.airflow.api.tasks(DAG, run.id) if t["task_id"] == name)

    def log(self, run: Run, task: str) -> str:
        return "\n".join(last_try(self.airflow, run.id, task))

    def rows_equal_truth(self, log: str, phase: str) -> int:
        """Checks that the published table equals the database at the end of a phase, and returns the number of rows."""
        columns = {column.name: column.type for column in self.pipeline.log(log).shape.columns}
        return check(self.pipeline.store.uri(LogPaths(log).table), log, phase, columns)

    def all_equal_truth(self, phase: str) -> list[int]:
        return [self.rows_equal_truth(log, phase) for log in LOGS]

    def files(self, below: str = "") -> dict[str, str]:
        """Returns the sha256 of every stored file below a folder. A running run may delete its own files meanwhile."""
        found = {}
        for entry in self.pipeline.store.list(below):
            with suppress(NotFoundError):
                found[entry.path] = hashlib.sha256(self.pipeline.store.read(entry.path)).hexdigest()
        return found

    def jobs(self, step: str) -> list[psutil.Process]:
        """Returns the running processes of a step's Spark job: the JVM and the Python driver."""
        return [p for p in self.processes() if any(f"jobs/{step}.py" in word for word in words_of(p))]

    def processes(self) -> Iterator[psutil.Process]:
        return running(self.airflow)

    def kill(self, step: str) -> None:
        for process in self.jobs(step):
            os.kill(process.pid, signal.SIGKILL)


@contextmanager
def all_on_spark(config: Path) -> Iterator[None]:
    """Within this context Spark ingests and folds everything that has rows, however little it is."""
    small = config.read_text()
    without = re.sub(r"^spark: .*\n", "", small, flags=re.MULTILINE)
    _replace(config, f"{without}spark: {{above: 0B}}\n")
    try:
        yield
    finally:
        _replace(config, small)


def _replace(path: Path, text: str) -> None:
    """Replaces the file in one step, because DAGs are parsed at any moment."""
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


def running(airflow: LocalAirflow) -> Iterator[psutil.Process]:
    """Yields every process that this Airflow started, and their children."""
    for started in Register(airflow.request.root / "processes.json").read():
        yield from members(started)


def wait_until(happened: Callable[[], bool], seconds: float = 400, every: float = 1) -> None:
    """Polls. A state that lasts only a second needs more looks, which cost the api-server CPU time."""
    deadline = time.monotonic() + seconds
    while not answer_of(happened):
        assert time.monotonic() < deadline, f"did not happen within {seconds:.0f} s"
        time.sleep(every)


def answer_of(happened: Callable[[], bool]) -> bool:
    """Asks. An api-server that does not respond, because the machine is busy, has not said yes."""
    try:
        return happened()
    except TimeoutError:
        return False


@contextmanager
def java_started(airflow: LocalAirflow) -> Iterator[list[str]]:
    """Collects the command lines of Java processes that Airflow starts within this context."""
    seen: dict[int, str] = {}
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.2):
            seen.update({p.pid: " ".join(words_of(p)) for p in running(airflow) if _is_java(p)})

    watcher = threading.Thread(target=look)
    watcher.start()
    found: list[str] = []
    try:
        yield found
    finally:
        done.set()
        watcher.join()
        found.extend(seen.values())


def _is_java(process: psutil.Process) -> bool:
    """Whether this is a Java process. While it forks there are two of that name for a moment, and the parent counts."""
    try:
        above = process.parent()
    except psutil.Error:
        return False
    return "java" in _name(process) and (above is None or "java" not in _name(above))


def words_of(process: psutil.Process) -> list[str]:
    """Returns the command line; empty if the process has ended."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return ""
