"""A cluster under test: two logs in S3, an Airflow whose jobs run on the cluster, and the rows that must be there."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from deltalake import DeltaTable

from cluster.proxy import S3Proxy
from local_airflow.processes import Register, members
from local_airflow.settings import PROJECT
from local_airflow.stack import LocalAirflow
from local_cluster.sample import open_client
from local_cluster.stack import WORKERS, Server, Servers, start_airflow, start_servers, stop_all
from local_cluster.versitygw import BUCKET
from support.airflow_shop import Ran
from support.airflow_stack import SELDOM, running, wait_until, words_of
from support.landing import record, text_of
from tidefold.domain.paths import LogPaths
from tidefold.ledger import read_manifest
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.recovery import PATIENCE, find_abandoned, recover_run
from tidefold.wiring import open_pipeline

LOGS = ("items", "notes")
DAG = "tidefold_materialize"
CONFIG = """\
version: 1
store: s3://{bucket}/store
retention: {{snapshots: 2}}
{settings}logs:
"""
LOG = """\
  {log}:
    source: {{format: debezium-json, connector: postgresql, path: s3://{bucket}/landing/shop.public.{log}}}
    key: [id]
    columns: {{id: int, text: string}}
    buckets: {buckets}
"""


@dataclass
class Rig:
    """What runs, and the oracle.

    held: the rows that each table must show: a plain dict that the same changes were applied to.
    """

    servers: Servers
    proxy: S3Proxy
    airflow: LocalAirflow
    pipeline: Pipeline
    client: Any
    held: dict[str, dict[int, str]] = field(default_factory=lambda: {log: {} for log in LOGS})
    _offsets: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LOGS, 0))

    def change(self, log: str, count: int, chance: random.Random, keys: int = 50_000) -> None:
        """Lands one file with so many changes of random keys: of ten, one is a delete."""
        start, records = self._offsets[log], []
        for offset in range(start, start + count):
            key = chance.randrange(keys)
            op = "d" if chance.random() < 0.1 else "c"
            one = record(offset, key, op, topic=f"shop.public.{log}")
            if op == "d":
                self.held[log].pop(key, None)
            else:
                one["value"]["after"]["text"] = self.held[log][key] = f"{log} {offset} {chance.getrandbits(64):x}"
            records.append(one)
        self._offsets[log] = start + count
        name = f"landing/shop.public.{log}/shop.public.{log}+0+{start:010d}.jsonl"
        self.client.put_object(Bucket=BUCKET, Key=name, Body=text_of(records))

    def trigger(self) -> Ran:
        return Ran(self, DAG, self.airflow.api.trigger(DAG))

    def find_wrong(self) -> list[str]:
        """Returns what a plain reader of the tables sees that the oracle does not, and the other way round."""
        return [f"{log}: {said}" for log in LOGS if (said := self._compare(log))]

    def _compare(self, log: str) -> str:
        rows = self._open_table(log).to_pyarrow_table().to_pylist()
        found, held = {row["id"]: row["text"] for row in rows}, self.held[log]
        if found == held and len(found) == len(rows):
            return ""
        lost, extra = held.keys() - found.keys(), found.keys() - held.keys()
        return f"{len(rows)} rows, not {len(held)}; {len(lost)} lost, {len(extra)} too many"

    def _open_table(self, log: str) -> DeltaTable:
        """The table, as a reader opens it that uses the server without the proxy."""
        options = {**self.servers.env, "AWS_ENDPOINT_URL": self.servers.server.url}
        return DeltaTable(self.pipeline.store.uri(LogPaths(log).table), storage_options=options)

    def executors(self, job: str) -> list[psutil.Process]:
        """The executors on both workers, if this job runs and at least one of its tasks has begun."""
        if f"tidefold {job}" not in self.servers.spark.active_apps():
            return []
        return [p for name in WORKERS for p in self._executors_of(name) if _has_python(p)]

    def _executors_of(self, worker: str) -> list[psutil.Process]:
        processes = members(self.servers.spark.find(worker))
        return [p for p in processes if "CoarseGrainedExecutor" in " ".join(words_of(p))]

    def drivers(self, job: str) -> list[psutil.Process]:
        """The processes of the job's driver: the JVM and its Python."""
        return [p for p in running(self.airflow) if any(f"jobs/{job}.py" in word for word in words_of(p))]

    def pids_of(self, worker: str) -> set[int]:
        """The processes of a worker."""
        return {process.pid for process in members(self.servers.spark.find(worker))}

    def restart_workers(self) -> None:
        """Starts workers that were killed again, in their folders."""
        known = {one.name for one in self.servers.spark.register.read()}
        for name in WORKERS:
            if name not in known:
                self.servers.spark.start_worker(name)

    def wait_for_tasks(self, job: str) -> list[psutil.Process]:
        """Waits until tasks of the job run. Returns the executors."""
        found: list[psutil.Process] = []

        def begun() -> bool:
            found[:] = self.executors(job)
            return bool(found)

        wait_until(begun, 300, 0.2)
        return found

    @contextmanager
    def server_gone(self) -> Iterator[None]:
        """Within this context nobody answers: the server is killed, and its address refuses connections."""
        register = Register(self.servers.root / "cluster.json")
        [started] = [one for one in register.read() if one.name == "s3"]
        self.proxy.leave()
        os.kill(started.pid, signal.SIGKILL)
        register.forget(started)
        try:
            yield
        finally:
            self.servers.server.start(register, Path(started.log))
            self.proxy.listen()

    @contextmanager
    def server_busy(self) -> Iterator[None]:
        """Within this context each request gets 503."""
        self.proxy.busy = True
        try:
            yield
        finally:
            self.proxy.busy = False

    def find_left(self) -> list[str]:
        """Returns what is left over: claims, files of the store that nothing names, uploads, files of the workers."""
        self._end_dead_ingests()
        return [*self._find_claims(), *self._find_unnamed(), *self._find_uploads(), *self._find_scratch()]

    def _end_dead_ingests(self) -> None:
        """As `tidefold retain clean` does an hour later: an ingest that died early leaves an announcement."""
        later = datetime.now(UTC) + 2 * PATIENCE
        for run in find_abandoned(self.pipeline.store, later.isoformat()):
            recover_run(self.pipeline.store, run)

    def _find_claims(self) -> list[str]:
        states = {log: self.pipeline.ledger(log).read() for log in LOGS}
        return [f"claim of {log}: {s.open_attempt.run}" for log, s in states.items() if s.open_attempt]

    def _find_unnamed(self) -> list[str]:
        """Lists rows, segments and announcements that neither a manifest, a table nor a ledger names."""
        named = set[str]()
        for log in LOGS:
            state = self.pipeline.ledger(log).read()
            named |= {one.location.segment for one in state.change_sets} | set(state.garbage)
            for snapshot in state.snapshots:
                if snapshot.manifest and snapshot.state.value in ("COMPLETED", "SUBSUMED", "STAGED"):
                    files = read_manifest(self.pipeline.store, log, snapshot).files
                    named |= {file.name for file in files}
            named |= set(map(_name, self._open_table(log).file_uris()))
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix="store/")
        stored = [one["Key"].removeprefix("store/") for page in pages for one in page.get("Contents", ())]
        rows = [p for p in stored if p.endswith(".parquet") and "/_delta_log/" not in p and _name(p) not in named]
        changes = [p for p in stored if p.startswith("changelog/") and p not in named]
        return [f"unnamed {path}" for path in (*rows, *changes)]

    def _find_uploads(self) -> list[str]:
        uploads = self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ())
        return [f"open upload {one['Key']}" for one in uploads]

    def _find_scratch(self) -> list[str]:
        """Files of workers beside Spark's own, and scratch folders of drivers.

        Spark deletes its folders on a worker when an application ends, but not if the worker was killed.
        """
        spark = self.servers.spark.root
        kept = {"stdout", "stderr", "output.log"}
        found = [
            path
            for name in WORKERS
            for path in (spark / name).rglob("*")
            if path.is_file() and path.name not in kept and path.suffix not in (".jar", ".zip", ".crc")
            if not any(part.startswith(("spark-", "blockmgr-")) for part in path.relative_to(spark).parts)
        ]
        found += list((self.servers.root / "var").rglob("tidefold-p*"))
        found += list((self.servers.root / "var" / "results").glob("*"))
        found += list(self.servers.root.glob("local*"))
        return [f"file {path.relative_to(self.servers.root)}" for path in found]

    def wait_until_idle(self) -> None:
        """Waits until no application is active: executors delete their folders when they end."""
        wait_until(lambda: not self.servers.spark.active_apps(), 60, 0.5)
        wait_until(lambda: not any(map(self._executors_of, WORKERS)), 60, 0.5)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _has_python(executor: psutil.Process) -> bool:
    """Whether a Python worker below an executor exists: the daemon is its child, a worker is the daemon's."""
    with suppress(psutil.Error):
        return any("pyspark" in " ".join(words_of(p)) for daemon in executor.children() for p in daemon.children())
    return False


