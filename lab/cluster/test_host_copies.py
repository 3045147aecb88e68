"""Local copies on the hosts of a cluster, while a worker and an executor are killed. L5, L6, L7; I15, I17, I35.

Two workers with addresses and folders of their own stand for two machines, a shared disk for the store. Each is killed
in the middle of a fold or of a restore. Afterwards the table is compared with a plain dict, and the disks with what the
ledger needs.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from local_airflow.processes import Register, members, stop
from local_airflow.settings import PROJECT
from local_cluster.spark import WORKERS, SparkCluster, make_cluster
from support.airflow_stack import wait_until, words_of
from support.landing import record, text_of
from support.pipelines import judge_all
from tidefold.compute.runners import find_executors, on_spark
from tidefold.domain.log_state import SnapshotKind
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.ledger import read_manifest
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.local_copies.manage import retain_local
from tidefold.operations.requests import Fold, Restore, SnapshotRequest
from tidefold.operations.snapshot.compact_log import take_tail
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.storage.local_copies.host_copies import read_hosts
from tidefold.wiring import open_pipeline

LOG = "items"
BUCKETS = 8
CONFIG = """\
version: 1
store: {root}/store
spark: {{master: "{master}"}}
local: {{mode: files, path: {root}/local}}
retention: {{snapshots: 2}}
logs:
  items:
    source: {{format: debezium-json, connector: postgresql, path: landing}}
    key: [id]
    columns: {{id: int, text: string}}
    buckets: {buckets}
