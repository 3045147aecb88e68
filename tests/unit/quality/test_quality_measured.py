"""Checks by numbers, and how far distributions are apart: exact at their limits, and never passed by default."""

from __future__ import annotations

import random
from bisect import bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import choose
from tidefold.quality.report.result import CheckResult
from tidefold.quality.run.run_checks import DriftInputs, judge_count, judge_numbers
from tidefold.quality.run.statistics import STEPS, ColumnStatistics, RowStatistics, find_wanted_columns, shift
from tidefold.quality.suite.check import COUNTED, DISTRIBUTION, FRESHNESS, SUM_DRIFT, Check

AS_OF = "2026-03-01T00:00:00+00:00"


def numbers(now: str | None, before: str | None, rows: int = 10, type_: str = "long") -> DriftInputs:
    stored = RowStatistics(rows, (ColumnStatistics("c", type_, rows, 0, total=before),))
    return DriftInputs(
        RowStatistics(rows, (ColumnStatistics("c", type_, rows, 0, total=now),)), AS_OF, stored, rows, "snapshot 1"
    )


def drift(facts: DriftInputs, **limits: float) -> CheckResult:
    return judge_numbers(Check("sum of c", SUM_DRIFT, {"column": "c", **limits}), facts)


@pytest.mark.parametrize(
    ("now", "before", "limits", "passed"),
    [
        ("110", "100", {"max_growth": 0.1}, True),
        ("111", "100", {"max_growth": 0.1}, False),
        ("90", "100", {"max_drop": 0.1}, True),
        ("89", "100", {"max_drop": 0.1}, False),
        ("500", "100", {"max_drop": 0.1}, True),
        ("-90", "-100", {"max_growth": 0.1}, True),
        ("-111", "-100", {"max_drop": 0.1}, False),
        ("0", "0", {"max_drop": 0}, True),
        ("1", "0", {"max_growth": 1000}, False),
        ("-1", "0", {"max_drop": 1000}, False),
        ("1", "0", {"max_drop": 0}, True),
        ("0.30", "0.3", {"max_growth": 0, "max_drop": 0}, True),
        (str((1 << 60) + 1), str(1 << 60), {"max_growth": 0}, False),
        ("nan", "100", {"max_growth": 9}, False),
        ("100", "inf", {"max_drop": 9}, False),
        (None, None, {"max_drop": 0}, True),
    ],
)
def test_a_sum_may_drift_by_exactly_the_share_given(
    now: str | None, before: str | None, limits: dict[str, float], passed: bool
) -> None:
    result = drift(numbers(now, before), **limits)
    assert (result.passed, bool(result.detail)) == (passed, not passed)
    assert result.compared == "snapshot 1"


def test_what_never_was_there_before_passes_and_says_so() -> None:
    first = DriftInputs(RowStatistics(1, (ColumnStatistics("c", "long", 1, 0, total="5"),)), AS_OF)
    assert "first snapshot" in (drift(first, max_drop=0).observed or "")
    added = DriftInputs(first.now, AS_OF, RowStatistics(1, ()), 1, "snapshot 1")
    assert drift(added, max_drop=0).observed == "no column `c` in snapshot 1: nothing to compare with"


@pytest.mark.parametrize(
    ("most", "seconds", "passed"),
    [
        ("2026-02-28T00:00:00+00:00", 86_400, True),
        ("2026-02-27T23:59:59.999999+00:00", 86_400, False),
        ("2026-02-28", 86_400, True),
        ("2026-02-27", 86_400, False),
        ("2027-01-01", 60, True),
        (None, 86_400, False),
    ],
)
def test_the_newest_value_may_be_as_old_as_allowed_at_the_frozen_instant(
    most: str | None, seconds: int, passed: bool
) -> None:
    """I24."""
    now = RowStatistics(1, (ColumnStatistics("c", "timestamp", 1, 0, most=most),))
    check = Check("fresh", FRESHNESS, {"column": "c", "max_age_seconds": seconds})
    assert judge_numbers(check, DriftInputs(now, AS_OF)).passed is passed


