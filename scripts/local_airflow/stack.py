"""Brings the parts up in order, tells how far it is, and takes them down again."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from local_airflow.api import AirflowApi
from local_airflow.errors import LocalAirflowError
from local_airflow.postgres import start_postgres, stop_postgres
from local_airflow.processes import Register, Started, stop
from local_airflow.settings import PROJECT, Request, airflow_env
from tidefold.config import load_config
from tidefold.config.models.spark import Scheduled, is_connect
from tidefold.errors import TidefoldError
from tidefold.spark.local_server import LocalServer, find_running, free_port, start
from tidefold.storage.safe_files import write_private

Say = Callable[[str], None]
Health = Mapping[str, str | None]
# Without their log servers (they listen on all addresses) the api-server reads the log files directly.
_COMPONENTS = (
    ("api-server",),
    ("dag-processor",),
    # Deadlines need it.
    ("triggerer", "--skip-serve-logs"),
    ("scheduler", "--skip-serve-logs"),
)
_OWN = ("AIRFLOW", "TIDEFOLD_", "PYTHONPATH", "NO_PROXY", "no_proxy")
_HEALTHY = ("metadatabase", "scheduler", "dag_processor", "triggerer")


@dataclass(frozen=True)
class LocalAirflow:
    """A running Airflow."""

    request: Request
    api: AirflowApi
    env: Mapping[str, str]

    def log(self, component: str) -> Path:
        return self.request.root / "log" / f"{component}.log"


def up(request: Request, say: Say) -> LocalAirflow:
    """Starts everything below `request.root`. What was started is stopped again if one part fails."""
    register = _register(request.root)
    if any(entry.alive for entry in register.read()):
        raise LocalAirflowError(f"An Airflow is already running below {request.root}: `make down` stops it.")
    try:
        return _up(request, register, say)
    except BaseException:
        down(request.root, say)
        raise


def down(root: Path, say: Say) -> bool:
    """Stops all that was started below a folder, children too. False: there was nothing."""
    register = _register(root)
    started = register.read()
    for entry in sorted(started, key=lambda entry: entry.name == "postgres"):
        say(f"stopping {entry.name}")
        (stop_postgres if entry.name == "postgres" else stop)(entry)
        register.forget(entry)
    return bool(started)


def _up(request: Request, register: Register, say: Say) -> LocalAirflow:
    since = time.monotonic()
    database = start_postgres(request.root / "postgres", register)
    say(f"Postgres on port {database.port} ({time.monotonic() - since:.0f} s)")
    port = free_port(request.port)
    _write_password(request)
    with ThreadPoolExecutor(1) as pool:
        # Beside the migration, which has one process.
        starting = pool.submit(_start_spark, request)
        _migrate(airflow_env(request, database, port), request.root / "log" / "migrate.log")
        say(f"database migrated ({time.monotonic() - since:.0f} s)")
        server, is_new = starting.result()
    if server:
        if is_new:
            register.adopt("spark", server.pid, server.folder / "server.log")
        say(f"Spark Connect server at {server.address}, its pages at {server.ui} ({time.monotonic() - since:.0f} s)")
    env = airflow_env(request, database, port, server)
    _write_environment(request, env)
    password = json.loads(request.passwords.read_text())["admin"]
    airflow = LocalAirflow(request, AirflowApi(f"http://127.0.0.1:{port}", "admin", password), env)
    started = _start_components(airflow, register)
    _wait(airflow, started, _is_ready)
    say(f"scheduler, dag-processor, api-server and triggerer healthy on port {port} ({time.monotonic() - since:.0f} s)")
    return airflow


def _start_components(airflow: LocalAirflow, register: Register) -> list[Started]:
    """Starts the scheduler last: a task that meets no api-server fails, and its next try begins 5 minutes later."""
    started: list[Started] = []
    for name, *options in _COMPONENTS:
        if name == "scheduler":
            _wait(airflow, started, lambda _, health: bool(health))
        started.append(register.start(name, _airflow(name, *options), airflow.env, airflow.log(name)))
    return started


def _start_spark(request: Request) -> tuple[LocalServer | None, bool]:
    """Starts the pipeline's server, if its tasks use one. Returns it, and whether it did not run before."""
    config = load_config(request.config) if request.warm_spark else None
    if config is None or is_connect(config.spark.master):
        return None, False
    if config.spark.choose_scheduled(has_connection=True)[0] is not Scheduled.CONNECT:
        return None, False
    runs = find_running(config) is not None
    try:
        return start(config, quick=request.quick_spark), not runs
    except TidefoldError as error:
        raise LocalAirflowError(str(error)) from error


def _register(root: Path) -> Register:
    return Register(root / "processes.json")


def _airflow(*words: str) -> list[str]:
    return [str(Path(sys.executable).with_name("airflow")), *words]


def _write_password(request: Request) -> None:
    request.home.mkdir(parents=True, exist_ok=True)
    if not request.passwords.exists():
        write_private(request.passwords, json.dumps({name: secrets.token_urlsafe(12) for name, _ in request.users}))


def _write_environment(request: Request, env: Mapping[str, str]) -> None:
    """Keeps what makes a command one of this Airflow; the address of the database has its password."""
    own = {name: value for name, value in env.items() if name.startswith(_OWN)}
    write_private(_environment(request.root), json.dumps(own))


def _environment(root: Path) -> Path:
    return root / "airflow" / "environment.json"


def call_airflow(root: Path, words: Sequence[str]) -> int:
    """Runs a command of the Airflow that `up` started below a folder; its exit code."""
    if not any(entry.alive for entry in _register(root).read()):
        raise LocalAirflowError("No Airflow is running here: `make up` starts it.")
    own = json.loads(_environment(root).read_text())
    return subprocess.run(_airflow(*words), env={**os.environ, **own}, check=False).returncode


def _migrate(env: Mapping[str, str], log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as stream:
        migrated = subprocess.run(_airflow("db", "migrate"), env=env, stdout=stream, stderr=stream, check=False)
    if migrated.returncode:
        raise LocalAirflowError("`airflow db migrate` failed.", log)


def _wait(
    airflow: LocalAirflow,
    started: list[Started],
    is_ready: Callable[[LocalAirflow, Health], bool],
    seconds: float = 240,
) -> None:
    deadline = time.monotonic() + seconds
    while True:
        health = airflow.api.health()
        if is_ready(airflow, health):
            return
        for entry in started:
            if not entry.alive:
                raise LocalAirflowError(f"{entry.name} ended while starting.", Path(entry.log))
        if time.monotonic() > deadline:
            raise LocalAirflowError(f"Not healthy within {seconds:.0f} s: {health}.", airflow.log("scheduler"))
        time.sleep(0.5)


def _is_ready(airflow: LocalAirflow, health: Health) -> bool:
    return all(health.get(part) == "healthy" for part in _HEALTHY) and _has_read_dags(airflow)


def _has_read_dags(airflow: LocalAirflow) -> bool:
    """Healthy is also a dag-processor that has not looked at the files yet, and then no run can be begun."""
    files = len(list(airflow.request.dags.glob("*.py")))
    try:
        return len(airflow.api.dags()) + len(airflow.api.import_errors()) >= files
    except OSError:  # No response in time: a busy machine. The caller looks again.
        return False


__all__ = ["PROJECT", "LocalAirflow", "Request", "Say", "call_airflow", "down", "up"]
