"""A small pipeline of two logs, alone or under its own Airflow, and a plain dict of the expected rows of each table."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import httpx
import psutil
from deltalake import DeltaTable
from grpc import RpcError
from pyspark.errors import PySparkException
from pyspark.sql.connect.session import SparkSession

from local_airflow.errors import LocalAirflowError
from local_airflow.stack import LocalAirflow
from support.airflow_stack import answer_of, hash_files, running, words_of
from support.landing import record, text_of
from support.spark_events import SparkJob
from tidefold.domain.commit_times import micros
from tidefold.domain.log_state import LogState
from tidefold.domain.paths import LogPaths
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.spark.local_server import LocalServer, find_running

LOGS = ("items", "notes")
MATERIALIZE = "tidefold_materialize"
_OPEN = ("queued", "running")
LINEAGE = "lineage.jsonl"
_CONFIG = """\
version: 1
store: store
spark: {above: 64MB}
local: {mode: files, path: local}
retention: {snapshots: 2}
alarms: {failures: 1, lag: never}
logs:
"""
_LOG = """\
  LOG:
    source: {format: debezium-json, connector: postgresql, path: landing/shop.public.LOG}
    key: [id]
    columns: {id: int, text: string}
    key_groups: 16
    buckets: 2
    quality: {suite: quality/LOG.yaml}
