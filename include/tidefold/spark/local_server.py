"""A Spark Connect server of this machine for one pipeline: `tidefold spark start`, and what `make up` starts.

Everything is in `var/server` beside the configuration, and only its owner can read it. Who has the token in it runs
code with the rights of the server.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tidefold.compute.spark_versions import SparkFeature, require_feature
from tidefold.config import Config
from tidefold.config.models.spark import is_connect, is_one_process
from tidefold.errors import InvalidInputError, UnavailableError
from tidefold.installation import PACKAGE, SPARK_SUBMIT, jar_folder
from tidefold.spark.server_supervisor import DEATH, answers
from tidefold.spark.submit import job_env, scratch_folder, spark_conf
from tidefold.storage.safe_files import make_private_folder, write_private

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_PORT, _UI_PORT = 15002, 4040
# Memory of one Python worker. Each core has one.
_WORKER_MEMORY = "3g"
# A task of Spark's that fails, because its Python worker was killed, is tried again so often.
_TRIES = 4
_SECONDS, _STOP_SECONDS = 180.0, 30.0
# A server that died so often before it answered will not start.
_DEATHS = 2


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server that was started for a pipeline.

    pid: of its supervisor. token: what clients must have. ui: where Spark's pages are. folder: its log and events.
    """

    folder: Path
    pid: int
    port: int
    token: str
    ui: str

    @property
    def address(self) -> str:
        """The address without the token."""
        # A client with a token wants TLS, except of a host with this name.
        return f"sc://localhost:{self.port}"

    @property
    def connection(self) -> str:
        """The address with the token."""
        return f"{self.address}/;token={self.token}"

    def answers(self) -> bool:
        """Whether it takes connections now."""
        return answers(self.port)


def find_running(config: Config) -> LocalServer | None:
    """The server of this pipeline; None: none was started."""
    folder = _folder(config)
    try:
        if supervisor := _find_supervisor(folder):
            plan = json.loads((folder / "plan.json").read_text())
            return LocalServer(folder, int(supervisor), plan["port"], _read_token(folder), plan["ui"])
    except (OSError, ValueError):  # It was never started, or starts or ends at this moment.
        pass
    return None


def _find_supervisor(folder: Path) -> str:
    """The process that holds the lock, as text; empty: none does, or it has not written its number yet."""
    with (folder / "lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return lock.read()
    return ""


def find_fault(config: Config) -> str:
    """What is wrong with the server that was started for this pipeline; empty: nothing, or none was started."""
    if server := find_running(config):
        away = "it starts, is started again, or hangs and is started again after a minute"
        log = server.folder / "server.log"
        return "" if server.answers() else f"The Spark Connect server {server.address} does not answer: {away} ({log})."
    has_died = (_folder(config) / "plan.json").exists()
    return "The Spark Connect server and its supervisor have died: `tidefold spark start` starts both." * has_died


def start(config: Config, *, quick: bool = False) -> LocalServer:
    """Starts a server, or finds the one that runs, and waits until it answers. Raises TidefoldError.

    quick: without the JVM's second compiler, for work that takes seconds.
    """
    folder = _folder(config)
    with _explain_writing(folder):
        make_private_folder(folder)
        # Of two that start at once, the second one finds the server of the first.
        starting = (folder / "start.lock").open("w")
    with starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        process = None if find_running(config) else _start_supervisor(config, quick)
        try:
            return _await_answer(config, process)
        except BaseException:
            if process:
                process.terminate()
            raise


def _start_supervisor(config: Config, quick: bool) -> subprocess.Popen[bytes]:
    folder, command, env = _prepare(config, quick)
    with (folder / "supervisor.out").open("wb") as output:
        return subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )


def _await_answer(config: Config, process: subprocess.Popen[bytes] | None) -> LocalServer:
    log, ends = _folder(config) / "server.log", time.monotonic() + _SECONDS
    deaths = _count_deaths(log)
    while (running := find_running(config)) is None or not running.answers():
        has_ended = process.poll() is not None if process else running is None
        if has_ended or time.monotonic() > ends or _count_deaths(log) - deaths >= _DEATHS:
            message, hint = "The Spark Connect server does not start.", f"Read {log}."
            raise UnavailableError("CONNECT_NOT_STARTED", message, hint=hint)
        time.sleep(0.1)
    return running


def _count_deaths(log: Path) -> int:
    return log.read_bytes().count(DEATH.encode()) if log.exists() else 0


