"""Starts processes in sessions of their own, writes down which, and stops exactly those with all their children.

Airflow gives each task a process group of its own, so a group is not enough; the session is shared by them all.
Nothing is ever looked up by name.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from local_airflow.errors import LocalAirflowError


@dataclass(frozen=True)
class Started:
    """A session leader. `created` (seconds since 1970) tells it from a later process with the same number."""

    name: str
    pid: int
    created: float
    log: str

    @property
    def alive(self) -> bool:
        leader = _process(self.pid)
        return leader is not None and _same(leader, self) and leader.status() != psutil.STATUS_ZOMBIE


class Register:
    """The list of what was started, in a file, so that another process can stop it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[Started]:
        if not self._path.exists():
            return []
        return [Started(**entry) for entry in json.loads(self._path.read_text())]

    def write(self, started: Sequence[Started]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps([asdict(entry) for entry in started]))
        part.replace(self._path)

    def start(
        self, name: str, argv: Sequence[str], env: Mapping[str, str], log: Path, cwd: Path | None = None
    ) -> Started:
        """Starts a program detached from this one and writes it down. `cwd`: the folder in which it works."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stream:
            child = subprocess.Popen(
                argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
            )
        return self.adopt(name, child.pid, log)

    def adopt(self, name: str, pid: int, log: Path) -> Started:
        """Writes down a leader of a session that something else has started."""
        started = Started(name, pid, psutil.Process(pid).create_time(), str(log))
        self.write([*self.read(), started])
        return started

    def forget(self, started: Started) -> None:
        self.write([entry for entry in self.read() if entry != started])


def stop(started: Started, first: signal.Signals = signal.SIGTERM, patience: float = 20) -> None:
    """Asks the leader, then its whole group, then kills what is left of the session. Returns when all are gone."""
    if started.alive:
        _signal(started.pid, first)
        psutil.wait_procs(list(members(started)), timeout=patience)
    for number in (signal.SIGTERM, signal.SIGKILL):
        left = list(members(started))
        for process in left:
            _signal(process.pid, number)
        _, left = psutil.wait_procs(left, timeout=5)
        if not left:
            return
    raise LocalAirflowError(f"{started.name} (session {started.pid}) does not stop.", Path(started.log))


def members(started: Started) -> Iterator[psutil.Process]:
    """The processes of a session that are still running."""
    for process in psutil.process_iter():
        try:
            in_session = os.getsid(process.pid) == started.pid
            if in_session and process.create_time() >= started.created and process.status() != psutil.STATUS_ZOMBIE:
                yield process
        except (ProcessLookupError, psutil.Error):
            continue


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def _same(process: psutil.Process, started: Started) -> bool:
    return bool(abs(process.create_time() - started.created) < 0.01)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
