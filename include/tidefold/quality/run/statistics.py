"""Statistics of single columns. They are stored with a judgement, so that the next one need not read these rows again.

ONE aggregation over the rows computes everything except the counts of text values.

The distance of two distributions is the share of rows (0 to 1) that would have to move to make them equal.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from tidefold.errors import TidefoldError
from tidefold.quality.run.engine import ColumnNumbers, JudgedRows
from tidefold.quality.suite.check import DISTRIBUTION, FRESHNESS, MEAN_DRIFT, SUM_DRIFT, Check, Types, family

# A distribution is stored as this many steps from the least value to the greatest.
STEPS = 200
# Text with more different values than this does not count as categories.
CATEGORIES = 1000
ACCURACY = 2000
_GREATEST = 1.7976931348623157e308
TIMES = ("date", "timestamp")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """The statistics of one column.

    count, nulls: the number of values and of nulls.
    total, mean, deviation: of numbers; the sum is exact, as text.
    least, most: as text.
    quantiles: numbers, or days or seconds since 1970; only if the distribution is checked.
    categories: values with their rows, without null; only if the distribution is checked.
    """

    column: str
    type: str
    count: int
    nulls: int
    total: str | None = None
    mean: float | None = None
    deviation: float | None = None
    least: str | None = None
    most: str | None = None
    quantiles: tuple[float, ...] = ()
    categories: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RowStatistics:
    """The number of rows, and the statistics of some columns."""

    rows: int
    columns: tuple[ColumnStatistics, ...]

    def of(self, column: str) -> ColumnStatistics | None:
        return next((c for c in self.columns if c.column == column), None)

    def answers(self, wanted: Wanted, types: Types) -> bool:
        """Whether they contain everything that is wanted of each existing column."""
        return all(self._answers(c, shape, types) for c, shape in wanted.items() if c in types)

    def _answers(self, column: str, shape: bool, types: Types) -> bool:
        found = self.of(column)
        if found is None or found.type != types[column]:
            return False
        return not shape or not found.count or bool(found.quantiles or found.categories)


# Columns whose statistics are wanted. True: with their distribution.
Wanted = Mapping[str, bool]
_DRIFTS = (SUM_DRIFT, MEAN_DRIFT)


def find_wanted_columns(checks: Iterable[Check], compared_only: bool = False) -> dict[str, bool]:
    """Returns what the checks need of the rows; with `compared_only`, what they need of the compared rows."""
    found: dict[str, bool] = {}
    kinds = _DRIFTS if compared_only else (*_DRIFTS, FRESHNESS)
    for check in checks:
        if check.type in kinds:
            found.setdefault(check.kwargs["column"], False)
        if check.type == DISTRIBUTION:
            found[check.kwargs["column"]] = True
    return found


def collect(rows: JudgedRows, wanted: Wanted, types: Types) -> RowStatistics:
    """Computes the statistics of the wanted columns that exist.

    Raises the engine's errors, and TidefoldError for a text column with too many different values.
    """
    present = {column: (types[column], shape) for column, shape in wanted.items() if column in types}
    total, numbers = rows.aggregate(present)
    found = [_statistics(rows, column, *present[column], total, parts) for column, parts in numbers.items()]
    return RowStatistics(total, tuple(found))


def _statistics(
    rows: JudgedRows, column: str, type_: str, shape: bool, total: int, parts: ColumnNumbers
) -> ColumnStatistics:
    categorical = family(type_) in ("string", "boolean")
    return ColumnStatistics(
        column=column,
        type=type_,
        count=parts["count"],
        nulls=total - parts["count"],
        total=None if parts.get("sum") is None else str(parts["sum"]),
        mean=_finite(parts.get("mean")),
        deviation=_finite(parts.get("deviation")),
        least=_text(parts.get("least"), type_),
        most=_text(parts.get("most"), type_),
        quantiles=tuple(_limit(value) for value in parts.get("quantiles") or ()),
        categories=_categories(rows, column) if shape and categorical else (),
    )


def _categories(rows: JudgedRows, column: str) -> tuple[tuple[str, int], ...]:
    found = rows.count_values(column, CATEGORIES)
    if len(found) > CATEGORIES:
        raise TidefoldError(
            "TOO_MANY_CATEGORIES",
            f"Column `{column}` has over {CATEGORIES:,} different values, too many to compare their distribution.",
            hint="Use this check only for numbers, times, or columns with few different texts.",
        )
    return tuple(sorted(found))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _limit(value: float) -> float:
    # JSON has neither. Spark sorts NaN after every number.
    return _GREATEST if math.isnan(value) else max(-_GREATEST, min(_GREATEST, value))


def _text(value: Any, type_: str) -> str | None:
    if value is None:
        return None
    if type_ == "date":
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    if type_ == "timestamp":
        return (_EPOCH + timedelta(microseconds=value)).isoformat()
    return str(value)


def shift(one: ColumnStatistics, other: ColumnStatistics) -> float:
    """Returns the distance of two distributions.

    For numbers and times it is the largest difference, over all values x, in the share of rows up to x (Kolmogorov and
    Smirnov). For categories it is half the sum of the differences of their shares (total variation). Nulls count as the
    largest value, or as their own category.
    """
    sizes = one.count + one.nulls, other.count + other.nulls
    if not all(sizes):
        return 0.0 if not any(sizes) else 1.0
    apart = _between_categories if one.categories or other.categories else _between_lines
    return apart(one, other)


def _between_lines(one: ColumnStatistics, other: ColumnStatistics) -> float:
    ones, others = one.count / (one.count + one.nulls), other.count / (other.count + other.nulls)
    gaps = [
        abs(ones * _share(one.quantiles, x) - others * _share(other.quantiles, x))
        for x in {*one.quantiles, *other.quantiles}
    ]
    return max([*gaps, abs(ones - others)])


def _share(quantiles: tuple[float, ...], x: float) -> float:
    """Returns the share of values up to x, to one step."""
    if not quantiles:
        return 0.0
    return max(bisect_right(quantiles, x) - 1, 0) / (len(quantiles) - 1)


def _between_categories(one: ColumnStatistics, other: ColumnStatistics) -> float:
    shares = _shares(one), _shares(other)
    values = {*shares[0], *shares[1]}
    return sum(abs(shares[0].get(v, 0.0) - shares[1].get(v, 0.0)) for v in values) / 2


def _shares(statistics: ColumnStatistics) -> dict[str | None, float]:
    rows = statistics.count + statistics.nulls
    return {**{value: count / rows for value, count in statistics.categories}, None: statistics.nulls / rows}
