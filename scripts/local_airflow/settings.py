"""How this Airflow is set: everything by environment, nothing to keep in a file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from local_airflow.postgres import Database
from tidefold.spark.local_server import LocalServer

PROJECT = Path(__file__).resolve().parents[2]
# What a shell may carry over from another Airflow or Spark would change ours; but a person sets what is kept.
_FOREIGN = ("AIRFLOW", "SPARK_", "PYSPARK_", "HADOOP_", "PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "PYTHONPATH")
# Connections and settings, such as AIRFLOW__METRICS__STATSD_ON. What this Airflow needs overrides them.
_KEPT = ("AIRFLOW__", "AIRFLOW_CONN_")


@dataclass(frozen=True)
class Request:
    """What to run: below which folder, with which pipeline, how often."""

    root: Path
    config: Path
    schedule: str
    dags: Path = PROJECT / "dags"
    # Of the simple auth manager: name and role of each.
    users: tuple[tuple[str, str], ...] = (("admin", "admin"),)
    paused: bool = False
    # C1 only: half the CPU time of jobs that take seconds, wrong for jobs that take minutes.
    quick_spark: bool = False
    # A Spark Connect server runs beside Airflow, unless the configuration says that tasks use none.
    warm_spark: bool = False
    # More of the environment, as settings of the DAGs.
    more: Mapping[str, str] = field(default_factory=dict)
    # The preferred port of the api-server; 0: any. It listens a minute later: two that prefer the same one may meet.
    port: int = 0

    @property
    def home(self) -> Path:
        return self.root / "airflow"

    @property
    def passwords(self) -> Path:
        return self.home / "passwords.json"


def airflow_env(request: Request, database: Database, port: int, server: LocalServer | None = None) -> dict[str, str]:
    """The environment of every component. `server`: what the tasks use Spark on."""
    address = f"http://127.0.0.1:{port}"
    foreign = {name for name in os.environ if name.startswith(_FOREIGN) and not name.startswith(_KEPT)}
    kept = {name: value for name, value in os.environ.items() if name not in foreign}
    own = {
        "AIRFLOW_HOME": str(request.home),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[*]"}),
        # The clone has `tidefold`, which is not installed into its own .venv.
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), str(PROJECT), os.environ["PATH"])),
        "PYTHONPATH": str(PROJECT / "include"),
        "TIDEFOLD_CONFIG": str(request.config),
        "TIDEFOLD_SCHEDULE": request.schedule,
        "TIDEFOLD_SPARK_C1": "1" if request.quick_spark else "0",
        # A proxy must not get between a task and the api-server on this machine.
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }
    if server:
        connection = {"conn_type": "spark_connect", "host": "localhost", "port": server.port, "password": server.token}
        own["AIRFLOW_CONN_SPARK_CONNECT_DEFAULT"] = json.dumps(connection)
    return {**kept, **own, **_sections(request, database, address, port), **request.more}


def _sections(request: Request, database: Database, address: str, port: int) -> dict[str, str]:
    values = {
        "CORE__DAGS_FOLDER": str(request.dags),
        "CORE__PLUGINS_FOLDER": str(PROJECT / "plugins"),
        "CORE__LOAD_EXAMPLES": "False",
        "CORE__EXECUTOR": "LocalExecutor",
        # An ended task may hold its place for 5 s, until its supervisor looks. So there are more places than tasks at a
        # time: one of our DAG, and one of a person's own run.
        "CORE__PARALLELISM": "8",
        "CORE__MAX_ACTIVE_TASKS_PER_DAG": "2",
        "CORE__DAGS_ARE_PAUSED_AT_CREATION": str(request.paused),
        "CORE__EXECUTION_API_SERVER_URL": f"{address}/execution/",
        "CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in request.users),
        "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(request.passwords),
        "DATABASE__SQL_ALCHEMY_CONN": database.url("psycopg2"),
        "DATABASE__SQL_ALCHEMY_CONN_ASYNC": database.url("asyncpg"),
        "API__HOST": "127.0.0.1",
        "API__PORT": str(port),
        "API__WORKERS": "1",
        "API__BASE_URL": address,
        "DAG_PROCESSOR__REFRESH_INTERVAL": "10",
        "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "30",
        "DAG_PROCESSOR__PARSING_PROCESSES": "1",
        # How long a task waits after the end of the one before it, at most.
        "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
        # The api-server imports much at the first request of a task. If that is later than the default of 5 s on a busy
        # machine, the task fails before it starts, and its next try begins 5 minutes later.
        "WORKERS__EXECUTION_API_TIMEOUT": "60",
        # While so many other runs are running, Airflow 3.3.2 starts no run of a backfill.
        "SCHEDULER__MAX_DAGRUNS_PER_LOOP_TO_SCHEDULE": "200",
        "USAGE_DATA_COLLECTION__ENABLED": "False",
    }
    return {f"AIRFLOW__{name}": value for name, value in values.items()}
