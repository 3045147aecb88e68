"""The commands of docker-compose.yaml as processes: an object store, its bucket, and the Spark server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from local_airflow.settings import PROJECT
from support.airflow_stack import wait_until
from support.compose import COMPOSE, SERVICES, prepare_compose
from support.s3_server import S3Server
from support.spark_events import read_jobs
from tidefold.config import load_config
from tidefold.spark.local_server import TOKEN_VARIABLE, find_running

TOKEN = "of-the-environment"


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    return prepare_compose(tmp_path)


@pytest.fixture
def env(prepared: Path) -> Iterator[dict[str, str]]:
    """Object store (moto), bucket and Spark server as the file starts them; the environment of a run."""
    server, config = S3Server(), prepared / "data" / "tidefold.yaml"
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "AWS_"))},
        **{name: str(value) for name, value in COMPOSE["x-store"].items() if "{" not in str(value)},
        "AWS_ACCESS_KEY_ID": "tidefold",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL": server.url,
        "PYTHONPATH": str(PROJECT / "include"),
        "TIDEFOLD_CONFIG": str(config),
        "TIDEFOLD_SPARK_C1": "1",
        TOKEN_VARIABLE: TOKEN,
    }
    spark = SERVICES["spark-connect"]
    try:
        bucket = SERVICES["object-store-init"]
        subprocess.run([*_python(bucket["entrypoint"]), *bucket["command"]], cwd=PROJECT, env=env, check=True)
        words = ["-m", "tidefold.cli", *spark["entrypoint"][1:], *spark["command"]]
        with (prepared / "spark.log").open("wb") as log:
            served = subprocess.Popen([sys.executable, *words], env=env, stdout=log, stderr=log)
        try:
            wait_until(lambda: bool((running := find_running(load_config(config))) and running.answers()), 90)
            yield env
        finally:
            served.terminate()
            served.wait(60)
    finally:
        server.stop()


def test_a_run_on_the_server_publishes_the_sample_into_the_object_store(
    prepared: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A1, A4: the sample of `docker/up`, by the commands of docker-compose.yaml."""
    call = [sys.executable, "-m", "tidefold.cli", "run", "branches", "--format", "json"]
    done = subprocess.run(call, env=env, cwd=prepared, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert [one["result"] for one in told["steps"]["confirm"]] == ["published"]
    jobs = read_jobs(prepared / "data" / "var" / "server")
    assert all(any(job.has(step, "branches") for job in jobs) for step in ("ingest", "materialize", "quality"))
    assert (prepared / "data" / "var" / "server" / "token").read_text() == TOKEN
    options = {"aws_endpoint": env["AWS_ENDPOINT_URL"], "aws_allow_http": "true"}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, env[name])
    assert len(DeltaTable("s3://tidefold/store/tables/branches", storage_options=options).to_pyarrow_table()) == 1


def _python(words: list[str]) -> list[str]:
    return [sys.executable, *words[1:]]
