"""Judges rows with DuckDB, without a JVM. It loads every file once into a table, and all checks query that table.

Great Expectations queries it through its own SQL engine. gx_duckdb adds what that engine lacks for DuckDB.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from queue import LifoQueue
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from tidefold.changelog.key_group_hash import quote_name
from tidefold.changelog.schema import table_schema
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.wording import EngineName
from tidefold.errors import StorageError, TidefoldError
from tidefold.quality.report.result import clip_text
from tidefold.quality.run.bucket_counts import JUDGE_AGAIN, file_rows
from tidefold.quality.run.cost import Meter
from tidefold.quality.run.count_memory import CountMemory
from tidefold.quality.run.engine import SqlDialect
from tidefold.quality.run.regex import translate_regex
from tidefold.quality.suite.check import Check
from tidefold.storage import Store
from tidefold.storage.safe_files import open_scratch

if TYPE_CHECKING:
    from great_expectations.core import ExpectationValidationResult
    from great_expectations.expectations.expectation import Expectation

    from tidefold.quality.run.gx_duckdb import GxSession

# Tests show the same verdicts as on Spark for these expectations. Spark judges all others.
_EXPECTATIONS = frozenset(
    {
        "expect_column_values_to_be_unique",
        "expect_compound_columns_to_be_unique",
        "expect_column_values_to_not_be_null",
        "expect_column_values_to_be_between",
        "expect_column_values_to_be_in_set",
        "expect_column_values_to_match_regex",
        "expect_table_row_count_to_be_between",
        "expect_table_row_count_to_equal",
    }
)
_MEMORY = 1 << 30
_DIALECT = SqlDialect('"', "({} - DATE '1970-01-01')", "epoch_us({})", "quantile_disc({}, [{}])")


def can_judge(check: Check) -> bool:
    """Whether a check gives the same verdict here as on Spark."""
    return check.own or can_judge_expectation(check.type, check.kwargs)


def can_judge_expectation(type_: str, kwargs: Mapping[str, Any]) -> bool:
    """As `can_judge`, of an expectation of Great Expectations."""
    if type_ == "expect_column_values_to_match_regex":
        return translate_regex(str(kwargs.get("regex", ""))) is not None
    return type_ in _EXPECTATIONS


@dataclass(slots=True)
class DuckDBEngine:
    """Loads snapshots into one database in a scratch folder. Use `open_duckdb` to make one.

    address: of the database, as SQLAlchemy takes it.
    connection: the connection that this process keeps open.
    """

    address: str
    connection: Any
    name: EngineName = EngineName.IN_PROCESS
    _session: GxSession | None = None

    def read(self, store: Store, manifest: Manifest, memory: CountMemory | None = None) -> DuckDBRows:
        """Returns all rows of exactly the manifest's files, every column nullable. Raises TidefoldError."""
        schema = pa.schema([field.with_nullable(True) for field in table_schema(manifest.shape)])
        batches = (b for file in manifest.shown for b in file_rows(store, manifest.data_folder, file, manifest.shape))
        table = f"rows_{uuid.uuid4().hex}"
        try:
            return self.load(table, pa.RecordBatchReader.from_batches(schema, batches))
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            line = clip_text(" ".join(str(error).split()))
            message = f"`{manifest.data_folder}` cannot be read: {line}"
            raise TidefoldError("STAGED_ROWS_UNREADABLE", message, hint=JUDGE_AGAIN) from error

    def load(self, table: str, rows: pa.RecordBatchReader) -> DuckDBRows:
        """Loads the rows into a table of that name."""
        self.connection.register("arriving", rows)
        self.connection.execute(f"CREATE TABLE {table} AS SELECT * FROM arriving")
        self.connection.unregister("arriving")
        return DuckDBRows(self, table)

    def meter(self) -> Meter:
        return Meter()

    def open_session(self) -> GxSession:
        """Returns the context of Great Expectations that all snapshots of this engine share."""
        if self._session is None:
            from tidefold.quality.run.gx_duckdb import GxSession

            self._session = GxSession(self.address)
        return self._session


@contextmanager
def open_duckdb(memory: int = _MEMORY) -> Iterator[DuckDBEngine]:
    """Opens an engine with its own scratch folder, which is deleted at the end. Raises StorageError.

    memory: bytes that the database may use before it spills.
    """
    import sqlalchemy

    with open_scratch() as scratch:
        address = f"duckdb:///{scratch}/judged.duckdb"
        database = sqlalchemy.create_engine(address, poolclass=sqlalchemy.pool.NullPool)
        # The settings are those of Great Expectations: DuckDB shares a file only under equal settings.
        try:
            opened = database.raw_connection()
        except duckdb.Error as error:
            raise StorageError("STORAGE", f"`{scratch}`, a scratch folder of the gate: {error}.") from error
        connection: Any = opened.driver_connection
        try:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET memory_limit = ?", [f"{memory}B"])
            connection.execute("SET temp_directory = ?", [scratch])
            # A check judges these rows. It reads no other file and loads nothing.
            connection.execute("SET enable_external_access = false")
            yield DuckDBEngine(address, connection)
        finally:
            opened.close()


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

    def validate(self, expectations: Sequence[Expectation], form: dict[str, Any]) -> list[ExpectationValidationResult]:
        answers = [*self.engine.open_session().validate(self.table, expectations, form).results]
        for answer in answers if form.get("unexpected_index_column_names") else ():
            self._add_keys(answer, form["unexpected_index_column_names"], form["partial_unexpected_count"])
        return answers

    def _add_keys(self, answer: ExpectationValidationResult, key: Sequence[str], most: int) -> None:
        """Adds the keys of rows, which Great Expectations does not return in SQL for checks of several columns."""
        config = answer.expectation_config
        if config is None or answer.success or config.type != "expect_compound_columns_to_be_unique":
            return
        same: list[str] = config.kwargs["column_list"]
        columns = list(dict.fromkeys([*key, *same]))
        listed, apart = (", ".join(map(quote_name, names)) for names in (columns, same))
        counted = f'SELECT *, count(*) OVER (PARTITION BY {apart}) AS "tidefold rows" FROM {self.table}'
        rows = self.query(f'SELECT {listed} FROM ({counted}) WHERE "tidefold rows" > 1 LIMIT {most}')
        answer.result["partial_unexpected_index_list"] = [dict(zip(columns, row, strict=True)) for row in rows]

    @property
    def dialect(self) -> SqlDialect:
        return _DIALECT

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self.engine.connection.execute(sql).fetchall()
        return rows