@contextmanager
def _explain_writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"The folder {folder} cannot be written: {error.strerror}."
        hint = "Make space there, or make it writable for this user."
        raise UnavailableError("CONNECT_NOT_STARTED", message, hint=hint) from error


def serve(config: Config) -> NoReturn:
    """Becomes the supervisor of a server, which runs until a signal. Raises TidefoldError."""
    _, command, env = _prepare(config, quick=False)
    os.execve(command[0], command, env)


def stop(config: Config) -> bool:
    """Ends the server and its supervisor; False: none runs."""
    if (running := find_running(config)) is None:
        with _explain_writing(_folder(config)):
            (_folder(config) / "plan.json").unlink(missing_ok=True)
        return False
    ends = time.monotonic() + _STOP_SECONDS
    with suppress(ProcessLookupError):
        os.kill(running.pid, signal.SIGTERM)
        # Until the lock is free: the next start needs it.
        while _find_supervisor(running.folder):
            if time.monotonic() > ends:
                # The server ends with its supervisor.
                os.kill(running.pid, signal.SIGKILL)
            time.sleep(0.1)
    return True


def _folder(config: Config) -> Path:
    return config.path.absolute().parent / "var" / "server"


def _prepare(config: Config, quick: bool) -> tuple[Path, list[str], dict[str, str]]:
    """Writes what the supervisor needs. Returns its folder, its command line and its environment."""
    require_feature(SparkFeature.CONNECT)
    if is_connect(config.spark.master):
        message = "`spark.master` names a Spark Connect server that runs already."
        raise InvalidInputError("CONNECT_OPTION", message, hint="Use it, or set `spark.master` to `local[*]`.")
    folder = _folder(config)
    with _explain_writing(folder):
        make_private_folder(folder)
        if token := os.environ.get(TOKEN_VARIABLE):
            write_private(folder / "token", token)
        write_private(folder / "plan.json", json.dumps(_plan(config, folder, quick)))
    command = [sys.executable, "-m", "tidefold.spark.server_supervisor", str(folder)]
    return folder, command, {**os.environ, **job_env(config, "server")}


def _plan(config: Config, folder: Path, quick: bool) -> dict[str, object]:
    """What the supervisor needs. The token is in the environment, because each user sees command lines."""
    port, ui = free_port(_PORT), free_port(_UI_PORT)
    events = folder / "events"
    make_private_folder(events)
    master = config.spark.master
    settings = {
        **spark_conf(config, "server", quick=quick),
        "spark.ui.enabled": "true",
        "spark.ui.port": str(ui),
        "spark.ui.killEnabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        # Lines of JSON, which any program reads while the server writes them.
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "true",
        "spark.eventLog.rolling.maxFileSize": "10m",
        "spark.executor.pyspark.memory": _WORKER_MEMORY,
        # What the server remembers for its pages is bounded, so its memory stays flat.
        "spark.ui.retainedJobs": "200",
        "spark.ui.retainedStages": "200",
        "spark.ui.retainedTasks": "5000",
        "spark.sql.ui.retainedExecutions": "100",
        "spark.connect.ui.retainedSessions": "20",
        "spark.connect.ui.retainedStatements": "100",
        **config.spark.conf,
    }
    words = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    place = f"local[{_count_cores(master)},{_TRIES}]" if is_one_process(master) else master
    return {
        "argv": [SPARK_SUBMIT, "--master", place, "--name", "tidefold", "--class", _CLASS, *words, "spark-internal"],
        "env": {**job_env(config, "server"), TOKEN_VARIABLE: _read_token(folder), "MALLOC_ARENA_MAX": "2"},
        "port": port,
        "ui": f"http://127.0.0.1:{ui}",
        "watched": [str(PACKAGE), str(jar_folder())],
        "events": str(events),
        "scratch": str(scratch_folder(config, "server")),
    }


def _count_cores(master: str) -> int:
    named = master.removeprefix("local").strip("[]")
    return int(named) if named.isdigit() else len(os.sched_getaffinity(0)) if named else 1


def _read_token(folder: Path) -> str:
    """The token of this pipeline's server: of the environment of who started it, or made by the first call."""
    path = folder / "token"
    # An empty one would let in who has none.
    if not path.exists() or not path.read_text().strip():
        write_private(path, secrets.token_hex(32))
    return path.read_text()


def free_port(preferred: int = 0) -> int:
    """Returns the preferred port of the loopback address if nobody listens on it, else any free one."""
    for port in (preferred, 0):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise UnavailableError("CONNECT_NOT_STARTED", "There is no free port on 127.0.0.1.", hint="End other programs.")
