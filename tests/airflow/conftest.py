"""One real Airflow for the whole tier: Postgres, scheduler, dag-processor, api-server, spark-submit."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from local_airflow.settings import PROJECT, Request
from local_airflow.stack import down, up
from support import airflow_shop as small
from support.airflow_stack import SELDOM, Scene
from support.browser import Browser, chromium
from support.webhook import webhook
from tidefold.cli.sample import land, prepare
from tidefold.wiring import open_pipeline

# Importing Airflow makes a folder; in this process too it must not be the user's.
os.environ["AIRFLOW_HOME"] = str(PROJECT / "var" / "pytest")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs `scene` comes last: it lives until the end, and its scheduler begins a run every 20 seconds."""
    items.sort(key=lambda item: "scene" in getattr(item, "fixturenames", ()))


_USERS = (("admin", "admin"), ("vera", "viewer"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium; its pages log in by `browser.login`."""
    yield from chromium()


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Airflow over the demo's pipeline with the first phase landed; the scheduler makes a run every 20 seconds."""
    root = tmp_path_factory.mktemp("stack")
    config = prepare(root)
    land(config, "phase1")
    request = Request(root, config, "* * * * * */20", users=_USERS, quick_spark=True, preloaded=True, more=SELDOM)
    airflow = up(request, print)
    scene = Scene(airflow, open_pipeline(config))
    started = []
    try:
        yield scene
        started = list(scene.processes())
        assert started
    finally:
        down(root, print)
    assert not [p for p in started if p.is_running() and p.status() != "zombie"]


@pytest.fixture(scope="module")
def hook() -> Iterator[tuple[str, list[Any]]]:
    """The address of a webhook, and what it was told."""
    with webhook() as made:
        yield made


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, hook: tuple[str, list[Any]]) -> Iterator[small.Shop]:
    """Airflow over a small pipeline, for stories that begin runs themselves; a failed gate waits for a person."""
    root = tmp_path_factory.mktemp("shop")
    config = small.prepare(root)
    dags = root / "dags"
    dags.mkdir()
    for file in [*(PROJECT / "dags").glob("*.py"), *(PROJECT / "tests" / "airflow" / "dags").glob("*.py")]:
        (dags / file.name).symlink_to(file)
    statsd = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    statsd.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    statsd.bind(("127.0.0.1", 0))
    statsd.setblocking(False)
    more = {
        **SELDOM,
        "TIDEFOLD_APPROVAL_HOURS": "1",
        "TIDEFOLD_ALARM_CONN": "hook",
        "AIRFLOW_CONN_HOOK": json.dumps({"conn_type": "http", "host": hook[0]}),
        "AIRFLOW__METRICS__STATSD_ON": "True",
        "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
        "AIRFLOW__METRICS__STATSD_PORT": str(statsd.getsockname()[1]),
        "AIRFLOW__METRICS__METRICS_ALLOW_LIST": "tidefold",
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
            {"type": "file", "log_file_path": str(root / small.LINEAGE), "append": True}
        ),
        # How soon a task is missed whose worker was killed.
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "15",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "2",
    }
    airflow = up(Request(root, config, "", dags=dags, quick_spark=True, preloaded=True, more=more), print)
    try:
        yield small.Shop(airflow, open_pipeline(config), statsd, hook[1])
    finally:
        down(root, print)
