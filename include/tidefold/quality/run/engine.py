"""What judges the rows of a snapshot: one port, an engine on Spark and one on DuckDB behind it.

Both give the same verdicts (tests/contract/quality, tests/spark): a check that would not is left to Spark by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tidefold.quality.run.cost import Meter
from tidefold.storage import Store

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuiteValidationResult
    from great_expectations.expectations.expectation import Expectation

    from tidefold.domain.snapshot.manifest import Manifest

# The numbers of one column by name: count, sum, mean, deviation, least, most, quantiles. What is not asked is missing.
ColumnNumbers = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MissingValues:
    """Values that another table does not have.

    rows: how many rows hold one of them.
    different: how many different values they are.
    samples: some of the rows, each its value followed by its key.
    """

    rows: int
    different: int
    samples: tuple[tuple[Any, ...], ...] = ()


class JudgedRows(Protocol):
    """All rows of a snapshot, where an engine can ask them."""

    def validate(self, expectations: Sequence[Expectation], form: dict[str, Any]) -> ExpectationSuiteValidationResult:
        """The results of expectations over all rows, `form` as Great Expectations takes its result format."""
        ...

    def aggregate(self, asked: Mapping[str, tuple[str, bool]]) -> tuple[int, Mapping[str, ColumnNumbers]]:
        """How many rows there are, and the numbers of columns.

        asked: by column its type, and whether its quantiles are wanted.
        """
        ...

    def count_values(self, column: str, most: int) -> list[tuple[str, int]]:
        """Different values of a column as text with their rows, nulls left out; `most` + 1 of them at most."""
        ...

    def find_missing(self, column: str, there: Any, other: str, key: Sequence[str], samples: int) -> MissingValues:
        """Values of a column that the column `other` of `there` (rows of the same engine) does not have."""
        ...


class QualityEngine(Protocol):
    """Reads snapshots so that they can be judged. `name` is shown to people."""

    @property
    def name(self) -> str: ...

    def read(self, store: Store, manifest: Manifest) -> JudgedRows:
        """All rows of exactly the manifest's files, every column nullable."""
        ...

    def meter(self) -> Meter:
        """A new meter of what judging costs."""
        ...
