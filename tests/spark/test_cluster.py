"""A standalone cluster whose workers have no path to this code, and a store and landed files in S3.

The package travels with the job (`spark.ship_code`), and a worker is killed while a job works.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from local_airflow.ports import free_port
from support.airflow_stack import wait_until
from support.pipelines import table_rows
from support.s3_server import S3Bucket
from tidefold.operations.pipeline import Pipeline
from tidefold.wiring import open_pipeline

CONFIG = """
version: 1
store: {store}
spark:
  master: "{master}"
  above: 0B
  ship_code: true
  conf: {{spark.executor.memory: 512m, spark.executor.cores: 1, spark.speculation: true}}
logs:
  accounts:
    key: [id]
    buckets: 4
    order: [seq]
    source: {{format: csv, path: {landing}}}
    columns: {{id: int, seq: long, text: string}}
"""


@dataclass
class Cluster:
    """A master and its workers, each in a folder of its own.

    page: port of the master's page.
    """

    root: Path
    master: str
    page: int
    env: dict[str, str]
    processes: dict[str, subprocess.Popen[bytes]]

    def start(self, name: str, kind: str, *words: str) -> None:
        folder = self.root / name
        folder.mkdir()
        with (folder / "output").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [str(Path(sys.executable).with_name("spark-class")), f"org.apache.spark.deploy.{kind}", *words],
                env=self.env,
                cwd=folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """Ends a process and its children without a warning."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def describe(self) -> Any:
        """What the master's page knows; an empty answer before it is up."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.page}/json/", timeout=5) as answer:
                return json.load(answer)
        except OSError:
            return {"aliveworkers": -1}


@pytest.fixture
def cluster(tmp_path: Path, s3: S3Bucket) -> Iterator[Cluster]:
    """Two workers. What a driver knows of this code is not in their environment."""
    port, page = free_port(), free_port()
    hidden = ("SPARK_", "PYTHON", "PYSPARK_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    env |= {"SPARK_LOCAL_IP": "127.0.0.1", "PATH": f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"}
    made = Cluster(tmp_path, f"spark://127.0.0.1:{port}", page, env, {})
    try:
        made.start("master", "master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page))
        wait_until(lambda: made.describe()["aliveworkers"] == 0, 120)
        for name in ("one", "two"):
            made.start(name, "worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir", "work", made.master)
        wait_until(lambda: made.describe()["aliveworkers"] == 2, 120)
        yield made
    finally:
        for name in list(made.processes):
            made.kill(name)


@pytest.fixture
def pipeline(tmp_path: Path, s3: S3Bucket, cluster: Cluster) -> Pipeline:
    path = tmp_path / "tidefold.yaml"
    landing = f"s3://{s3.name}/landing/accounts"
    path.write_text(CONFIG.format(store=s3.address, master=cluster.master, landing=landing))
    return open_pipeline(path)


def land(s3: S3Bucket, number: int, rows: dict[int, str]) -> None:
    text = "id,seq,text\n" + "".join(f"{key},{number},{value}\n" for key, value in rows.items())
    s3.client.put_object(Bucket=s3.name, Key=f"landing/accounts/{number}.csv", Body=text.encode())


def start_run(pipeline: Pipeline) -> subprocess.Popen[str]:
    call = [sys.executable, "-m", "tidefold.cli", "run", "--config", str(pipeline.config.path)]
    env = {**os.environ, "TIDEFOLD_SPARK_C1": "1"}
    return subprocess.Popen(call, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for(run: subprocess.Popen[str]) -> None:
    output, _ = run.communicate()
    assert run.returncode == 0, output


def test_workers_without_the_code_fold_and_one_of_them_is_killed(
    pipeline: Pipeline, cluster: Cluster, s3: S3Bucket
) -> None:
    rows = {key: f"row {key}" for key in range(200)}
    land(s3, 1, rows)
    wait_for(start_run(pipeline))
    assert table_rows(pipeline) == rows
    assert list(cluster.root.glob("*/work/app-*/*/tidefold-*.zip"))

    changed = {key: f"new {key}" for key in range(100, 300)}
    land(s3, 2, changed)
    run = start_run(pipeline)
    wait_until(lambda: bool(cluster.describe().get("activeapps")), 120)
    cluster.kill("one")
    wait_for(run)
    assert table_rows(pipeline) == rows | changed
    # What the killed worker wrote belongs to no snapshot.
    assert pipeline.ledger("accounts").read().open_attempt is None
