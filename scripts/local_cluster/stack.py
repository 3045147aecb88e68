"""Starts the parts in order: S3, Spark, Airflow; and stops them again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from local_airflow import stack as airflow_stack
from local_airflow.errors import LocalAirflowError
from local_airflow.processes import Register, stop
from local_airflow.settings import PROJECT, Request
from local_airflow.stack import LocalAirflow, Say
from local_cluster.spark import WORKERS, SparkCluster, make_cluster
from local_cluster.versitygw import fetch_program, make_server

# Of the executors: one on each worker.
_SPARK = """\
spark:
  master: "{master}"
  above: 0B
  driver_memory: 1g
  ship_code: true
  python: {python}
  conf: {{spark.executor.memory: 512m, spark.executor.cores: 1}}
"""


class Server(Protocol):
    """An S3 server of this machine."""

    @property
    def url(self) -> str: ...

    def environment(self, url: str | None = None) -> dict[str, str]:
        """What makes AWS clients use this server, under the given address if a proxy stands before it."""

    def start(self, register: Register, log: Path) -> object:
        """Starts the server and waits until it answers."""


@dataclass(frozen=True)
class Servers:
    """The S3 server and the Spark cluster, without Airflow.

    env: what makes AWS clients use the server.
    """

    root: Path
    server: Server
    spark: SparkCluster
    env: Mapping[str, str]
    python: str = field(default=sys.executable)

    @property
    def settings(self) -> str:
        """The lines of `tidefold.yaml` that name this cluster. The package travels with each job."""
        return _SPARK.format(master=self.spark.master, python=self.python)


def start_servers(
    root: Path,
    python: str,
    say: Say,
    front: Callable[[str], str] = lambda url: url,
    cores: int = 1,
    server: Server | None = None,
) -> Servers:
    """Starts S3, the master and two workers below a folder. What was started is stopped if one part fails.

    python: the interpreter of the workers.
    front: takes the server's address and returns the address that all clients get, such as that of a proxy.
    cores: of each worker.
    server: another S3 server than versitygw.
    """
    register = _register(root)
    if any(entry.alive for entry in register.read()):
        raise LocalAirflowError(f"A cluster is already running below {root}: `make down` stops it.")
    register.write([])
    try:
        server = server or make_server(fetch_program(say), root / "s3")
        server.start(register, root / "log" / "s3.log")
        env = server.environment(front(server.url))
        say(f"S3 server at {server.url}")
        spark = make_cluster(root / "spark", env, register, cores)
        spark.start_master()
        for name in WORKERS:
            spark.start_worker(name)
        say(f"Spark master on port {spark.port}, two workers in {spark.root}")
        return Servers(root, server, spark, env, python)
    except BaseException:
        stop_servers(root, say)
        raise


def stop_servers(root: Path, say: Say) -> bool:
    """Stops what `start_servers` started below a folder. False: there was nothing."""
    register = _register(root)
    started = register.read()
    for entry in reversed(started):
        say(f"stopping {entry.name}")
        stop(entry)
        register.forget(entry)
    return bool(started)


def start_airflow(
    servers: Servers,
    config: Path,
    schedule: str,
    say: Say,
    dags: Path = PROJECT / "dags",
    more: Mapping[str, str] | None = None,
) -> LocalAirflow:
    """Starts an Airflow whose tasks use the cluster. `more`: more of its environment."""
    spark = f'{{"conn_type": "spark", "host": "spark://127.0.0.1", "port": {servers.spark.port}}}'
    own = {"AIRFLOW_CONN_SPARK_DEFAULT": spark, **servers.env, **(more or {})}
    return airflow_stack.up(Request(servers.root, config, schedule, dags, quick_spark=True, more=own), say)


def stop_all(root: Path, say: Say) -> bool:
    """Stops Airflow first, so that no task sees its cluster end."""
    had_airflow = airflow_stack.down(root, say)
    return stop_servers(root, say) or had_airflow


def _register(root: Path) -> Register:
    return Register(root / "cluster.json")