def line(values: list[float], nulls: int = 0) -> ColumnStatistics:
    """As Spark's exact percentiles are: the value of rank k/200."""
    ordered = sorted(values)
    steps = [ordered[max(-(-len(ordered) * step // STEPS) - 1, 0)] for step in range(STEPS + 1)] if ordered else []
    return ColumnStatistics("c", "double", len(ordered), nulls, quantiles=tuple(steps))


@settings(max_examples=choose(60, 150), deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 300), st.integers(1, 300), st.floats(-3, 3), st.booleans())
def test_the_shift_of_numbers_is_that_of_all_values_to_a_hundredth(
    seed: int, ones: int, others: int, apart: float, few: bool
) -> None:
    source = random.Random(seed)
    one = [source.gauss(0, 1) for _ in range(ones)]
    other = [source.gauss(apart, 2) for _ in range(others)]
    if few:
        one, other = [float(round(v)) for v in one], [float(round(v)) for v in other]
    nulls = source.randint(0, 50), source.randint(0, 50)
    sizes = ones + nulls[0], others + nulls[1]
    a, b = sorted(one), sorted(other)
    naive = max(abs(bisect_right(a, x) / sizes[0] - bisect_right(b, x) / sizes[1]) for x in {*a, *b})
    assert shift(line(one, nulls[0]), line(other, nulls[1])) == pytest.approx(naive, abs=0.011)


@pytest.mark.parametrize(
    ("one", "other", "moved"),
    [
        ((("a", 50), ("b", 50)), (("a", 50), ("b", 50)), 0.0),
        ((("a", 50), ("b", 50)), (("a", 100),), 0.5),
        ((("a", 10),), (("b", 99),), 1.0),
        ((("a", 60), ("b", 40)), (("a", 5), ("b", 5)), 0.1),
    ],
)
def test_the_shift_of_categories_is_the_share_of_rows_that_changed_place(
    one: tuple[tuple[str, int], ...], other: tuple[tuple[str, int], ...], moved: float
) -> None:
    first, second = (
        ColumnStatistics("c", "string", sum(n for _, n in pairs), 0, categories=pairs) for pairs in (one, other)
    )
    assert shift(first, second) == pytest.approx(moved)
    assert shift(second, first) == pytest.approx(moved)


def test_a_table_that_became_empty_moved_altogether() -> None:
    assert shift(line([]), line([1.0])) == 1.0
    assert shift(line([]), line([])) == 0.0
    assert shift(line([], nulls=5), line([1.0] * 5)) == 1.0


def test_stored_numbers_answer_only_what_they_hold() -> None:
    checks = [
        Check("s", SUM_DRIFT, {"column": "c"}),
        Check("d", DISTRIBUTION, {"column": "d"}),
        Check("f", FRESHNESS, {"column": "e"}),
    ]
    assert find_wanted_columns(checks) == {"c": False, "d": True, "e": False}
    assert find_wanted_columns(checks, compared_only=True) == {"c": False, "d": True}
    types = {"c": "long", "d": "double"}
    plain, shaped = ColumnStatistics("c", "long", 1, 0), ColumnStatistics("d", "double", 1, 0, quantiles=(1.0, 1.0))
    wanted = {"c": False, "d": True}
    assert RowStatistics(1, (plain, shaped)).answers(wanted, types)
    assert not RowStatistics(1, (plain,)).answers(wanted, types)
    assert not RowStatistics(1, (plain, ColumnStatistics("d", "double", 1, 0))).answers(wanted, types)
    assert not RowStatistics(1, (plain, shaped)).answers(wanted, {**types, "c": "int"})
    # A column that the base never had is asked of nobody.
    assert RowStatistics(1, (plain,)).answers(wanted, {"c": "long"})


@pytest.mark.parametrize(("count", "said"), [(1, "1 key has"), (2, "2 keys have")])
def test_a_count_of_keys_agrees_with_its_verb(count: int, said: str) -> None:
    for name in ("ties", "left_out"):
        found = judge_count(Check(name, COUNTED, {name: count, f"max_{name}": 0}))
        assert not found.passed
        assert found.detail.startswith(said)
        assert "`file`" not in found.detail
