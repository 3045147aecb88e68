"""The port through which checks query the rows of a snapshot, on Spark or DuckDB.

Both engines give the same verdicts (tests/contract/quality, tests/spark). Any other check runs only on Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tidefold.domain.wording import EngineName
from tidefold.quality.run.cost import Meter
from tidefold.storage import Store

if TYPE_CHECKING:
    from great_expectations.core import ExpectationValidationResult
    from great_expectations.expectations.expectation import Expectation

    from tidefold.domain.snapshot.manifest import Manifest
    from tidefold.quality.run.count_memory import CountMemory


@dataclass(frozen=True, slots=True)
class SqlDialect:
    """What the engines write differently in SQL.

    quote: the character around names.
    days, microseconds: a date and a timestamp as a number since 1970.
    quantiles: of an expression, at a list of shares.
    """

    quote: str
    days: str
    microseconds: str
    quantiles: str

    def quote_name(self, column: str) -> str:
        """Returns the name of a column, which may have any characters."""
        return f"{self.quote}{column.replace(self.quote, self.quote * 2)}{self.quote}"


class JudgedRows(Protocol):
    """All rows of a snapshot, in a table that an engine can query."""

    @property
    def table(self) -> str: ...
    @property
    def dialect(self) -> SqlDialect: ...

    def validate(self, expectations: Sequence[Expectation], form: dict[str, Any]) -> list[ExpectationValidationResult]:
        """Returns the results of expectations over all rows.

        form: the result format of Great Expectations.
        """
        ...

    def query(self, sql: str) -> Sequence[Sequence[Any]]:
        """Returns the rows of a query. It may also read other rows of the same engine."""
        ...


class QualityEngine(Protocol):
    """Reads snapshots so that they can be judged."""

    @property
    def name(self) -> EngineName: ...

    def read(self, store: Store, manifest: Manifest, memory: CountMemory | None = None) -> JudgedRows:
        """Returns all rows of exactly the manifest's files, every column nullable.

        memory: counts that are taken over, and where new ones are left.
        """
        ...

    def meter(self) -> Meter:
        """Returns a new meter for the cost of a judgement."""
        ...
