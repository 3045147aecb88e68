"""One PostgreSQL for all tests of this folder, a database for each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from torture.servers import Postgres, PostgresSession


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")
    running = Postgres(tmp_path_factory.mktemp("postgres"))
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def database(server: Postgres, request: pytest.FixtureRequest) -> Iterator[PostgresSession]:
    """A new database, whose connection is `shop` in the environment."""
    name = request.module.__name__.rpartition(".")[2]
    session = server.session("")
    session.execute(f'create database "{name}"')
    session.close()
    with pytest.MonkeyPatch.context() as patch:
        address = f"postgres://{server.user}@127.0.0.1:{server.port}/{name}"
        patch.setenv("AIRFLOW_CONN_SHOP", address)
        opened = server.session(name)
        yield opened
        opened.close()
