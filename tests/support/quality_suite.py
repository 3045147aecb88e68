"""Every kind of check over random tables, compared with a naive evaluation in Python: one suite of tests for all
engines.

A test file that imports these tests provides the fixtures `frames`, and `number`, which numbers the random cases. Each
limit is set where the naive result just passes, and where it just fails. Promise I8: what could not
be computed has not passed.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from tidefold.domain.log_state import Column, TableSpec
from tidefold.errors import TidefoldError
from tidefold.quality.report.result import CheckResult
from tidefold.quality.run.engine import JudgedRows
from tidefold.quality.run.run_checks import Baseline, Target, ValidationContext, run_checks
from tidefold.quality.suite.suite import load_suite

TYPES = {
    "id": "long",
    "shop": "int",
    "amount": "long",
    "price": "decimal(12,2)",
    "ratio": "double",
    "status": "string",
    "flag": "boolean",
    "day": "date",
    "at": "timestamp",
}
SHAPE = TableSpec(("id",), tuple(Column(n, t) for n, t in TYPES.items()), "arrival", 16, 4)
AS_OF = datetime(2026, 3, 1, tzinfo=UTC)
Row = dict[str, Any]


def random_row(seed: random.Random, number: int) -> Row:
    row: Row = {
        "id": number,
        "shop": seed.randint(0, 9),
        "amount": seed.randint(-1000, 5000),
        "price": Decimal(seed.randint(0, 100_000)) / 100,
        "ratio": seed.gauss(0, 1),
        "status": seed.choice(["open", "closed", "held"]),
        "flag": seed.random() < 0.3,
        "day": date(2026, 1, 1) + timedelta(days=seed.randint(0, 50)),
        "at": AS_OF - timedelta(minutes=seed.randint(60, 100_000)),
    }
    return {n: None if n != "id" and seed.random() < 0.05 else v for n, v in row.items()}


class Frames(Protocol):
    """Makes rows that an engine can judge."""

    def table(self, rows: list[Row]) -> JudgedRows:
        """Rows of TYPES."""
        ...

    def numbers(self, values: Iterable[int]) -> JudgedRows:
        """Rows of one column `number` of type int."""
        ...

    def broken(self, rows: list[Row]) -> JudgedRows:
        """Returns rows whose columns `price` and `shop` fail when they are read, as those of a damaged file do."""
        ...


@dataclass
class Case:
    """Two random tables, one after the other, and a third one that they refer to."""

    seed: int
    now: list[Row] = field(default_factory=list)
    before: list[Row] = field(default_factory=list)
    there: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        seed = random.Random(self.seed)
        self.before = [random_row(seed, n) for n in range(seed.randint(200, 400))]
        self.now = [random_row(seed, n) for n in range(seed.randint(200, 400))]
        for row in self.now[::7]:
            row["amount"] = (row["amount"] or 0) + seed.randint(0, 9000)
            row["status"] = "held"
        self.there = set(range(seed.randint(6, 9)))

    def values(self, column: str, rows: list[Row] | None = None) -> list[Any]:
        return [r[column] for r in (self.now if rows is None else rows) if r[column] is not None]

    def run(
        self, frames: Frames, entries: list[dict[str, Any]], folder: Path, rows: JudgedRows | None = None
    ) -> tuple[CheckResult, ...]:
        file = folder / "suite.yaml"
        file.write_text(yaml.safe_dump({"checks": entries}))
        suite = load_suite(file, SHAPE, 0.5, {"shops": {"number": "int"}})
        there = Target("shops snapshot 3", frames.numbers(self.there))
        targets = {("shops", False): there}
        base = Baseline("snapshot 1", len(self.before), TYPES, lambda: frames.table(self.before))
        beside = ValidationContext(AS_OF.isoformat(), base, targets)
        return run_checks(rows or frames.table(self.now), SHAPE, suite.own, beside).checks


def row_checks(case: Case) -> Iterator[tuple[dict[str, Any], bool, int]]:
    """Yields entries about single rows, the naive result, and the number of bad rows."""
    for column in ("id", "shop", "amount", "status"):
        bad = sum(r[column] is None for r in case.now)
        yield {"not_null": column}, bad == 0, bad
        twice = Counter(case.values(column))
        bad = sum(n for n in twice.values() if n > 1)
        yield {"unique": column}, bad == 0, bad
        share = bad / max(len(case.values(column)), 1)
        yield {"unique": column, "allow": min(share + 0.001, 0.999)}, share < 0.99, bad
        if 0.01 < share < 0.99:
            yield {"unique": column, "allow": share - 0.005}, False, bad
    pairs = Counter((r["shop"], r["status"]) for r in case.now if (r["shop"], r["status"]) != (None, None))
    bad = sum(n for n in pairs.values() if n > 1)
    yield {"unique": ["shop", "status"]}, bad == 0, bad
    yield {"unique": ["id", "shop"]}, True, 0
    for column in ("amount", "price", "ratio", "day", "at"):
        values = sorted(case.values(column))
        for low, high in ((values[0], values[-1]), (values[1], values[-3])):
            bad = sum(not low <= v <= high for v in values)
            yield {"range": {"column": column, "min": _plain(low), "max": _plain(high)}}, bad == 0, bad
    yield {"range": {"column": "amount", "min": min(case.values("amount"))}}, True, 0
    for allowed in (["open", "closed", "held"], ["open", "closed"]):
        bad = sum(v not in allowed for v in case.values("status"))
        yield {"in_set": {"column": "status", "values": allowed}}, bad == 0, bad
        bad = sum(v in allowed for v in case.values("status"))
        yield {"not_in_set": {"column": "status", "values": [*allowed]}}, bad == 0, bad
    yield {"not_in_set": {"column": "status", "values": ["lost"]}}, True, 0
    for most in (6, 4):
        bad = sum(not 4 <= len(v) <= most for v in case.values("status"))
        yield {"length": {"column": "status", "min": 4, "max": most}}, bad == 0, bad
    for regex, begin in (("^[och]", "och"), ("^[oc]", "oc")):
        bad = sum(v[0] not in begin for v in case.values("status"))
        yield {"matches": {"column": "status", "regex": regex}}, bad == 0, bad
    lost = sum(v not in case.there for v in case.values("shop"))
    yield {"references": {"column": "shop", "to": "shops.number"}}, lost == 0, lost


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value


def number_checks(case: Case) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yields entries about the whole table or a column; each limit once just passed, once just failed."""
    rows = len(case.now)
    yield {"row_count": {"min": rows, "max": rows}}, True
    yield {"row_count": {"min": rows + 1}}, False
    yield {"row_count": {"max": rows - 1}}, False
    yield from _limits("row_count_drift", {}, Fraction(rows), Fraction(len(case.before)))
    for column in ("amount", "price", "ratio"):
        now, before = (list(map(Fraction, case.values(column, r))) for r in (case.now, case.before))
        yield from _limits("sum_drift", {"column": column}, sum(now, Fraction(0)), sum(before, Fraction(0)))
        yield from _limits("mean_drift", {"column": column}, sum(now) / len(now), sum(before) / len(before))
    for column in ("day", "at"):
        newest = max(case.values(column))
        at = newest if isinstance(newest, datetime) else datetime(newest.year, newest.month, newest.day, tzinfo=UTC)
        minutes = int((AS_OF - at).total_seconds() // 60)
        yield {"freshness": {"column": column, "max_age": f"{minutes} minutes"}}, True
        yield {"freshness": {"column": column, "max_age": f"{minutes - 1} minutes"}}, False
    for column in ("amount", "price", "ratio", "status", "flag", "day", "at"):
        moved = naive_shift(case, column)
        # A step is half a percent; the sketch that Spark keeps adds a little.
        yield {"distribution": {"column": column, "max_shift": min(max(moved + 0.02, 0.01), 1)}}, True
        if moved > 0.04:
            yield {"distribution": {"column": column, "max_shift": moved - 0.02}}, False


def _limits(
    kind: str, column: dict[str, str], now: Fraction, before: Fraction
) -> Iterator[tuple[dict[str, Any], bool]]:
    change = float((now - before) / abs(before))
    limit = "max_growth" if change >= 0 else "max_drop"
    other = "max_drop" if change >= 0 else "max_growth"
    yield {kind: {**column, limit: abs(change) + 1e-6, other: 0}}, True
    yield {kind: {**column, limit: abs(change) - 1e-6}}, False


def naive_shift(case: Case, column: str) -> float:
    now, before = case.values(column), case.values(column, case.before)
    sizes = len(case.now), len(case.before)
    if column in ("status", "flag"):
        shares = [Counter(r[column] for r in rows) for rows in (case.now, case.before)]
        return sum(abs(shares[0][v] / sizes[0] - shares[1][v] / sizes[1]) for v in {*shares[0], *shares[1]}) / 2
    now, before = sorted(now), sorted(before)
    gaps = [abs(bisect_right(now, x) / sizes[0] - bisect_right(before, x) / sizes[1]) for x in {*now, *before}]
    return max([*gaps, abs(len(now) / sizes[0] - len(before) / sizes[1])])


def test_checks_of_single_rows_say_what_a_naive_look_says(frames: Frames, tmp_path: Path, number: int) -> None:
    """A4: exact counts of bad rows; samples carry the rows' keys, and those rows are bad ones."""
    case = Case(1 + number)
    expected = list(row_checks(case))
    results = case.run(frames, [entry for entry, _, _ in expected], tmp_path)
    found = [(r.passed, r.unexpected) for r in results]
    assert found == [(passed, bad) for _, passed, bad in expected]
    assert {True, False} == {r.passed for r in results}
    for result in results:
        assert result.passed or 0 < len(result.keys) == min(result.unexpected or 0, 10)
    lost = {f"id={r['id']}" for r in case.now if r["shop"] is not None and r["shop"] not in case.there}
    assert set(results[-1].keys) <= lost


def test_checks_of_columns_say_what_a_naive_look_says(frames: Frames, tmp_path: Path, number: int) -> None:
    case = Case(4 + number)
    expected = list(number_checks(case))
    results = case.run(frames, [entry for entry, _ in expected], tmp_path)
    wrong = [(entry, r) for (entry, passed), r in zip(expected, results, strict=True) if r.passed is not passed]
    assert not wrong
    assert all(r.detail for r in results if not r.passed)


def test_an_empty_table_has_no_bad_rows_and_is_not_fresh(frames: Frames, tmp_path: Path) -> None:
    case = Case(6)
    case.now = []
    entries = [
        {"unique": "id"}, {"not_null": "id"}, {"references": {"column": "shop", "to": "shops.number"}},
        {"freshness": {"column": "at", "max_age": "1 day"}}, {"distribution": {"column": "amount", "max_shift": 0.9}},
        {"sum_drift": {"column": "amount", "max_drop": 0.9}}, {"mean_drift": {"column": "amount", "max_drop": 0.9}},
        {"row_count_drift": {"max_drop": 0.9}},
    ]  # fmt: skip
    assert [r.passed for r in case.run(frames, entries, tmp_path)] == [True, True, True, *[False] * 5]


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"distribution": {"column": "status", "max_shift": 0.5}}, "TOO_MANY_CATEGORIES"),
        ({"sum_drift": {"column": "price", "max_drop": 0.5}}, "CHECK_NOT_COMPUTED"),
        ({"references": {"column": "shop", "to": "shops.number"}}, "CHECK_NOT_COMPUTED"),
        ({"matches": {"column": "status", "regex": "("}}, "CHECK_NOT_COMPUTED"),
    ],
)
def test_what_cannot_be_computed_is_an_error_and_never_a_pass(
    frames: Frames, tmp_path: Path, entry: dict[str, Any], code: str
) -> None:
    """I8, I23."""
    case = Case(7)
    case.now = [{**case.now[0], "id": n, "status": f"status {n}", "shop": 1} for n in range(1100)]
    with pytest.raises(TidefoldError) as refused:
        case.run(frames, [entry], tmp_path, frames.broken(case.now))
    assert refused.value.code == code
