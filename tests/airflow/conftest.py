"""One real Airflow for the whole tier: Postgres, scheduler, dag-processor, api-server, spark-submit."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from airflow_stack import Scene
from demo.pipeline import land, prepare
from local_airflow.settings import PROJECT, Request
from local_airflow.stack import down, up
from tidefold.wiring import open_pipeline

# Importing Airflow makes a folder; in this process too it must not be the user's.
os.environ["AIRFLOW_HOME"] = str(PROJECT / "var" / "pytest")


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Airflow over the demo's pipeline with the first phase landed; the scheduler makes a run every 20 seconds."""
    root = tmp_path_factory.mktemp("stack")
    config = prepare(root)
    land(config, "phase1")
    airflow = up(Request(root, config, "* * * * * */20", quick_spark=True), print)
    scene = Scene(airflow, open_pipeline(config))
    started = []
    try:
        yield scene
        started = list(scene.processes())
        assert started
    finally:
        down(root, print)
    assert not [p for p in started if p.is_running() and p.status() != "zombie"]
