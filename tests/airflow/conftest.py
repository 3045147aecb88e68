"""One real Airflow for the whole tier: Postgres, scheduler, dag-processor, triggerer, api-server, a warm Spark.

Each run in it costs 15 to 40 s. What needs no scheduler uses `support.dag_test`.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from local_airflow.settings import PROJECT, Request
from local_airflow.stack import down, up
from support import airflow_shop as small
from support.airflow_shop import MATERIALIZE, FirstRun, Ran, Shop, wait_for
from support.airflow_stack import SELDOM, java_started, running
from support.browser import Browser, chromium
from support.spark_events import read_jobs
from tidefold.wiring import open_pipeline

# Importing Airflow makes a folder; in this process too it must not be the user's.
os.environ["AIRFLOW_HOME"] = str(PROJECT / "var" / "pytest")


# The order of the stories in the one Airflow: the first one begins with an empty store.
_STORIES = ("test_scheduled_life.py", "test_killed_task.py", "test_approval.py", "test_page.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs the running Airflow comes last, because it lives until the end."""

    def place(item: pytest.Item) -> int:
        if "shop" not in getattr(item, "fixturenames", ()):
            return 0
        return 1 + (_STORIES.index(item.path.name) if item.path.name in _STORIES else len(_STORIES))

    items.sort(key=place)


_USERS = (("admin", "admin"), ("vera", "viewer"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium; its pages log in by `browser.login`."""
    yield from chromium()


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Airflow over a small pipeline; all its DAGs are paused, and the main one is due once a year."""
    root = tmp_path_factory.mktemp("shop")
    config = small.prepare(root)
    dags = root / "dags"
    dags.mkdir()
    for file in [*(PROJECT / "dags").glob("*.py"), PROJECT / "tests" / "airflow" / "dags" / "shop_waiting.py"]:
        (dags / file.name).symlink_to(file)
    statsd = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    statsd.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    statsd.bind(("127.0.0.1", 0))
    statsd.setblocking(False)
    more = {
        **SELDOM,
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
    request = Request(
        root,
        config,
        "0 0 1 1 *",
        dags=dags,
        users=_USERS,
        paused=True,
        quick_spark=True,
        warm_spark=True,
        more=more,
    )
    started = []
    made = Shop(open_pipeline(config), airflow=up(request, print), statsd=statsd)
    try:
        yield made
        started = list(running(made.airflow))
        assert started
    finally:
        down(root, print)
        statsd.close()
    assert not [p for p in started if p.is_running() and p.status() != "zombie"]


@pytest.fixture(scope="session")
def first(shop: Shop) -> FirstRun:
    """The scheduler's own run over the first changes, all of it on Spark; everything is published."""
    day = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=4)
    shop.change("items", dict.fromkeys(range(20), "a"), at=day)
    shop.change("notes", {1: "x"}, at=day)
    api = shop.airflow.api
    with java_started(shop.airflow) as java:
        api.set_paused(MATERIALIZE, False)
        wait_for(lambda: bool(api.runs(MATERIALIZE)), lambda: "the scheduler began no run")
        [begun] = api.runs(MATERIALIZE)
        run = Ran(shop, MATERIALIZE, begun["dag_run_id"]).green()
    assert shop.all_equal()
    events = {log: shop.events(log) for log in small.LOGS}
    return FirstRun(
        run, day, java, read_jobs(shop.server.folder), shop.ledgers(), events, dict(shop.metrics()), shop.lineage()
    )
