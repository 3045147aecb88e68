"""One Spark Connect server for the tier, and one session there: a process has either that or a session of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.pipelines import make_pipeline
from tidefold.compute.connect_session import ConnectServer, close_connected, open_connected
from tidefold.config import Config
from tidefold.spark import local_server, submit
from tidefold.spark.local_server import TOKEN_VARIABLE, LocalServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def server_config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """The configuration beside which the server is started."""
    return make_pipeline(tmp_path_factory.mktemp("the server")).config


@pytest.fixture(scope="session")
def server(server_config: Config) -> Iterator[LocalServer]:
    """What `tidefold spark start` starts. Its Python workers also import from the tests."""
    path = os.pathsep.join([submit.find_python_path() or "", str(Path(__file__).parents[1])])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submit, "find_python_path", lambda: path)
        made = local_server.start(server_config, quick=True)
        patch.setenv(TOKEN_VARIABLE, made.token)
        try:
            yield made
        finally:
            assert local_server.stop(server_config)


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the id of the session is stored."""
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture
def spark(server: LocalServer, scratch: Path) -> Iterator[SparkSession]:
    """The session, which stays on the server: each test connects to it again."""
    yield open_connected(ConnectServer(server.address, server.address, scratch))
    close_connected()
