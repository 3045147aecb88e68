"""Judges the statistics of a snapshot: drift against its base, freshness and distribution. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from tidefold.quality.report.result import CheckResult, result
from tidefold.quality.run.statistics import ColumnStatistics, RowStatistics, shift
from tidefold.quality.suite.check import DISTRIBUTION, FRESHNESS, MEAN_DRIFT, ROW_COUNT_DRIFT, Check


@dataclass(frozen=True, slots=True)
class DriftInputs:
    """The inputs of such checks.

    now: the numbers of the judged rows.
    base: the numbers of the snapshot that is compared; None: there is none.
    base_rows: the rows of that snapshot, without those that expired since.
    as_of: the frozen instant.
    """

    now: RowStatistics
    as_of: str
    base: RowStatistics | None = None
    base_rows: int | None = None
    base_name: str = ""


def judge_numbers(check: Check, numbers: DriftInputs) -> CheckResult:
    """Returns the result of one check. A check without a base to compare with passes, and reports so."""
    if check.type == FRESHNESS:
        return _freshness(check, numbers)
    if numbers.base is None:
        return result(check, True, observed="first snapshot: nothing to compare with")
    if check.type == ROW_COUNT_DRIFT:
        return _change(check, numbers.now.rows, numbers.base_rows or 0, numbers.base_name)
    column = check.kwargs["column"]
    now, before = numbers.now.of(column), numbers.base.of(column)
    if now is None:
        return result(check, False, detail="no such column")
    if before is None:
        return result(check, True, observed=f"no column `{column}` in {numbers.base_name}: nothing to compare with")
    if check.type == DISTRIBUTION:
        return _distribution(check, now, before, numbers.base_name)
    of = _mean if check.type == MEAN_DRIFT else _total
    return _change(check, of(now), of(before), numbers.base_name)


def judge_refused(check: Check) -> CheckResult:
    """Returns the result of the check that counts records in quarantine. It never passes."""
    refused, new, allowed, earlier = (check.kwargs[name] for name in ("refused", "new", "max_refused", "earlier"))
    share = f"{refused:,} of {new:,} new records since the last snapshot ({refused / max(new, 1):.1%})"
    parts = [f"{share}, allowed {allowed:.1%}"] if refused else []
    parts += [f"{earlier:,} of earlier files still in quarantine"] if earlier else []
    advice = check.kwargs["advice"] or "See `tidefold quarantine list`"
    detail = f"{' and '.join(parts)}: their rows may be missing or stale. {advice.rstrip('.')}"
    return result(check, False, observed=share if refused else parts[0], detail=detail)


def _change(check: Check, now: float | Fraction | None, before: float | Fraction | None, compared: str) -> CheckResult:
    if now is None or before is None:
        which = "this snapshot" if now is None else compared
        return result(check, False, detail=f"no number in {which}", compared=compared)
    least, most = -check.kwargs.get("max_drop", math.inf), check.kwargs.get("max_growth", math.inf)
    change = _relative(Fraction(now), Fraction(before))
    shown = f"{_number(now)}, was {_number(before)} ({_percent(change)})"
    detail = ""
    if change < _exact(least):
        detail = f"{_percent(change)}, allowed {_percent(least)}"
    elif change > _exact(most):
        detail = f"{_percent(change)}, allowed {_percent(most)}"
    return result(check, not detail, observed=shown, detail=detail, compared=compared)


def _relative(now: Fraction, before: Fraction) -> Fraction | float:
    if now == before:
        return Fraction(0)
    return (now - before) / abs(before) if before else math.copysign(math.inf, now - before)


def _exact(share: float) -> Fraction | float:
    # The number as the suite file writes it: 0.1 is a tenth, not 0.1000000000000000055.
    return Fraction(str(share)) if math.isfinite(share) else share


def _total(column: ColumnStatistics) -> Fraction | None:
    """Returns the sum. It is 0 for no values, and None if it is not a number."""
    try:
        return Fraction(column.total) if column.total is not None else Fraction(0)
    except ValueError:  # NaN, Infinity
        return None


def _mean(column: ColumnStatistics) -> Fraction | None:
    total = _total(column)
    return total / column.count if total is not None and column.count else None


def _freshness(check: Check, numbers: DriftInputs) -> CheckResult:
    column = numbers.now.of(check.kwargs["column"])
    if column is None or column.most is None:
        return result(check, False, detail="no value")
    as_of = _instant(numbers.as_of)
    age = as_of - _instant(column.most)
    allowed = timedelta(seconds=check.kwargs["max_age_seconds"])
    shown = f"{column.most}, {_age(age)} old at {numbers.as_of}"
    detail = f"{_age(age)} old, allowed {_age(allowed)}" if age > allowed else ""
    return result(check, not detail, observed=shown, detail=detail, compared=numbers.as_of)


def _distribution(check: Check, now: ColumnStatistics, before: ColumnStatistics, compared: str) -> CheckResult:
    if now.type != before.type and (now.categories or before.categories):
        return result(check, False, detail=f"was of type {before.type}", compared=compared)
    moved, allowed = shift(now, before), check.kwargs["max_shift"]
    detail = f"{moved:.1%} of the rows moved, allowed {allowed:.1%}" if moved > allowed else ""
    mean = "" if now.mean is None or before.mean is None else f"; mean {now.mean:.6g}, was {before.mean:.6g}"
    spread = "" if now.deviation is None or before.deviation is None else (
        f"; deviation {now.deviation:.6g}, was {before.deviation:.6g}"
    )  # fmt: skip
    return result(check, not detail, observed=f"{moved:.1%} moved{mean}{spread}", detail=detail, compared=compared)


def _instant(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _age(age: timedelta) -> str:
    sign, seconds = ("-" if age < timedelta(0) else ""), int(abs(age).total_seconds())
    days, rest = divmod(seconds, 86_400)
    return f"{sign}{f'{days} d ' if days else ''}{rest // 3600} h {rest % 3600 // 60:02d} min"


def _number(value: float | Fraction) -> str:
    exact = Fraction(value)
    return f"{exact.numerator:,}" if exact.denominator == 1 else f"{float(exact):,.6g}"


def _percent(share: float | Fraction) -> str:
    return f"{float(share):+.1%}" if math.isfinite(share) else ("+\u221e" if share > 0 else "-\u221e")