"""
PASSES = "expectations: []\n"
FAILS = "expectations:\n- {type: expect_column_values_to_be_in_set, kwargs: {column: text, value_set: [never]}}\n"


def prepare(root: Path) -> Path:
    """Writes the configuration, suites that pass and empty landing folders. Returns the path of `tidefold.yaml`."""
    (root / "quality").mkdir(parents=True)
    for log in LOGS:
        (root / "quality" / f"{log}.yaml").write_text(PASSES)
        (root / "landing" / f"shop.public.{log}").mkdir(parents=True)
    path = root / "tidefold.yaml"
    path.write_text(_CONFIG + "".join(_LOG.replace("LOG", log) for log in LOGS))
    return path


@dataclass
class Stock:
    """The pipeline under test. `held` has the rows of the source: what each table must show once all is published."""

    pipeline: Pipeline
    held: dict[str, dict[int, str]] = field(default_factory=lambda: {log: {} for log in LOGS})
    _offsets: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LOGS, 0))

    def change(self, log: str, rows: dict[int, str | None], at: datetime | None = None, op: str = "c") -> None:
        """Lands one file with an upsert or (None) a delete for each row. `at`: when all of them were committed."""
        start = self._offsets[log]
        committed = {"ts_us": micros(at.isoformat())} if at else {}
        records = []
        for offset, (key, text) in enumerate(rows.items(), start):
            one = record(offset, key, op if text is not None else "d", topic=f"shop.public.{log}", **committed)
            if text is not None:
                one["value"]["after"]["text"] = text
                self.held[log][key] = text
            else:
                self.held[log].pop(key, None)
            records.append(one)
        self._offsets[log] = start + len(rows)
        (self.landing(log) / f"shop.public.{log}+0+{start:010d}.jsonl").write_bytes(text_of(records))

    def landing(self, log: str) -> Path:
        return self.folder / "landing" / f"shop.public.{log}"

    @property
    def folder(self) -> Path:
        return self.pipeline.config.path.parent

    def suite(self, log: str, text: str) -> None:
        (self.folder / "quality" / f"{log}.yaml").write_text(text)

    def shown(self, log: str) -> dict[int, str]:
        """Returns what a plain reader of the table finds."""
        rows = DeltaTable(self.pipeline.store.uri(LogPaths(log).table)).to_pyarrow_table().to_pylist()
        found = {row["id"]: row["text"] for row in rows}
        assert len(found) == len(rows)
        return found

    def all_equal(self) -> bool:
        return all(self.shown(log) == self.held[log] for log in LOGS)

    def state(self, log: str = "items") -> LogState:
        return self.pipeline.ledger(log).read()

    def ledgers(self) -> dict[str, LogState]:
        return {log: self.state(log) for log in LOGS}

    def files(self, below: str = "") -> dict[str, str]:
        """Returns the sha256 of every stored file below a folder. A running run may delete its own files meanwhile."""
        return hash_files(self.pipeline, below)


@dataclass(kw_only=True)
class Shop(Stock):
    """The same under its own Airflow. `told` has what the webhook for alarms received."""

    airflow: LocalAirflow
    statsd: socket.socket
    told: list[Any] = field(default_factory=list)
    _gauges: dict[str, float] = field(default_factory=dict)

    def trigger(self, dag: str = MATERIALIZE, **conf: Any) -> Ran:
        return Ran(self, dag, self.airflow.api.trigger(dag, conf))

    def questions(self) -> list[Ran]:
        """Returns the approval runs that have not ended."""
        dag = f"{MATERIALIZE}_approval"
        return [Ran(self, dag, r["dag_run_id"]) for r in self.airflow.api.runs(dag) if r["state"] in _OPEN]

    def jobs(self, step: str) -> list[psutil.Process]:
        """Returns the processes of a step's Spark job."""
        return [p for p in running(self.airflow) if any(f"jobs/{step}.py" in word for word in words_of(p))]

    def kill_worker(self, step: str) -> bool:
        """Kills the process that runs the task, above its Spark job, so that it cannot clean up.

        Returns False if no job runs. The shell of spark-submit becomes Java under the same number: for a moment it has
        no command line, so the caller asks again.
        """
        jobs = self.jobs(step)
        for job in jobs:
            with suppress(psutil.Error):
                above = [p for p in job.parents() if p not in jobs]
                next(p for p in above if "airflow" in " ".join(words_of(p)).lower()).kill()
                return True
        return False

    @property
    def server(self) -> LocalServer:
        """The Spark Connect server of the pipeline."""
        found = find_running(self.pipeline.config)
        assert found
        return found

    def kill_server(self) -> None:
        """Kills the server's JVM, and not its supervisor."""
        for process in psutil.Process(self.server.pid).children():
            process.kill()

    @contextmanager
    def occupied_server(self) -> Iterator[None]:
        """While the block runs, other jobs hold all cores of the server: steps begin and get nothing done."""
        server = self.server
        session: Any = SparkSession.builder.remote(server.connection).create()
        sleeping = session.range(64, numPartitions=64).selectExpr("reflect('java.lang.Thread', 'sleep', 3600000L)")
        thread = threading.Thread(target=_ignore_end, args=(sleeping.collect,), daemon=True)
        thread.start()
        wait_for(lambda: _all_cores_busy(server), lambda: "cores of the server are free", every=0.1)
        try:
            yield
        finally:
            _ignore_end(session.interruptAll)
            thread.join()
            _ignore_end(session.stop)

    def connected(self) -> list[psutil.Process]:
        """Returns the processes of tasks that are connected to the server."""
        port = self.server.port
        return [p for p in running(self.airflow) if any(c.raddr and c.raddr.port == port for c in _connections(p))]

    def metrics(self) -> dict[str, float]:
        """Returns the last value of every gauge that was sent so far."""
        with suppress(BlockingIOError):
            while True:
                for line in self.statsd.recv(65_536).decode().splitlines():
                    name, _, rest = line.partition(":")
                    value, _, kind = rest.partition("|")
                    if kind == "g":
                        self._gauges[name] = float(value)
        return self._gauges

    def lineage(self) -> list[dict[str, Any]]:
        """Returns every event that OpenLineage received."""
        return [json.loads(line) for line in (self.airflow.request.root / LINEAGE).read_text().splitlines()]

    def events(self, log: str) -> list[dict[str, Any]]:
        return [e["extra"] for e in self.airflow.api.asset_events() if e["extra"].get("log") == log]


class WithAirflow(Protocol):
    airflow: LocalAirflow


