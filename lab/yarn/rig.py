"""A YARN under test: two logs, on S3 or on a disk, and the rows that their tables must show."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster.rig import CONFIG, LOG, LOGS, Rig
from local_airflow.processes import Register, stop
from local_airflow.settings import PROJECT
from local_airflow.stack import LocalAirflow, down
from local_cluster.sample import open_client
from local_cluster.spark import make_cluster
from local_cluster.stack import Server, Servers, start_airflow
from local_cluster.versitygw import BUCKET, fetch_program, make_server
from local_cluster.yarn import YarnCluster
from support.airflow_stack import SELDOM, wait_until
from tidefold.wiring import open_pipeline

_SPARK = """\
spark:
  master: yarn
  above: 0B
  driver_memory: 640m
  ship_code: true
  python: {python}
  conf:
    spark.executor.memory: 512m
    spark.executor.instances: {executors}
    spark.yarn.jars: {jars}
"""
# An interpreter with the packages of this one, but for the version that one of them tells.
_OTHER = """\
#!/bin/sh
PYTHONPATH="{folder}:$PYTHONPATH" exec {python} "$@"
"""


@dataclass
class YarnRig:
    """What runs. `rig` has the logs, the rows that they must show, and Airflow if it was started."""

    root: Path
    yarn: YarnCluster
    rig: Rig

    def write_config(self, python: str = sys.executable, store: str = "") -> Path:
        """Writes a configuration. `store`: another place than S3, with landing folders of its own."""
        path = self.root / f"{Path(python).name}-{'disk' if store else 's3'}.yaml"
        settings = _SPARK.format(python=python, executors=1, jars=self.yarn.spark_jars)
        text = CONFIG.format(bucket=BUCKET, settings=settings)
        text += "".join(LOG.format(log=log, bucket=BUCKET, buckets=2) for log in LOGS)
        path.write_text(text.replace(f"s3://{BUCKET}", store) if store else text)
        return path

    def other_python(self) -> str:
        """Returns an interpreter whose pyarrow tells another version."""
        folder = self.root / "other"
        (folder / "pyarrow-1.2.dist-info").mkdir(parents=True, exist_ok=True)
        (folder / "pyarrow-1.2.dist-info" / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: pyarrow\nVersion: 1.2\n"
        )
        program = folder / "other"
        program.write_text(_OTHER.format(folder=folder, python=sys.executable))
        program.chmod(0o755)
        return str(program)

    @property
    def env(self) -> dict[str, str]:
        """The environment of a command. No Hadoop but this one."""
        return {**os.environ, **self.rig.servers.env, "HADOOP_CONF_DIR": str(self.yarn.settings)}

    def call(self, config: Path, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of tidefold to its end."""
        call = [str(PROJECT / "tidefold"), *words, "--config", str(config)]
        return subprocess.run(call, env=self.env, capture_output=True, text=True, check=False)

    def start(self, config: Path, *words: str) -> subprocess.Popen[str]:
        call = [str(PROJECT / "tidefold"), *words, "--config", str(config)]
        pipe = subprocess.PIPE
        return subprocess.Popen(call, env=self.env, stdout=pipe, stderr=pipe, text=True, start_new_session=True)

    def running(self) -> list[str]:
        ended = ("FINISHED", "FAILED", "KILLED")
        return [app["id"] for app in self.yarn.list_applications() if app["state"] not in ended]

    def wait_until_idle(self, seconds: float = 300) -> None:
        """Waits until no application runs."""
        wait_until(lambda: not self.running(), seconds, 1)

    def find_left(self) -> list[str]:
        """Returns what is left over: claims, and files that nothing names."""
        self.rig._end_dead_ingests()
        if any(self.rig.pipeline.ledger(log).find() is None for log in LOGS):
            return [f"file {entry.path}" for entry in self.rig.pipeline.store.list("changelog")]
        return [*self.rig._find_claims(), *self.rig._find_unnamed(), *self.rig._find_uploads()]

    def start_airflow(self, say: object) -> LocalAirflow:
        """Starts Airflow, whose connection names YARN."""
        config = self.write_config()
        dags = self.root / "dags"
        dags.mkdir(exist_ok=True)
        (dags / "tidefold_materialize.py").symlink_to(PROJECT / "dags" / "tidefold_materialize.py")
        spark = '{"conn_type": "spark", "host": "yarn"}'
        more = {**SELDOM, "AIRFLOW_CONN_SPARK_DEFAULT": spark, "HADOOP_CONF_DIR": str(self.yarn.settings)}
        return start_airflow(self.rig.servers, config, "", say, dags, more)  # type: ignore[arg-type]


def interrupt(process: subprocess.Popen[str]) -> None:
    """Has the effect of Ctrl-C, also on a command whose parent ignores that."""
    os.kill(process.pid, signal.SIGTERM)


@contextmanager
def open_rig(root: Path, say: object = print, server: Server | None = None) -> Iterator[YarnRig]:
    """Starts S3 and YARN below a new folder, and stops both, and Airflow. `server`: another S3 server."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    register = Register(root / "cluster.json")
    before = dict(os.environ)
    try:
        server = server or make_server(fetch_program(print), root / "s3")
        server.start(register, root / "log" / "s3.log")
        env = server.environment()
        yarn = YarnCluster(root / "yarn", env, register)
        yarn.root.mkdir()
        yarn.start()
        os.environ.update(env)
        # No Spark of its own is started.
        servers = Servers(root, server, make_cluster(root / "spark", env, register), env)
        made = YarnRig(root, yarn, Rig(servers, None, None, None, open_client(env)))  # type: ignore[arg-type]
        made.rig.pipeline = open_pipeline(made.write_config())
        yield made
    finally:
        down(root, say)  # type: ignore[arg-type]
        for started in reversed(register.read()):
            stop(started)
            register.forget(started)
        os.environ.clear()
        os.environ.update(before)