"""


@dataclass
class Hosts:
    """A cluster, a session on it, a pipeline, and the rows that its table must show."""

    root: Path
    cluster: SparkCluster
    spark: SparkSession
    pipeline: Pipeline
    chance: random.Random = field(default_factory=lambda: random.Random(38))
    rows: dict[int, str] = field(default_factory=dict)
    _offset: int = 0

    def take(self, count: int = 2_000) -> None:
        """Lands changes of random keys, of ten one is a delete, and ingests them on the cluster."""
        records = []
        for offset in range(self._offset, self._offset + count):
            key, op = self.chance.randrange(10_000), "d" if self.chance.random() < 0.1 else "c"
            one = record(offset, key, op, topic=LOG)
            if op == "d":
                self.rows.pop(key, None)
            else:
                one["value"]["after"]["text"] = self.rows[key] = f"{offset} {self.chance.getrandbits(64):x}"
            records.append(one)
        path = self.root / "landing" / f"{LOG}+0+{self._offset:010d}.jsonl"
        path.write_bytes(text_of(records))
        self._offset += count
        ingest(self.pipeline, [LOG], on_spark(self.spark))

    def make(self, run: str, strike: Callable[[], object] | None = None, request: SnapshotRequest | None = None) -> Any:
        """Makes and publishes a snapshot, strikes while its tasks run, compares the rows. Returns what was read."""
        outcomes: list[Any] = []

        def work() -> None:
            outcomes.extend(materialize(self.pipeline, [LOG], request or Fold(run), on_spark(self.spark)))

        thread = threading.Thread(target=work)
        thread.start()
        if strike:
            wait_until(self._is_midway, 300, 0.01)
            strike()
        thread.join(600)
        [outcome] = outcomes
        assert outcome.status == "staged", outcome
        judge_all(self.pipeline, LOG)
        confirm(self.pipeline, LOG, Confirmation(run=run))
        shown = DeltaTable(self.pipeline.store.uri(LogPaths(LOG).table)).to_pyarrow_table().to_pylist()
        assert {row["id"]: row["text"] for row in shown} == self.rows
        assert len(shown) == len(self.rows)
        print(run, outcome.facts["read"], outcome.facts["local"])
        return outcome.facts["read"]

    def _is_midway(self) -> bool:
        """Whether a task has ended and another runs."""
        tracker = self.spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(
            stage and stage.numTasks > 1 and stage.numCompletedTasks and stage.numActiveTasks for stage in stages
        )

    def wait_for_executors(self) -> None:
        wait_until(lambda: len(find_executors(self.spark.sparkContext)) == len(WORKERS), 120, 0.5)

    def kill_worker(self, name: str) -> None:
        self.cluster.kill(name)

    def kill_executor(self, name: str) -> None:
        for process in members(self.cluster.find(name)):
            if "CoarseGrainedExecutor" in " ".join(words_of(process)):
                process.kill()

    def find_copies(self, host: str) -> set[str]:
        """Returns the names of the files on a host, without marks."""
        paths = self.root.glob(f"local/*/_hosts/{host}/**/*")
        return {path.name for path in paths if path.is_file()} - {"visited"}

    def find_needed(self) -> set[str]:
        """Returns the names of the copies that the newest snapshot, its base and the log may have on a host."""
        state = self.pipeline.ledger(LOG).read()
        names = {one.location.segment.rpartition("/")[2] for one in state.change_sets}
        # A tail has no files: its base is that of a restore to it.
        folded = [one for one in state.snapshots if one.manifest and one.kind is not SnapshotKind.TAIL]
        read = {one.id: read_manifest(self.pipeline.store, LOG, one) for one in folded}
        newest = read[max(read)]
        base = max((id_ for id_ in read if newest.base is not None and id_ <= newest.base), default=None)
        for manifest in (newest, *([read[base]] if base is not None else [])):
            names |= {file.sha256 for file in manifest.files}
        return names

    def check_left(self, restored: bool = False) -> None:
        """Each file on a host is needed, or `retain clean --local` lists its host; each host with files has a record.

        A restore removes nothing: older files are its other ways to the same rows. The next fold does.
        Unfinished files of a task that was killed are removed by the next fold that has a task there.
        """
        listed = {one["host"] for one in retain_local(self.pipeline, [LOG])[0].facts["hosts"]}
        recorded = {one.host for one in read_hosts(self.pipeline.store)}
        for host in WORKERS:
            copies = self.find_copies(host)
            assert host in recorded or not copies
            left = {name for name in copies - self.find_needed() if ".new" not in name and not restored}
            assert host in listed or not left, (host, listed, len(left), len(copies))


def begin(cluster: SparkCluster) -> SparkSession:
    python = f"{PROJECT}/include:{PROJECT}/plugins"
    settings = {
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executorEnv.PYTHONPATH": python,
        "spark.ui.enabled": "false",
        # A killed executor is no fault of a task.
        "spark.excludeOnFailure.enabled": "false",
        # A busy machine is no reason to leave a preferred host.
        "spark.locality.wait": "60s",
    }
    builder = SparkSession.builder.master(cluster.master).appName("hosts")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    register = Register(tmp_path / "cluster.json")
    cluster = make_cluster(tmp_path / "spark", {}, register)
    session = None
    try:
        cluster.start_master()
        for name in WORKERS:
            cluster.start_worker(name)
        (tmp_path / "landing").mkdir()
        config = tmp_path / "tidefold.yaml"
        config.write_text(CONFIG.format(root=tmp_path, master=cluster.master, buckets=BUCKETS))
        session = begin(cluster)
        yield Hosts(tmp_path, cluster, session, open_pipeline(config))
    finally:
        if session:
            session.stop()
        for entry in reversed(register.read()):
            with suppress(psutil.Error):
                stop(entry)


def test_a_worker_and_an_executor_die_while_they_fold_and_restore(hosts: Hosts) -> None:
    hosts.wait_for_executors()
    for number in (1, 2):
        hosts.take()
        hosts.make(f"run-{number}")
    hosts.take()
    read = hosts.make("settled")
    # Each base file is on the host that made it. Of the change sets each process reads one.
    assert (read["local"]["files"] >= BUCKETS, read["failed"]) == (True, []), read
    everything = read["local"]["bytes"] + read["store"]["bytes"]

    hosts.take()
    read = hosts.make("executor", lambda: hosts.kill_executor("one"))
    hosts.check_left()
    hosts.take()
    read = hosts.make("worker", lambda: hosts.kill_worker("two"))
    # What the dead host had, and nothing else, came from the store.
    assert 0 < read["store"]["bytes"] < everything, read
    assert read["local"]["files"] > 0
    hosts.check_left()
    hosts.cluster.start_worker("two")
    hosts.wait_for_executors()

    hosts.take()
    tail = take_tail(hosts.pipeline, LOG, "tail").snapshot
    assert tail
    for number, strike in enumerate((lambda: hosts.kill_executor("two"), lambda: hosts.kill_worker("one"))):
        run = f"back-{number}"
        read = hosts.make(run, strike, Restore(run, RestorePoint(tail, RestoreMode.REPLAY)))
        assert read["local"]["bytes"] > 0, read
        hosts.check_left(restored=True)
    hosts.cluster.start_worker("one")
    hosts.wait_for_executors()

    for number in (1, 2):
        hosts.take()
        read = hosts.make(f"after-{number}")
    assert read["local"]["files"] >= BUCKETS, read
    hosts.check_left()
    assert retain_local(hosts.pipeline, [LOG])[0].facts["hosts"] == []
    assert not [name for host in WORKERS for name in hosts.find_copies(host) if ".new" in name]