@dataclass(frozen=True)
class Ran:
    """A run of a DAG."""

    shop: WithAirflow
    dag: str
    id: str

    @property
    def name(self) -> str:
        """Returns its name in the ledger."""
        return f"{self.dag}/{self.id}"

    def ended(self) -> Ran:
        """Waits until it has ended, and returns it."""
        wait_for(lambda: self.state in ("success", "failed"), lambda: json.dumps(self.tasks, indent=1))
        return self

    def green(self) -> Ran:
        self.ended()
        assert self.state == "success", self.tasks
        return self

    def red(self) -> Ran:
        self.ended()
        assert self.state == "failed", self.tasks
        return self

    @property
    def state(self) -> str:
        return str(self.shop.airflow.api.get(f"/dags/{self.dag}/dagRuns/{quote(self.id)}")["state"])

    @property
    def instances(self) -> list[dict[str, Any]]:
        return self.shop.airflow.api.tasks(self.dag, self.id)

    @property
    def tasks(self) -> dict[str, str]:
        """Returns the state of each task; a mapped one with its index."""
        return {_name(one): str(one["state"]) for one in self.instances}

    def reached(self, task: str, state: str) -> Ran:
        """Waits until this task is in that state, and returns the run."""
        wait_for(lambda: self.tasks.get(task) == state, lambda: json.dumps(self.tasks, indent=1))
        return self

    def answer(self, answers: Mapping[str, tuple[str, str]]) -> Ran:
        """Answers each task with its choice and reason, for as long as it asks.

        Airflow 3.3.2 takes an early answer for a fault of the executor: its scheduler has not yet noticed that
        the process which asked has ended. It then tries the task again, which asks again, and fails it when no try is
        left.
        """

        def ended() -> bool:
            for one in self.instances:
                if _name(one) in answers and one["state"] == "awaiting_input" and self._parked(one):
                    with suppress(LocalAirflowError):  # It is answered, and has not gone on yet.
                        where = (self.dag, self.id, one["task_id"], one["map_index"])
                        self.shop.airflow.api.answer(*where, *answers[_name(one)])
            return self.state in ("success", "failed")

        wait_for(ended, lambda: json.dumps(self.tasks, indent=1))
        return self

    def _parked(self, one: dict[str, Any]) -> bool:
        """Whether the scheduler reports that the process of this try has ended and the task waits."""
        told = f"TaskInstance Finished: dag_id={self.dag}, task_id={one['task_id']}, run_id={self.id}, "
        how = (f"map_index={one['map_index']}, ", "state=awaiting_input, ", f"try_number={one['try_number']}, ")
        lines = self.shop.airflow.log("scheduler").read_text().splitlines()
        return any(told in line and all(part in line for part in how) for line in lines)

    def clear(self, *tasks: str) -> Ran:
        self.shop.airflow.api.clear(self.dag, self.id, *tasks)
        return self

    def result(self, task: str) -> Any:
        name, _, index = task.partition("#")
        return self.shop.airflow.api.xcom(self.dag, self.id, name, int(index or -1))

    def log(self, task: str) -> str:
        """Returns the logs of all tries of a task."""
        one = next(each for each in self.instances if _name(each) == task)
        name, index = one["task_id"], one["map_index"]
        tries = range(1, max(one["try_number"], 1) + 1)
        return "\n".join(line for n in tries for line in self.shop.airflow.api.log(self.dag, self.id, name, n, index))


def _all_cores_busy(server: LocalServer) -> bool:
    # The first answer of Spark's pages may take long on a busy machine.
    with httpx.Client(base_url=f"{server.ui}/api/v1", timeout=120) as pages:
        [application] = pages.get("applications").json()
        executors = pages.get(f"applications/{application['id']}/executors").json()
    return all(one["activeTasks"] >= one["totalCores"] for one in executors)


def _ignore_end(call: Callable[[], Any]) -> None:
    """Calls the server, which may die meanwhile."""
    with suppress(PySparkException, RpcError):
        call()


def _connections(process: psutil.Process) -> list[Any]:
    try:
        return list(process.net_connections("inet"))
    except psutil.Error:
        return []


@dataclass(frozen=True)
class FirstRun:
    """The run that the scheduler began, and what was there when it had ended.

    `day`: when its changes were committed; `java`: command lines of Java processes that tasks started; `jobs`: those of
    the warm Spark; `events`: what the asset events of each log carry.
    """

    run: Ran
    day: datetime
    java: list[str]
    jobs: list[SparkJob]
    states: dict[str, LogState]
    events: dict[str, list[dict[str, Any]]]
    metrics: dict[str, float]
    lineage: list[dict[str, Any]]


def _name(instance: dict[str, Any]) -> str:
    index = instance["map_index"]
    return str(instance["task_id"]) if index < 0 else f"{instance['task_id']}#{index}"


def wait_for(happened: Callable[[], bool], tell: Callable[[], str], seconds: float = 600, every: float = 1) -> None:
    deadline = time.monotonic() + seconds
    while not answer_of(happened):
        assert time.monotonic() < deadline, f"did not happen within {seconds:.0f} s: {tell()}"
        time.sleep(every)
