"""Judges rows with DuckDB, without a JVM. It loads every file once into a table, and all checks query that table.

A large snapshot is counted bucket by bucket, as on Spark, and takes counts over. Only what needs all rows loads them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from queue import LifoQueue
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from tidefold.changelog.duckdb_connections import open_stream
from tidefold.changelog.schema import find_column_type, table_schema
from tidefold.compute.runners import in_threads
from tidefold.domain.log_state import TableSpec
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.wording import EngineName, clip_text
from tidefold.errors import StorageError, TidefoldError
from tidefold.quality.run.bucket_counts import bucket_counter, can_count
from tidefold.quality.run.cost import Meter
from tidefold.quality.run.count_memory import CountMemory
from tidefold.quality.run.count_task import JUDGE_AGAIN
from tidefold.quality.run.counts import CountRows, not_computed, query_counts, query_sample
from tidefold.quality.run.engine import SqlDialect
from tidefold.quality.run.expectations import judge_counts
from tidefold.quality.run.file_rows import file_rows
from tidefold.quality.suite.check import Types, canonical
from tidefold.storage import Store
from tidefold.storage.safe_files import open_scratch

if TYPE_CHECKING:
    from great_expectations.core import ExpectationValidationResult
    from great_expectations.expectations.expectation import Expectation

_MEMORY = 1 << 30
# Of fewer rows all are read: their counts are not worth a database for each task, and a file that is stored.
_COUNTED_ROWS = 200_000
_DIALECT = SqlDialect('"', "({} - DATE '1970-01-01')", "epoch_us({})", "quantile_disc({}, [{}])")


@dataclass(slots=True)
class DuckDBEngine:
    """Loads snapshots into one database in a scratch folder. Use `open_duckdb` to make one.

    connection: of the database, which this process keeps open.
    """

    connection: Any
    name: EngineName = EngineName.IN_PROCESS

    def read(self, store: Store, manifest: Manifest, memory: CountMemory | None = None) -> DuckDBRows | CountedRows:
        """Returns all rows of exactly the manifest's files, every column nullable. Raises TidefoldError."""
        if manifest.rows < _COUNTED_ROWS:
            return self._read_all(store, manifest)
        counter = bucket_counter(store.address, manifest, in_threads(), memory)
        return CountedRows(partial(self._read_all, store, manifest), manifest.shape, counter)

    def _read_all(self, store: Store, manifest: Manifest) -> DuckDBRows:
        schema = pa.schema([field.with_nullable(True) for field in table_schema(manifest.shape)])
        batches = (b for file in manifest.shown for b in file_rows(store, manifest.data_folder, file, manifest.shape))
        table = f"rows_{uuid.uuid4().hex}"
        try:
            with open_stream(schema, batches) as rows:
                return self.load(table, rows)
        except StorageError:
            raise
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            line = clip_text(" ".join(str(error).split()))
            message = f"`{manifest.data_folder}` cannot be read: {line}"
            raise TidefoldError("STAGED_ROWS_UNREADABLE", message, hint=JUDGE_AGAIN) from error

    def load(self, table: str, rows: pa.RecordBatchReader) -> DuckDBRows:
        """Loads the rows into a table of that name."""
        self.connection.register("arriving", rows)
        self.connection.execute(f"CREATE TABLE {table} AS SELECT * FROM arriving")
        self.connection.unregister("arriving")
        return DuckDBRows(self, table, {field.name: find_column_type(field.type) or "" for field in rows.schema})

    def meter(self) -> Meter:
        return Meter()


@contextmanager
def open_duckdb(memory: int = _MEMORY) -> Iterator[DuckDBEngine]:
    """Opens an engine with its own scratch folder, which is deleted at the end. Raises StorageError.

    memory: bytes that the database may use before it spills.
    """
    with open_scratch() as scratch:
        try:
            connection = duckdb.connect(f"{scratch}/judged.duckdb")
        except duckdb.Error as error:
            raise StorageError("STORAGE", f"`{scratch}`, a scratch folder of the gate: {error}.") from error
        with connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET memory_limit = ?", [f"{memory}B"])
            connection.execute("SET temp_directory = ?", [scratch])
            # A check judges these rows. It reads no other file and loads nothing.
            connection.execute("SET enable_external_access = false")
            yield DuckDBEngine(connection)


@contextmanager
def open_engines(count: int) -> Iterator[Callable[[], AbstractContextManager[DuckDBEngine]]]:
    """Opens some engines, which share the memory of one. Returns what lends an engine to one thread at a time."""
    free: LifoQueue[DuckDBEngine] = LifoQueue()

    @contextmanager
    def lend() -> Iterator[DuckDBEngine]:
        engine = free.get()
        try:
            yield engine
        finally:
            free.put(engine)

    with ExitStack() as opened:
        for _ in range(count):
            free.put(opened.enter_context(open_duckdb(_MEMORY // count)))
        yield lend


@dataclass(frozen=True, slots=True)
class DuckDBRows:
    """Rows of a snapshot in a table."""

    engine: DuckDBEngine
    table: str
    types: Types

    def validate(self, expectations: Sequence[Expectation], form: dict[str, Any]) -> list[ExpectationValidationResult]:
        """Raises TidefoldError for an expectation that needs Spark."""
        count = partial(query_counts, rows=self.table, query=self.query)
        sample = partial(query_sample, rows=self.table, query=self.query)
        judged, rest = judge_counts(expectations, form, self.types, count, sample)
        for one in rest:
            raise not_computed(one.configuration.type, f"with {canonical(one.configuration.kwargs)} it needs Spark")
        return judged

    @property
    def dialect(self) -> SqlDialect:
        return _DIALECT

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self.engine.connection.execute(sql, values).fetchall()
        return rows


@dataclass(frozen=True)
class CountedRows:
    """Rows of a large snapshot.

    open: loads them into a table.
    counter: counts bucket by bucket.
    """

    open: Callable[[], DuckDBRows]
    shape: TableSpec
    counter: CountRows
    dialect: SqlDialect = _DIALECT

    @cached_property
    def rows(self) -> DuckDBRows:
        return self.open()

    @property
    def table(self) -> str:
        return self.rows.table

    def validate(self, expectations: Sequence[Expectation], form: dict[str, Any]) -> list[ExpectationValidationResult]:
        """Counts by bucket what buckets can count; all rows answer the rest, and give all samples."""
        can = partial(can_count, shape=self.shape)
        judged, rest = judge_counts(expectations, form, self.shape.types, self.counter, can_count=can)
        return [*judged, *(self.rows.validate(rest, form) if rest else ())]

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return self.rows.query(sql)
