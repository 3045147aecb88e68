"""Spark's standalone master and workers, each a process in a folder of its own that knows nothing of this clone."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from local_airflow.errors import LocalAirflowError
from local_airflow.processes import Register, Started, members
from tidefold.spark.local_server import free_port

# The hosts of the workers, as Spark names them. Other systems than Linux have one address of their own only.
WORKERS = {"one": "127.0.0.1", "two": "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"}
# What a driver knows of this clone and of its environment is not in that of a worker.
_HIDDEN = ("AIRFLOW", "AWS_", "HADOOP_", "PYSPARK_", "PYTHON", "SPARK_", "TIDEFOLD_", "VIRTUAL_ENV")
_SECONDS = 120
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class SparkCluster:
    """A master and its workers.

    env: what the workers have beside the machine's environment, such as the address and the keys of S3.
    cores, memory: of each worker.
    """

    root: Path
    port: int
    page: int
    env: Mapping[str, str]
    register: Register
    cores: int = 1
    memory: str = "1g"

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def folder(self, name: str) -> Path:
        return self.root / name

    def start_master(self) -> Started:
        """Starts the master and waits until it answers. Raises LocalAirflowError."""
        words = ("--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self.page))
        started = self._start("master", "master.Master", words)
        self._wait_for(0, started)
        return started

    def start_worker(self, name: str) -> Started:
        """Starts a worker and waits until the master knows it. Raises LocalAirflowError."""
        known = len(self.alive_workers())
        words = ("--host", WORKERS[name], "--webui-port", str(free_port()), "--cores", str(self.cores))
        size = ("--memory", self.memory, "--work-dir", str(self.folder(name) / "work"))
        started = self._start(name, "worker.Worker", (*words, *size, self.master))
        self._wait_for(known + 1, started)
        return started

    def find(self, name: str) -> Started:
        """The newest process of that name. Raises LocalAirflowError."""
        for started in reversed(self.register.read()):
            if started.name == name:
                return started
        raise LocalAirflowError(f"There is no process {name}.")

    def kill(self, name: str) -> None:
        """Kills a process and all that it has started, without a warning, as a machine that goes dark."""
        started = self.find(name)
        for process in list(members(started)):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        self.register.forget(started)

    def describe(self) -> dict[str, Any]:
        """What the master's page tells; nothing before it is up."""
        try:
            with _direct.open(f"http://127.0.0.1:{self.page}/json/", timeout=5) as answer:
                return dict(json.load(answer))
        except (OSError, ValueError):  # While it starts, the page has no JSON yet.
            return {}

    def alive_workers(self) -> list[dict[str, Any]]:
        return [worker for worker in self.describe().get("workers", ()) if worker["state"] == "ALIVE"]

    def active_apps(self) -> list[str]:
        """The names of the applications that run."""
        return [app["name"] for app in self.describe().get("activeapps", ())]

    def _start(self, name: str, kind: str, words: tuple[str, ...]) -> Started:
        folder = self.folder(name)
        scratch = folder / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        env = {key: value for key, value in os.environ.items() if not key.startswith(_HIDDEN)}
        # The Spark of this environment, without a Python on the PATH that would find it.
        home = Path(str(files("pyspark")))
        own = {
            **self.env,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": WORKERS.get(name, "127.0.0.1"),
            "TIDEFOLD_HOST": name,
            "SPARK_LOCAL_DIRS": str(scratch),
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
            "TMPDIR": str(scratch),
        }
        program = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *words]
        return self.register.start(name, program, {**env, **own}, folder / "output.log", cwd=folder)

    def _wait_for(self, workers: int, started: Started) -> None:
        deadline = time.monotonic() + _SECONDS
        while not self.describe() or len(self.alive_workers()) < workers:
            if not started.alive:
                raise LocalAirflowError(f"Spark's {started.name} ended while starting.", Path(started.log))
            if time.monotonic() > deadline:
                raise LocalAirflowError(f"Spark's {started.name} is not up after {_SECONDS} s.", Path(started.log))
            time.sleep(0.2)


def make_cluster(root: Path, env: Mapping[str, str], register: Register, cores: int = 1) -> SparkCluster:
    """A cluster on free ports that is not started yet."""
    return SparkCluster(root, free_port(), free_port(), env, register, cores)
