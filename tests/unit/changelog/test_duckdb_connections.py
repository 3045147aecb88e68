"""Databases that are used again: what a use leaves behind, and when there must be another one. Decision 0014."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tidefold.changelog import duckdb_connections
from tidefold.changelog.duckdb_connections import connect


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[duckdb.DuckDBPyConnection]:
    """The databases that a process opens which had none."""
    databases: list[duckdb.DuckDBPyConnection] = []
    open_database = duckdb_connections.open_database

    def note(memory: int | None, scratch: str) -> duckdb.DuckDBPyConnection:
        databases.append(open_database(memory, scratch))
        return databases[-1]

    monkeypatch.setattr(duckdb_connections, "_idle", defaultdict(list))
    monkeypatch.setattr(duckdb_connections, "open_database", note)
    return databases


def setting(connection: duckdb.DuckDBPyConnection, name: str) -> Any:
    return connection.execute(f"SELECT current_setting('{name}')").fetchall()[0][0]


def test_the_next_use_finds_nothing_of_the_last_one(opened: list[duckdb.DuckDBPyConnection]) -> None:
    for _ in range(3):
        with connect() as connection:
            connection.register("rows", pa.table({"id": [1]}))
            connection.execute("CREATE TEMP TABLE kept AS FROM rows")
            connection.execute("CREATE TEMP VIEW seen AS FROM kept")
    with connect() as connection:
        for name in ("rows", "kept", "seen"):
            with pytest.raises(duckdb.CatalogException):
                connection.execute(f"FROM {name}")
    assert len(opened) == 1


def test_two_uses_at_once_have_two_databases(opened: list[duckdb.DuckDBPyConnection]) -> None:
    with connect() as one, connect() as other:
        one.execute("CREATE TEMP TABLE mine AS SELECT 1")
        with pytest.raises(duckdb.CatalogException):
            other.execute("FROM mine")
    assert len(opened) == 2


def test_after_an_error_and_in_a_forked_process_there_is_a_new_one(
    opened: list[duckdb.DuckDBPyConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(duckdb.ConversionException), connect() as connection:
        connection.execute("SELECT 'a'::INT").fetchall()
    with connect():
        pass
    assert len(opened) == 2
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with connect():
        pass
    assert len(opened) == 3


def test_each_use_has_the_settings_that_it_asks_for(
    opened: list[duckdb.DuckDBPyConnection], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    with connect() as connection:
        free = setting(connection, "memory_limit")
        assert (setting(connection, "TimeZone"), setting(connection, "threads")) == ("UTC", 1)
    with connect(100 << 20, str(tmp_path)) as connection:
        assert setting(connection, "memory_limit") == "100.0 MiB"
        assert setting(connection, "temp_directory") == str(tmp_path)
    with connect() as connection:
        assert (setting(connection, "memory_limit"), setting(connection, "temp_directory")) == (free, "")
    assert len(opened) == 1


def test_after_one_that_spilled_another_folder_is_used(tmp_path: Path) -> None:
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        with connect(50 << 20, str(folder)) as connection:
            connection.execute(
                "CREATE TEMP TABLE large AS SELECT range AS id, repeat('x', 100) || range AS text FROM range(1_000_000)"
            )
            assert any(folder.iterdir())
