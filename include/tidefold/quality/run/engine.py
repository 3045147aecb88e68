"""The port through which checks query the rows of a snapshot, with an engine on Spark and one on DuckDB.

Both engines give the same verdicts (tests/contract/quality, tests/spark). Any other check runs only on Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tidefold.domain.engine_name import EngineName
from tidefold.quality.run.cost import Meter
from tidefold.storage import Store

if TYPE_CHECKING:
    from great_expectations.core import ExpectationValidationResult
    from great_expectations.expectations.expectation import Expectation

    from tidefold.domain.snapshot.manifest import Manifest

# The numbers of one column by name: count, sum, mean, deviation, least, most, quantiles. Others are missing.
ColumnNumbers = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MissingValues:
    """Values that another table does not have.

    rows: the number of rows with one of them.
    samples: some of the rows, each as its value followed by its key.
    """

    rows: int
    different: int
    samples: tuple[tuple[Any, ...], ...] = ()


class JudgedRows(Protocol):
    """All rows of a snapshot, in a form that an engine can query."""

    def validate(self, expectations: Sequence[Expectation], form: dict[str, Any]) -> list[ExpectationValidationResult]:
        """Returns the results of expectations over all rows.

        form: the result format of Great Expectations.
        """
        ...

    def aggregate(self, asked: Mapping[str, tuple[str, bool]]) -> tuple[int, Mapping[str, ColumnNumbers]]:
        """Returns the number of rows and the numbers of columns.

        asked: for each column its type, and whether to compute its quantiles.
        """
        ...

    def count_values(self, column: str, most: int) -> list[tuple[str, int]]:
        """Returns at most `most` + 1 different values of a column as text, with their row counts, without nulls."""
        ...

    def find_missing(self, column: str, there: Any, other: str, key: Sequence[str], samples: int) -> MissingValues:
        """Returns the values of `column` that the column `other` of `there` (rows of the same engine) does not have."""
        ...


class QualityEngine(Protocol):
    """Reads snapshots so that they can be judged."""

    @property
    def name(self) -> EngineName: ...

    def read(self, store: Store, manifest: Manifest) -> JudgedRows:
        """Returns all rows of exactly the manifest's files, every column nullable."""
        ...

    def meter(self) -> Meter:
        """Returns a new meter for the cost of a judgement."""
        ...
