"""Adds to Great Expectations what its SQL engine lacks for DuckDB, through its extension points.

It is imported only when a check runs, because the import of Great Expectations takes seconds.
"""

from __future__ import annotations

import atexit
import builtins
import os
import re
import sys
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import great_expectations as gx
import sqlalchemy as sa
from duckdb_engine import DuckDBIdentifierPreparer
from great_expectations.core import ExpectationSuiteValidationResult
from great_expectations.datasource.fluent.sql_datasource import SQLDatasource
from great_expectations.execution_engine import SqlAlchemyExecutionEngine
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.metrics.map_metric_provider import (
    ColumnMapMetricProvider,
    column_condition_partial,
    multicolumn_condition_partial,
    multicolumn_function_partial,
)
from great_expectations.expectations.metrics.multicolumn_map_metrics.compound_columns_unique import (
    CompoundColumnsUnique,
)

from tidefold.quality.run.bucket_counts import CountRows
from tidefold.quality.run.count_memory import CountRow, Query
from tidefold.quality.run.expectations import find_exception
from tidefold.quality.run.regex import translate_regex


class DuckDBExecutionEngine(SqlAlchemyExecutionEngine):  # type: ignore[misc]
    """Keeps one connection open, because rows of a closed one cannot be fetched. Quotes every name."""

    _connection: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # DuckDB reserves words (`at`) that its SQLAlchemy dialect does not know.
        self.engine.dialect.identifier_preparer = _QuotingPreparer(self.engine.dialect)

    @contextmanager
    def get_connection(self) -> Generator[sa.Connection, None, None]:
        """Yields the one connection. A query that fails does not make those after it fail."""
        if self._connection is None:
            self._connection = self.engine.connect()
            self._connection.exec_driver_sql("SET TimeZone = 'UTC'")
        try:
            yield self._connection
        except sa.exc.DBAPIError:
            self._connection.rollback()
            raise

    def resolve_metric_bundle(self, metric_fn_bundle: Iterable[Any]) -> dict[Any, Any]:
        """Asks in the order of names, so that equal checks give the same query each time."""
        return dict(super().resolve_metric_bundle(sorted(metric_fn_bundle, key=_describe_metric)))

    def disconnect(self) -> None:
        """Closes the connection and its pool."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self.engine.dispose()


def _describe_metric(computed: Any) -> tuple[str, str, str]:
    asked = computed.metric_configuration
    return asked.metric_name, str(asked.metric_domain_kwargs.get("column")), str(asked.metric_value_kwargs)


class _QuotingPreparer(DuckDBIdentifierPreparer):
    def _requires_quotes(self, value: str) -> bool:
        return True


class TidefoldDuckDBDatasource(SQLDatasource):  # type: ignore[misc]
    """A DuckDB file as a data source of Great Expectations."""

    type: Literal["tidefold_duck_db"] = "tidefold_duck_db"

    @property
    def execution_engine_type(self) -> builtins.type[DuckDBExecutionEngine]:
        return DuckDBExecutionEngine


class ColumnValuesMatchRegexOnDuckDB(ColumnMapMetricProvider):  # type: ignore[misc]
    """`expect_column_values_to_match_regex` with the same matches as on Spark."""

    condition_metric_name = "column_values.match_regex"
    condition_value_keys = ("regex",)

    @column_condition_partial(engine=DuckDBExecutionEngine)  # type: ignore[untyped-decorator]
    def _sqlalchemy(cls: Any, column: Any, regex: str, **_: Any) -> Any:
        pattern = translate_regex(regex)
        if pattern is None:
            raise NotImplementedError(f"`{regex}` might find something else here than on Spark")
        return sa.func.regexp_matches(column, pattern)


class CompoundColumnsUniqueOnDuckDB(CompoundColumnsUnique):  # type: ignore[misc]
    """`expect_compound_columns_to_be_unique` that treats nulls as equal, as on Spark.

    The SQL of its parent ignores rows in which one of the columns is null.
    """

    @multicolumn_function_partial(engine=DuckDBExecutionEngine)  # type: ignore[untyped-decorator]
    def _sqlalchemy_function(cls: Any, column_list: Any, **kwargs: Any) -> Any:
        same: list[Any] = [sa.column(name) for name in kwargs["_column_names"]]
        count = sa.func.count().over(partition_by=same).label("_num_rows")
        return sa.select(*same, count).select_from(kwargs["_table"]).alias("counted_rows")

    @multicolumn_condition_partial(engine=DuckDBExecutionEngine)  # type: ignore[untyped-decorator]
    def _sqlalchemy_condition(cls: Any, column_list: Any, **kwargs: Any) -> Any:
        counted, _, _ = kwargs["_metrics"]["compound_columns.count.map"]
        return counted.c._num_rows < 2


@atexit.register
def _silence_last_words() -> None:
    """Closes standard error at the very end of the process, after its last use.

    Great Expectations keeps a context alive until then, and DuckDB's bindings report each of their functions as leaked.
    """
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


class GxSession:
    """One context of Great Expectations for all tables of a DuckDB database that this process has open."""

    def __init__(self, address: str) -> None:
        self._context = gx.get_context(mode="ephemeral")
        self._context.variables.progress_bars = {"globally": False, "metric_calculations": False}
        self._source = self._context.data_sources.add_tidefold_duck_db(name="staged", connection_string=address)

    def validate_elsewhere(
        self, table: str, expectations: Sequence[Expectation], form: dict[str, Any], count: CountRows
    ) -> ExpectationSuiteValidationResult:
        """Returns the results of expectations over rows that lie elsewhere. They ask for counts only.

        Great Expectations judges twice: over no rows, which shows all its queries, and with their answers.
        table: a table without rows that has their columns.
        count: answers queries over the rows.
        """
        engine = self._source.get_execution_engine().engine
        asked: list[Query] = []

        def note(query: Query) -> None:
            asked.append(query)

        with _intercept(engine, table, note):
            # An expectation belongs to one suite only.
            first = self.validate(table, [one.copy(deep=True) for one in expectations], form)
        if any(find_exception(one.exception_info or {}) for one in first.results):
            return first
        counts = dict(zip(asked, count(asked), strict=True))
        with _intercept(engine, table, lambda query: counts[query] if query in counts else count([query])[0]):
            return self.validate(table, expectations, form)

    def validate(
        self, table: str, expectations: Sequence[Expectation], form: dict[str, Any]
    ) -> ExpectationSuiteValidationResult:
        """Returns the results of expectations over all rows of a table."""
        name = uuid.uuid4().hex
        batch = self._source.add_table_asset(name, table_name=table).add_batch_definition_whole_table("all")
        suite = self._context.suites.add(gx.ExpectationSuite(name, expectations=list(expectations)))
        try:
            return gx.ValidationDefinition(name=name, data=batch, suite=suite).run(result_format=form)
        finally:
            # Its transaction does not see tables that are loaded later.
            self._source.get_execution_engine().disconnect()


@contextmanager
def _intercept(engine: sa.Engine, table: str, answer: Callable[[Query], CountRow | None]) -> Iterator[None]:
    """Within this context `answer` answers each query that counts the rows of a table; None: the database does."""
    reads = re.compile(rf"\bFROM \"?{table}\b")

    def replace(_c: Any, _cursor: Any, statement: str, values: Any, _context: Any, _many: bool) -> tuple[str, Any]:
        # With a limit of 0, Great Expectations asks for examples, and wants none.
        if not reads.search(statement) or " LIMIT " in statement:
            return statement, values
        counts = answer(Query(statement, tuple(values)))
        if counts is None:
            return statement, values
        return "SELECT " + ", ".join("NULL" if count is None else str(count) for count in counts), ()

    sa.event.listen(engine, "before_cursor_execute", replace, retval=True)
    try:
        yield
    finally:
        sa.event.remove(engine, "before_cursor_execute", replace)
