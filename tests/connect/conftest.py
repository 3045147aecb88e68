"""One Spark Connect server for the tier, and one session there: a process has either that or a session of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.connect_server import TOKEN_VARIABLE, ConnectProcess
from tidefold.compute.connect_session import ConnectServer, close_connected, open_connected
from tidefold.installation import find_python_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectProcess]:
    path = os.pathsep.join([find_python_path() or "", str(Path(__file__).parents[1])])
    process = ConnectProcess(tmp_path_factory.mktemp("server"), path)
    os.environ[TOKEN_VARIABLE] = process.token
    try:
        process.wait()
        yield process
    finally:
        process.stop()


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the id of the session is stored."""
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture
def spark(server: ConnectProcess, scratch: Path) -> Iterator[SparkSession]:
    """The session, which stays on the server: each test connects to it again."""
    yield open_connected(ConnectServer(server.address, server.address, scratch))
    close_connected()
