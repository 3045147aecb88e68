"""The session on a Spark Connect server: what it shares, what it refuses by name, and what it tells of an outage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.spark_work import double
from tidefold.compute.connect_session import (
    ConnectServer,
    close_connected,
    find_connected,
    find_outage,
    interrupt_connected,
    mark_operations,
    open_connected,
)
from tidefold.compute.runners import on_spark
from tidefold.errors import InvalidInputError, UnavailableError
from tidefold.spark.local_server import LocalServer, free_port


@pytest.fixture
def place(server: LocalServer, tmp_path: Path) -> ConnectServer:
    return ConnectServer(server.address, server.address, tmp_path)


@pytest.fixture(autouse=True)
def _closed() -> None:
    close_connected()


def test_the_next_command_finds_the_session_and_other_settings_get_another(place: ConnectServer) -> None:
    first = open_connected(place).session_id
    close_connected()
    assert find_connected() is None
    assert open_connected(place).session_id == first
    close_connected()
    assert open_connected(replace(place, conf={"spark.sql.ansi.enabled": "false"})).session_id != first
    close_connected()


def test_a_session_that_the_server_ended_is_an_error_and_the_next_command_gets_a_new_one(place: ConnectServer) -> None:
    session = open_connected(place)
    assert on_spark(session)(double, ["a"]) == ["aa"]
    session.client.release_session()
    with pytest.raises(UnavailableError) as lost:
        on_spark(session)(double, ["a"])
    assert (lost.value.code, lost.value.transient) == ("CONNECT_SESSION_LOST", True)
    close_connected()
    assert on_spark(open_connected(place))(double, ["b"]) == ["bb"]
    close_connected()


@pytest.mark.parametrize(
    "words",
    [
        "(java.lang.IllegalStateException) Cannot call methods on a stopped SparkContext.",
        "[INTERNAL_ERROR] No active or default Spark session found SQLSTATE: XX000",
        'status = StatusCode.UNKNOWN details = "Application error processing RPC"',
    ],
)
def test_what_operations_say_while_the_server_is_stopped_is_an_outage(place: ConnectServer, words: str) -> None:
    """Heard from a server that got SIGTERM beside four threads that read: none of it is a fault of the table."""
    outage = find_outage(RuntimeError(words), place)
    assert outage
    assert (outage.code, outage.transient) == ("CONNECT_UNREACHABLE", True)


def test_what_only_the_server_can_set_is_refused_by_name(place: ConnectServer) -> None:
    with pytest.raises(InvalidInputError, match=r"spark\.executor\.memory") as refused:
        open_connected(replace(place, conf={"spark.executor.memory": "3g"}))
    assert refused.value.code == "CONNECT_SETTING"
    assert find_connected() is None


def test_a_server_that_is_not_there_is_an_error_without_the_token(tmp_path: Path) -> None:
    shown = f"sc://127.0.0.1:{free_port()}"
    with pytest.raises(UnavailableError) as gone:
        open_connected(ConnectServer(f"{shown}/;token=hunter2", shown, tmp_path))
    assert gone.value.code == "CONNECT_UNREACHABLE"
    assert shown in gone.value.message
    assert "hunter2" not in f"{gone.value} {gone.value.__cause__}"


def test_a_token_without_tls_is_explained(server: LocalServer, tmp_path: Path) -> None:
    address = server.address.replace("localhost", "127.0.0.1")
    with pytest.raises(UnavailableError) as gone:
        open_connected(ConnectServer(address, address, tmp_path))
    assert gone.value.code == "CONNECT_UNREACHABLE"
    assert "TLS" in gone.value.hint


def test_a_wrong_token_is_refused_and_not_repeated(place: ConnectServer) -> None:
    with pytest.raises(InvalidInputError) as refused:
        open_connected(replace(place, address=f"{place.address}/;token=hunter2"))
    assert refused.value.code == "CONNECT_DENIED"
    assert "hunter2" not in f"{refused.value} {refused.value.__cause__}"


def test_an_interrupt_is_for_the_operations_of_this_process(place: ConnectServer) -> None:
    session = open_connected(place)
    mark_operations()
    [tag] = session.getTags()
    asked = []
    session.interruptTag = asked.append
    interrupt_connected()
    assert asked == [tag]
    close_connected()
