"""Opens DuckDB with the settings that every use of it shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


def connect(memory: int | None = None, scratch: str = "") -> duckdb.DuckDBPyConnection:
    """Opens a connection for one thread. See `configure`."""
    # Plans take names from modules that need DuckDB in their tasks only.
    import duckdb

    return configure(duckdb.connect(), memory, scratch)


def configure(connection: duckdb.DuckDBPyConnection, memory: int | None, scratch: str) -> duckdb.DuckDBPyConnection:
    """Gives a connection its settings: one thread, and the same text of a value on every machine.

    memory: bytes above which DuckDB writes to `scratch`; None: most of the machine's memory.
    scratch: a folder; empty: nothing is written to disk.
    """
    # Spark already runs one task a core.
    connection.execute("SET threads = 1")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET temp_directory = ?", [scratch])
    if memory is not None:
        connection.execute("SET memory_limit = ?", [f"{memory}B"])
    return connection
