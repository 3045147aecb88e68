"""The port through which checks query the rows of a snapshot, on Spark or DuckDB, and what that costs.

Both engines give the same verdicts (tests/contract/quality, tests/spark). Any other check runs only on Spark.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tidefold.domain.wording import EngineName
from tidefold.storage import Store

if TYPE_CHECKING:
    from great_expectations.core import ExpectationValidationResult
    from great_expectations.expectations.expectation import Expectation
    from pyspark import SparkContext

    from tidefold.domain.snapshot.manifest import Manifest
    from tidefold.quality.run.count_memory import CountMemory


@dataclass(frozen=True, slots=True)
class CostPart:
    """One part of the work: the number of its checks, its wall time in seconds, and its Spark jobs."""

    name: str
    checks: int
    seconds: float
    jobs: int


@dataclass(frozen=True, slots=True)
class Reuse:
    """How many rows a gate read, and how many it took over: of counts of single rows, and of duplicates of keys.

    snapshot: whose counts were taken over.
    differs: which of them were wrong.
    """

    read: int
    taken: int
    read_keys: int
    taken_keys: int
    snapshot: int | None = None
    differs: str = ""


@dataclass(slots=True)
class Meter:
    """Measures the parts one after the other, in the thread that does the work."""

    spark: SparkContext | None = None
    parts: list[CostPart] = field(default_factory=list)

    @contextmanager
    def part(self, name: str, checks: int) -> Iterator[None]:
        group = f"tidefold-{uuid.uuid4().hex}"
        if self.spark is not None:
            self.spark.setJobGroup(group, f"quality: {name}")
            # Spark shares its cores between these pools: the tasks of a large log do not come before all others.
            self.spark.setLocalProperty("spark.scheduler.pool", threading.current_thread().name)
        begun = time.perf_counter()
        try:
            yield
        finally:
            seconds = round(time.perf_counter() - begun, 2)
            jobs = len(self.spark.statusTracker().getJobIdsForGroup(group)) if self.spark is not None else 0
            self.parts.append(CostPart(name, checks, seconds, jobs))


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