@contextmanager
def open_rig(root: Path, say: Any = print, buckets: int = 8, server: Server | None = None) -> Iterator[Rig]:
    """Starts all of it below a new folder, and stops it. `server`: another S3 server than versitygw."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    proxies: list[S3Proxy] = []

    def front(url: str) -> str:
        proxies.append(S3Proxy(url))
        return proxies[0].url

    before = dict(os.environ)
    try:
        servers = start_servers(root, sys.executable, say, front, server=server)
        path = root / "tidefold.yaml"
        logs = "".join(LOG.format(log=log, bucket=BUCKET, buckets=buckets if log == "items" else 1) for log in LOGS)
        path.write_text(CONFIG.format(bucket=BUCKET, settings=servers.settings) + logs)
        (root / "dags").mkdir()
        (root / "dags" / f"{DAG}.py").symlink_to(PROJECT / "dags" / f"{DAG}.py")
        airflow = start_airflow(servers, path, "", say, root / "dags", {**SELDOM, "TIDEFOLD_PRELOAD": "0"})
        # This process reads the store beside the proxy.
        os.environ.update({**servers.env, "AWS_ENDPOINT_URL": servers.server.url})
        client = open_client({**servers.env, "AWS_ENDPOINT_URL": servers.server.url})
        yield Rig(servers, proxies[0], airflow, open_pipeline(path), client)
    finally:
        stop_all(root, say)
        for proxy in proxies:
            proxy.leave()
        os.environ.clear()
        os.environ.update(before)


def wait(seconds: float) -> None:
    """Lets an outage last."""
    time.sleep(seconds)
