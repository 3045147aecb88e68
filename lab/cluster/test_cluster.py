"""The short form of `make test-cluster`: one run through Airflow that loses a worker while S3 answers 503.

A master and two workers in folders of their own, which have no path to this code, and a real S3 server if there is one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.rig import open_rig, wait
from local_airflow.processes import Register
from local_cluster.versitygw import BUCKET, find_program
from support.s3_server import ENVIRONMENT, S3Bucket, S3Server

# Less than the client waits.
_BUSY_SECONDS = 5


class MotoServer:
    """The tests' S3 server, where nobody has built versitygw (`make cluster` does)."""

    def __init__(self) -> None:
        self._server = S3Server()
        self.url = self._server.url

    def environment(self, url: str | None = None) -> dict[str, str]:
        kept = {name: value for name, value in ENVIRONMENT.items() if name != "AWS_MAX_ATTEMPTS"}
        return {**kept, "AWS_ENDPOINT_URL": url or self.url, "AWS_ALLOW_HTTP": "true"}

    def start(self, register: Register, log: Path) -> None:
        S3Bucket(self._server, BUCKET).client.create_bucket(Bucket=BUCKET)

    def stop(self) -> None:
        self._server.stop()


@pytest.fixture
def server() -> Iterator[MotoServer | None]:
    """None: the cluster starts versitygw."""
    moto = None if find_program() else MotoServer()
    yield moto
    if moto:
        moto.stop()


def test_a_worker_is_killed_and_s3_is_busy(tmp_path: Path, server: MotoServer | None) -> None:
    with open_rig(tmp_path / "rig", buckets=4, server=server) as rig:
        chance = random.Random(1)
        for log in ("items", "notes"):
            rig.change(log, 2_000, chance)
        run = rig.trigger()
        rig.wait_for_tasks("ingest")
        with rig.server_busy():
            wait(_BUSY_SECONDS)
        rig.wait_for_tasks("materialize")
        rig.servers.spark.kill("one")
        run.green()
        assert rig.proxy.refused
        assert rig.find_wrong() == []
        rig.restart_workers()
        rig.wait_until_idle()
        assert rig.find_left() == []
        # The package travelled with the jobs.
        assert list(rig.servers.spark.folder("two").glob("work/app-*/*/tidefold-*.zip"))
