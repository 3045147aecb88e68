"""Airflow's tasks on a Spark Connect server: they start no JVM, and the tables are those of the source."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from local_airflow.settings import PROJECT, Request
from local_airflow.stack import down, up
from support import airflow_shop as small
from support.airflow_stack import SELDOM, java_started
from support.connect_server import TOKEN_VARIABLE, ConnectProcess
from tidefold.wiring import open_pipeline


@pytest.fixture(scope="module")
def shop(server: ConnectProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[small.Shop]:
    root = tmp_path_factory.mktemp("shop")
    config = small.prepare(root)
    # Everything on the server, however small; its Python imports the package from here.
    spark = f"spark: {{above: 0B, master: '{server.address}', ship_code: false}}"
    text = config.read_text().replace("spark: {above: 64MB}", spark)
    # Executors would write the copies to their own disks.
    config.write_text(text.replace("local: {mode: files, path: local}\n", ""))
    dags = root / "dags"
    dags.mkdir()
    (dags / "tidefold_materialize.py").symlink_to(PROJECT / "dags" / "tidefold_materialize.py")
    airflow = up(Request(root, config, "", dags=dags, more={**SELDOM, TOKEN_VARIABLE: server.token}), print)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
        try:
            yield small.Shop(airflow, open_pipeline(config), unused)
        finally:
            down(root, print)


def test_a_run_and_a_refused_one_use_the_server(shop: small.Shop) -> None:
    shop.change("items", {1: "one", 2: "two"})
    shop.change("notes", {7: "seven"})
    with java_started(shop.airflow) as java:
        run = shop.trigger().green()
    assert java == []
    for step in ("ingest", "materialize", "quality"):
        assert {one["engine"] for one in run.result(step).values()} == {"spark"}
    assert shop.all_equal()
    shop.suite("items", small.FAILS)
    shop.change("items", {1: "wrong"})
    before = shop.shown("items")
    shop.trigger().ended()
    assert shop.shown("items") == before
