"""The commands of docker-compose.yaml as processes of this machine: an object store, and a Spark master and worker."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from local_airflow.settings import PROJECT
from support.airflow_stack import wait_until
from support.compose import COMPOSE, SERVICES, prepare_compose
from support.s3_server import S3Server
from tidefold.spark.local_server import free_port


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    return prepare_compose(tmp_path)


@pytest.fixture
def cluster(prepared: Path) -> Iterator[dict[str, str]]:
    """Object store (moto), bucket, Spark master and worker as the file starts them; the environment of a run."""
    server, port, page = S3Server(), free_port(), free_port()
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "AWS_"))},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        **{name: str(value) for name, value in COMPOSE["x-store"].items() if "{" not in str(value)},
        "AWS_ACCESS_KEY_ID": "tidefold",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL": server.url,
        **SERVICES["spark-master"]["environment"],
        "PYTHONPATH": str(PROJECT / "include"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    ports = {
        "7077": str(port),
        "8081": str(page),
        "spark-master": "127.0.0.1",
        "spark-master:7077": f"127.0.0.1:{port}",
    }
    started: list[subprocess.Popen[bytes]] = []
    try:
        bucket = SERVICES["object-store-init"]
        subprocess.run([*_python(bucket["entrypoint"]), *bucket["command"]], cwd=PROJECT, env=env, check=True)
        for name in ("spark-master", "spark-worker"):
            words = [
                re.sub("|".join(sorted(ports, key=len, reverse=True)), lambda m: ports[m[0]], word)
                for word in _words(name)
            ]
            log = (prepared / f"{name}.log").open("wb")
            started.append(
                subprocess.Popen(words, env=env, cwd=prepared, stdout=log, stderr=log, start_new_session=True)
            )
            wait_until(lambda wanted=name: _up(page, wanted), 60)
        yield {**env, "MASTER": f"spark://127.0.0.1:{port}"}
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)
        server.stop()


def test_a_run_on_the_cluster_publishes_the_sample_into_the_object_store(
    prepared: Path, cluster: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A1, A4: the sample of `docker/up`, by the commands of docker-compose.yaml."""
    config = prepared / "data" / "tidefold.yaml"
    config.write_text(config.read_text().replace("spark://spark-master:7077", cluster["MASTER"]))
    env = {**cluster, "TIDEFOLD_DRIVER_HOST": "127.0.0.1", "TIDEFOLD_SPARK_C1": "1"}
    call = [sys.executable, "-m", "tidefold.cli", "run", "branches", "--config", str(config), "--format", "json"]
    done = subprocess.run(call, env=env, cwd=prepared, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert [one["result"] for one in told["steps"]["confirm"]] == ["published"]
    options = {"aws_endpoint": cluster["AWS_ENDPOINT_URL"], "aws_allow_http": "true"}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, cluster[name])
    assert len(DeltaTable("s3://tidefold/store/tables/branches", storage_options=options).to_pyarrow_table()) == 1


def _python(words: list[str]) -> list[str]:
    return [sys.executable, *words[1:]]


def _words(service: str) -> list[str]:
    found = SERVICES[service]
    program = Path(sys.executable).with_name(found["entrypoint"][0])
    return [str(program), *found["entrypoint"][1:], *found["command"]]


def _up(page: int, service: str) -> bool:
    """The master answers; the worker is known to it."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=5) as answer:
            told = json.load(answer)
    except OSError:
        return False
    return service == "spark-master" or int(told["aliveworkers"]) > 0
