"""Numbers of single columns, stored with a judgement so that the next snapshot is compared without reading this one.

All but the counts of text come from ONE aggregation over the rows.

How far two distributions are apart: the share of rows (0 to 1) that would have to move to make one the other's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tidefold.errors import TidefoldError
from tidefold.quality.suite import catalogue
from tidefold.quality.suite.catalogue import Types, family
from tidefold.quality.suite.check import Check

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
from bisect import bisect_right

# A distribution is kept as this many steps from the least value to the greatest.
STEPS = 200
# Text with more different values than this is no set of categories.
CATEGORIES = 1000
_ACCURACY = 2000
_GREATEST = 1.7976931348623157e308
_TIMES = ("date", "timestamp")
_PARTS = ("count", "sum", "mean", "deviation", "least", "most", "quantiles")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """One column: how many values and nulls; of numbers their exact sum (as text), mean and standard deviation; least
    and greatest as text. `quantiles` (numbers, days and seconds since 1970) or `categories` (value, rows; no null) are
    there for columns whose distribution is checked.
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
class Statistics:
    """How many rows there are, and the numbers of some columns."""

    rows: int
    columns: tuple[ColumnStatistics, ...]

    def of(self, column: str) -> ColumnStatistics | None:
        return next((c for c in self.columns if c.column == column), None)

    def answers(self, wanted: Wanted, types: Types) -> bool:
        """Whether they hold what is wanted of each of the columns that there are."""
        return all(self._answers(c, shape, types) for c, shape in wanted.items() if c in types)

    def _answers(self, column: str, shape: bool, types: Types) -> bool:
        found = self.of(column)
        if found is None or found.type != types[column]:
            return False
        return not shape or not found.count or bool(found.quantiles or found.categories)


# Columns whose numbers are wanted: True, when their distribution is.
Wanted = Mapping[str, bool]
_DRIFTS = (catalogue.SUM_DRIFT, catalogue.MEAN_DRIFT)


def wanted_by(checks: Iterable[Check], compared_only: bool = False) -> dict[str, bool]:
    """What the checks need of the rows; with `compared_only`, what they need of the rows they are compared with."""
    found: dict[str, bool] = {}
    kinds = _DRIFTS if compared_only else (*_DRIFTS, catalogue.FRESHNESS)
    for check in checks:
        if check.type in kinds:
            found.setdefault(check.kwargs["column"], False)
        if check.type == catalogue.DISTRIBUTION:
            found[check.kwargs["column"]] = True
    return found


def collect(rows: DataFrame, wanted: Wanted, types: Types) -> Statistics:
    """The numbers of the wanted columns that there are. Raises whatever Spark does, and TidefoldError for a column of
    text with too many different values.
    """
    from pyspark.sql import functions as f

    present = {column: shape for column, shape in wanted.items() if column in types}
    asked: list[Column] = [f.count(f.lit(1)).alias("rows")]
    for number, (column, shape) in enumerate(present.items()):
        parts = _aggregates(column, types[column], shape)
        asked += [part.alias(f"{name}{number}") for name, part in parts.items()]
    [answer] = rows.agg(*asked).collect()
    seen = answer.asDict()
    total = int(seen["rows"])
    found = []
    for number, (column, shape) in enumerate(present.items()):
        parts = {name: seen.get(f"{name}{number}") for name in _PARTS}
        found.append(_statistics(rows, column, types[column], shape, total, parts))
    return Statistics(total, tuple(found))


def _aggregates(column: str, type_: str, shape: bool) -> dict[str, Column]:
    from pyspark.sql import functions as f

    value, kind = named(column), family(type_)
    parts = {"count": f.count(value)}
    if kind == "number":
        real = value.cast("double")
        # Whole numbers and decimals are summed exactly; a sum that does not fit is an error, never a wrong one.
        exact = value.cast("decimal(38,0)") if type_ == "long" else real if type_ in ("float", "double") else value
        parts |= {"sum": f.sum(exact), "mean": f.avg(real), "deviation": f.stddev_pop(real)}
    if kind == "number" or kind in _TIMES:
        point = _point(column, type_)
        parts |= {"least": f.min(point), "most": f.max(point)}
        if shape:
            steps = f.array(*(f.lit(step / STEPS) for step in range(STEPS + 1)))
            parts["quantiles"] = f.percentile_approx(point.cast("double"), steps, _ACCURACY)
    return parts


def named(column: str) -> Column:
    """A column by its name, whatever characters that has."""
    from pyspark.sql import functions as f

    return f.col(f"`{column.replace('`', '``')}`")


def _point(column: str, type_: str) -> Column:
    """The column as a number on a line."""
    from pyspark.sql import functions as f

    value = named(column)
    if type_ == "date":
        return f.unix_date(value)
    return f.unix_micros(value) if type_ == "timestamp" else value


def _statistics(
    rows: DataFrame, column: str, type_: str, shape: bool, total: int, parts: Mapping[str, Any]
) -> ColumnStatistics:
    categorical = family(type_) in ("string", "boolean")
    return ColumnStatistics(
        column=column,
        type=type_,
        count=parts["count"],
        nulls=total - parts["count"],
        total=None if parts["sum"] is None else str(parts["sum"]),
        mean=_finite(parts["mean"]),
        deviation=_finite(parts["deviation"]),
        least=_text(parts["least"], type_),
        most=_text(parts["most"], type_),
        quantiles=tuple(_bounded(value) for value in parts["quantiles"] or ()),
        categories=_categories(rows, column) if shape and categorical else (),
    )


def _categories(rows: DataFrame, column: str) -> tuple[tuple[str, int], ...]:
    from pyspark.sql import functions as f

    value = named(column)
    counted = rows.where(value.isNotNull()).groupBy(value.cast("string").alias("value")).agg(f.count("*").alias("rows"))
    found = counted.limit(CATEGORIES + 1).collect()
    if len(found) > CATEGORIES:
        raise TidefoldError(
            "TOO_MANY_CATEGORIES",
            f"Column `{column}` has more than {CATEGORIES:,} different values: its distribution cannot be compared.",
            hint="Check the distribution of columns of numbers, times, or few texts only.",
        )
    return tuple(sorted((row["value"], row["rows"]) for row in found))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _bounded(value: float) -> float:
    # JSON knows neither; Spark holds NaN for greater than every number.
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
    """Of numbers and times the largest difference, over all values x, in the share of rows up to x (Kolmogorov and
    Smirnov); of categories half the sum of the differences of their shares (total variation). Nulls are the last place
    of the line, or a category of their own.
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
    """The share of values up to x, to one step."""
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
