"""DuckDB in this process: one thread, the same text of a value on every machine, and databases that are used again."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tidefold.errors import TidefoldError

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class _Database:
    """An empty database in memory, with the settings that `connect` was given."""

    root: duckdb.DuckDBPyConnection
    memory: int | None
    scratch: str


# Databases that no thread uses now, by process: a new one takes 15 to 35 ms of CPU time. A forked process never touches
# those of its parent.
_idle: defaultdict[int, list[_Database]] = defaultdict(list)


@contextmanager
def connect(memory: int | None = None, scratch: str = "") -> Iterator[duckdb.DuckDBPyConnection]:
    """Lends a connection to one thread. Its temporary tables and views end with it; it must make no others.

    memory: bytes above which DuckDB writes to `scratch`; None: most of the machine's memory.
    scratch: a folder; empty: nothing is written to disk.
    """
    database = _take(memory, scratch)
    connection = database.root.cursor()
    try:
        yield connection
    except BaseException:
        # An error may have ended more than the statement.
        connection.close()
        database.root.close()
        raise
    connection.close()
    _idle[os.getpid()].append(database)


@contextmanager
def open_stream(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatchReader]:
    """Opens batches as a stream for DuckDB. Raises their own TidefoldError, of which DuckDB leaves only the text."""
    import duckdb

    failed: list[TidefoldError] = []
    try:
        yield pa.RecordBatchReader.from_batches(schema, _note_errors(batches, failed))
    except duckdb.Error as error:
        raise (failed[0] if failed else error) from error


def _note_errors(batches: Iterable[pa.RecordBatch], failed: list[TidefoldError]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except TidefoldError as error:
        failed.append(error)
        raise


def open_database(memory: int | None, scratch: str) -> duckdb.DuckDBPyConnection:
    """Opens a database that nobody else uses, for settings that cannot be taken back."""
    # Plans take names from modules that need DuckDB in their tasks only.
    import duckdb

    root = duckdb.connect()
    # Spark already runs one task a core.
    root.execute("SET threads = 1")
    root.execute("SET GLOBAL TimeZone = 'UTC'")
    _configure(root, memory, scratch)
    return root


def _take(memory: int | None, scratch: str) -> _Database:
    """Returns a database with these settings. The one that was used last most likely has them."""
    import duckdb

    try:
        database = _idle[os.getpid()].pop()
    except IndexError:
        return _Database(open_database(memory, scratch), memory, scratch)
    if (database.memory, database.scratch) == (memory, scratch):
        return database
    try:
        _configure(database.root, memory, scratch)
    except duckdb.Error:
        # It spilled: it cannot be given another folder.
        database.root.close()
        return _Database(open_database(memory, scratch), memory, scratch)
    return _Database(database.root, memory, scratch)


def _configure(root: duckdb.DuckDBPyConnection, memory: int | None, scratch: str) -> None:
    root.execute("SET temp_directory = ?", [scratch])
    root.execute("RESET memory_limit" if memory is None else f"SET memory_limit = '{memory}B'")
