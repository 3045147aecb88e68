"""What tests of a running Airflow share: its processes, seen from outside, and the files of its pipeline."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from local_airflow.processes import Register, members
from local_airflow.stack import LocalAirflow
from tidefold.errors import NotFoundError
from tidefold.operations.ground.pipeline import Pipeline

# DAG files do not change while a test looks, so Airflow reads them once. The scheduler looks for work twice a second
# instead of five times. Other tests need the CPU.
SELDOM = {
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
    "TIDEFOLD_SCRUB_SCHEDULE": "",
}


def hash_files(pipeline: Pipeline, below: str = "") -> dict[str, str]:
    """Returns the sha256 of every stored file below a folder. A running run may delete its own files meanwhile."""
    found = {}
    for entry in pipeline.store.list(below):
        with suppress(NotFoundError):
            found[entry.path] = hashlib.sha256(pipeline.store.read(entry.path)).hexdigest()
    return found


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


def running(airflow: LocalAirflow, *, without: str = "") -> Iterator[psutil.Process]:
    """Yields every process that this Airflow started, and their children. `without`: a part that is left out."""
    for started in Register(airflow.request.root / "processes.json").read():
        if started.name != without:
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
    """Collects the command lines of Java processes that Airflow's tasks start within this context."""
    seen: dict[int, str] = {}
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.2):
            seen.update({p.pid: " ".join(words_of(p)) for p in running(airflow, without="spark") if _is_java(p)})

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
