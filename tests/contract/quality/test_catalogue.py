"""The catalogue without a JVM: see tests/support/quality_suite.py. Promise I8."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest

from support.quality_suite import (
    SHAPE,
    Row,
    test_an_empty_table_has_no_bad_rows_and_is_not_fresh,  # noqa: F401
    test_checks_of_columns_say_what_a_naive_look_says,  # noqa: F401
    test_checks_of_single_rows_say_what_a_naive_look_says,  # noqa: F401
    test_what_cannot_be_computed_is_an_error_and_never_a_pass,  # noqa: F401
)
from tidefold.changelog.schema import table_schema
from tidefold.quality.run.duckdb_rows import DuckDBEngine, open_duckdb
from tidefold.quality.run.engine import JudgedRows


@dataclass
class DuckDBFrames:
    """Rows as tables of one database."""

    engine: DuckDBEngine
    made: int = 0

    def table(self, rows: list[Row]) -> JudgedRows:
        schema = pa.schema([field.with_nullable(True) for field in table_schema(SHAPE)])
        return self._load(pa.Table.from_pylist(rows, schema))

    def numbers(self, values: Iterable[int]) -> JudgedRows:
        return self._load(pa.table({"number": pa.array(list(values), pa.int32())}))

    def broken(self, rows: list[Row]) -> JudgedRows:
        whole: Any = self.table(rows)
        failing = (
            f"SELECT * REPLACE (CAST(left(status, 0) AS INTEGER) AS shop, error('damaged') AS price) FROM {whole.table}"
        )
        self.engine.connection.execute(f"CREATE VIEW broken AS {failing}")
        return replace(whole, table="broken")

    def _load(self, table: pa.Table) -> JudgedRows:
        self.made += 1
        return self.engine.load(f"rows_{self.made}", table.to_reader())


@pytest.fixture
def frames() -> Iterator[DuckDBFrames]:
    with open_duckdb() as engine:
        yield DuckDBFrames(engine)


@pytest.fixture(params=range(2))
def number(request: pytest.FixtureRequest) -> int:
    return int(request.param)
