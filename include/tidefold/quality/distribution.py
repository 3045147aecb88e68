"""How far two distributions are apart: the share of rows (0 to 1) that would have to move to make one the other's."""

from __future__ import annotations

from bisect import bisect_right

from tidefold.quality.statistics import ColumnStatistics


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
