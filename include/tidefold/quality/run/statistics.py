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
from tidefold.quality.run.engine import JudgedRows, SqlDialect
from tidefold.quality.suite.check import DISTRIBUTION, FRESHNESS, MEAN_DRIFT, SUM_DRIFT, Check, Types, family

# A distribution is stored as this many steps from the least value to the greatest.
STEPS = 200
# Text with more different values than this does not count as categories.
CATEGORIES = 1000
_GREATEST = 1.7976931348623157e308
TIMES = ("date", "timestamp")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Columns whose statistics are wanted. True: with their distribution.
Wanted = Mapping[str, bool]
_DRIFTS = (SUM_DRIFT, MEAN_DRIFT)


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
        stored = self.of(column)
        if stored is None or stored.type != types[column]:
            return False
        return not shape or not stored.count or bool(stored.quantiles or stored.categories)


def find_wanted_columns(checks: Iterable[Check], compared_only: bool = False) -> dict[str, bool]:
    """Returns what the checks need of the rows; with `compared_only`, what they need of the compared rows."""
    wanted: dict[str, bool] = {}
    kinds = _DRIFTS if compared_only else (*_DRIFTS, FRESHNESS)
    for check in checks:
        if check.type in kinds:
            wanted.setdefault(check.kwargs["column"], False)
        if check.type == DISTRIBUTION:
            wanted[check.kwargs["column"]] = True
    return wanted


def collect(rows: JudgedRows, wanted: Wanted, types: Types) -> RowStatistics:
    """Computes the statistics of the wanted columns that exist.

    Raises the engine's errors, and TidefoldError for a text column with too many different values.
    """
    present = {column: (types[column], shape) for column, shape in wanted.items() if column in types}
    total, numbers = _aggregate(rows, present)
    return RowStatistics(total, tuple(_statistics(rows, c, *present[c], total, parts) for c, parts in numbers.items()))


def _aggregate(rows: JudgedRows, columns: Mapping[str, tuple[str, bool]]) -> tuple[int, dict[str, dict[str, Any]]]:
    """Returns the number of rows, and the numbers of each column by name, from one query.

    columns: for each column its type, and whether to compute its quantiles.
    """
    parts = [
        (column, name, sql)
        for column, (type_, shape) in columns.items()
        for name, sql in _build_aggregates(rows.dialect, column, type_, shape).items()
    ]
    [(total, *values)] = rows.query(f"SELECT {', '.join(['count(*)', *(sql for *_, sql in parts)])} FROM {rows.table}")
    numbers: dict[str, dict[str, Any]] = {column: {} for column in columns}
    for (column, name, _), value in zip(parts, values, strict=True):
        numbers[column][name] = value
    return total, numbers


def _build_aggregates(dialect: SqlDialect, column: str, type_: str, shape: bool) -> dict[str, str]:
    value, kind = dialect.quote_name(column), family(type_)
    parts = {"count": f"count({value})"}
    point = {"date": dialect.days, "timestamp": dialect.microseconds}.get(kind, "{}").format(value)
    if kind == "number":
        real = f"CAST({value} AS DOUBLE)"
        # Whole numbers and decimals are summed exactly; a sum that does not fit is an error, never a wrong one.
        exact = (
            real if type_ in ("float", "double") else value if type_ != "long" else f"CAST({value} AS DECIMAL(38,0))"
        )
        parts |= {"sum": f"sum({exact})", "mean": f"avg({real})"}
        # Infinite values and NaN have no deviation: some engines raise an error for them.
        parts["deviation"] = f"stddev_pop({real}) FILTER (WHERE abs({real}) <= {_GREATEST})"
        parts["endless"] = f"count(*) FILTER (WHERE NOT abs({real}) <= {_GREATEST})"
    if kind in ("number", *TIMES):
        parts |= {"least": f"min({point})", "most": f"max({point})"}
        if shape:
            steps = ", ".join(str(step / STEPS) for step in range(STEPS + 1))
            parts["quantiles"] = dialect.quantiles.format(f"CAST({point} AS DOUBLE)", steps)
    return parts


def _statistics(
    rows: JudgedRows, column: str, type_: str, shape: bool, total: int, parts: Mapping[str, Any]
) -> ColumnStatistics:
    categorical = family(type_) in ("string", "boolean")
    return ColumnStatistics(
        column=column,
        type=type_,
        count=parts["count"],
        nulls=total - parts["count"],
        total=None if parts.get("sum") is None else str(parts["sum"]),
        mean=_finite(parts.get("mean")),
        deviation=None if parts.get("endless") else _finite(parts.get("deviation")),
        least=_text(parts.get("least"), type_),
        most=_text(parts.get("most"), type_),
        quantiles=tuple(_limit(value) for value in parts.get("quantiles") or ()),
        categories=_categories(rows, column) if shape and categorical else (),
    )


def _categories(rows: JudgedRows, column: str) -> tuple[tuple[str, int], ...]:
    counts = _count_values(rows, column, CATEGORIES)
    if len(counts) > CATEGORIES:
        raise TidefoldError(
            "TOO_MANY_CATEGORIES",
            f"Column `{column}` has over {CATEGORIES:,} different values, too many to compare their distribution.",
        )
    return tuple(sorted(counts))


def _count_values(rows: JudgedRows, column: str, most: int) -> list[tuple[str, int]]:
    """Returns at most `most` + 1 different values of a column as text, with their row counts, without nulls."""
    value = rows.dialect.quote_name(column)
    counted = f"SELECT CAST({value} AS STRING), count(*) FROM {rows.table} WHERE {value} IS NOT NULL GROUP BY 1"
    return [(text, count) for text, count in rows.query(f"{counted} LIMIT {most + 1}")]


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
