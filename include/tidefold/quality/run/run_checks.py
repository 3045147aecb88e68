"""Runs all checks of a suite (expectations, numbers, references) over a snapshot, and measures each part.

Great Expectations names what it wants, and judges: `expectations.py`. References are SQL here, numbers in
`statistics.py`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import partial

from tidefold.domain.log_state import TableSpec
from tidefold.domain.wording import clip_text, count_noun
from tidefold.quality.report.result import SAMPLES, CheckResult, Findings, as_text, key_text, result
from tidefold.quality.run.bucket_counts import can_count
from tidefold.quality.run.cost import Meter, Reuse
from tidefold.quality.run.engine import JudgedRows
from tidefold.quality.run.expectations import compute, evaluate
from tidefold.quality.run.metrics import find_count
from tidefold.quality.run.statistics import ColumnStatistics, RowStatistics, collect, find_wanted_columns, shift
from tidefold.quality.suite.check import (
    COUNTED,
    DISTRIBUTION,
    FRESHNESS,
    MEAN_DRIFT,
    REFERENCES,
    REFUSED_RECORDS,
    ROW_COUNT_DRIFT,
    SOURCE_SNAPSHOT,
    STORED_COUNTS,
    Check,
    Types,
)

# What some keys have, and the next step.
_COUNTS = {
    "ties": (
        "different changes of one order: the later arrival counts",
        "Add a column that tells them apart to `order`",
    ),
    "left_out": ("no row: a value was not sent, and no earlier row has it", "`tidefold status` names them"),
}


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
    share = f"{refused:,} of {count_noun(new, 'new record')} since the last snapshot ({refused / max(new, 1):.1%})"
    parts = [f"{share}, allowed {allowed:.1%} (`quality.max_refused`)"] if refused else []
    parts += [f"{earlier:,} of earlier files still in quarantine"] if earlier else []
    advice = check.kwargs["advice"] or "See `tidefold quarantine list`"
    detail = f"{' and '.join(parts)}: their rows may be missing or stale. {advice.rstrip('.')}"
    counts = replace(check, kwargs={name: value for name, value in check.kwargs.items() if name != "advice"})
    return result(counts, False, observed=share if refused else parts[0], detail=detail)


def judge_count(check: Check) -> CheckResult:
    """Returns the result of a check that counts keys. Without a limit ties pass, and keys without a row do not."""
    name = next(name for name in _COUNTS if name in check.kwargs)
    count, most, (what, hint) = check.kwargs[name], check.kwargs[f"max_{name}"], _COUNTS[name]
    observed, is_limited = f"{count_noun(count, 'key')} {'has' if count == 1 else 'have'} {what}", most is not None
    passed = count <= most if is_limited else name == "ties"
    limit = f", allowed {most:,} (`quality.max_{name}`)" if is_limited else ""
    detail = "" if passed else f"{observed}{limit}. {hint}"
    return result(check, passed, observed=observed, detail=detail)


def judge_source_snapshot(check: Check) -> CheckResult:
    """Returns the result of the check of snapshots of the source without a last row. It never passes."""
    topics = ", ".join(f"`{topic}`" for topic in check.kwargs["topics"])
    observed = f"a snapshot of the source in {topics} has no last row"
    detail = (
        f"{observed}: it still goes on, or the connector was killed in it, and rows are missing. "
        "If it does not go on, signal it again"
    )
    return result(check, False, observed=observed, detail=detail)


# Judged by numbers of the ledger and of the fold.
_OF_NO_ROWS = {REFUSED_RECORDS: judge_refused, COUNTED: judge_count, SOURCE_SNAPSHOT: judge_source_snapshot}


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
    instant = datetime.fromisoformat(text)
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def _age(age: timedelta) -> str:
    sign, seconds = ("-" if age < timedelta(0) else ""), int(abs(age).total_seconds())
    days, rest = divmod(seconds, 86_400)
    return f"{sign}{f'{days} d ' if days else ''}{rest // 3600} h {rest % 3600 // 60:02d} min"


def _number(value: float | Fraction) -> str:
    exact = Fraction(value)
    return f"{exact.numerator:,}" if exact.denominator == 1 else f"{float(exact):,.6g}"


def _percent(share: float | Fraction) -> str:
    return f"{float(share):+.1%}" if math.isfinite(share) else ("+\u221e" if share > 0 else "-\u221e")


@dataclass(frozen=True, slots=True)
class Target:
    """The rows of the referenced snapshot, and its name for people."""

    name: str
    rows: JudgedRows


def judge_references(check: Check, rows: JudgedRows, target: Target | None, key: tuple[str, ...]) -> CheckResult:
    """Counts the rows whose value is missing in the target. Nulls are ignored. Without a target the check fails."""
    if target is None:
        return result(check, False, detail=f"`{check.kwargs['log']}` has no completed snapshot")
    column, other, *listed = map(rows.dialect.quote_name, (check.kwargs["column"], check.kwargs["log_column"], *key))
    values = f"SELECT {column} AS here, count(*) AS times FROM {rows.table} WHERE {column} IS NOT NULL GROUP BY 1"
    present = f"SELECT 1 FROM (SELECT DISTINCT {other} AS there FROM {target.rows.table}) AS present"
    [(unexpected, different)] = rows.query(
        f"SELECT sum(times), count(*) FROM ({values}) AS judged WHERE NOT EXISTS ({present} WHERE there = here)"
    )
    if not unexpected:
        return replace(result(check, True, compared=target.name), unexpected=0)
    detail = f"{count_noun(int(unexpected), 'row')} with {count_noun(different, 'missing value')}"
    judged = result(check, False, detail=detail, compared=target.name)
    samples = rows.query(
        f"SELECT {', '.join([column, *listed])} FROM {rows.table} AS judged "
        f"WHERE {column} IS NOT NULL AND NOT EXISTS ({present} WHERE there = judged.{column}) LIMIT {SAMPLES}"
    )
    keys = tuple(key_text(dict(zip(key, row[1:], strict=True))) for row in samples) if key else ()
    sample = tuple(clip_text(as_text(row[0])) for row in samples)
    return replace(judged, unexpected=int(unexpected), sample=sample, keys=keys)


# Key: the log, and whether a staged snapshot counts too.
Targets = Mapping[tuple[str, bool], Target]


@dataclass(frozen=True, slots=True)
class Baseline:
    """The snapshot that is compared with.

    rows: its rows, without those that expired since.
    read: returns its rows, for numbers that were not stored.
    """

    name: str
    rows: int
    types: Types
    read: Callable[[], JudgedRows]
    stored: tuple[ColumnStatistics, ...] = ()


@dataclass(frozen=True, slots=True)
class ValidationContext:
    """The frozen context of a judgement: the instant, the snapshot before, and snapshots of other logs."""

    as_of: str
    base: Baseline | None = None
    targets: Targets = field(default_factory=dict)


def run_checks(
    rows: JudgedRows, shape: TableSpec, checks: Sequence[Check], beside: ValidationContext, meter: Meter | None = None
) -> Findings:
    """Returns the results in the order of `checks`. Raises TidefoldError if a check could not be computed."""
    meter, begun = meter or Meter(), time.perf_counter()
    parts: dict[str, list[Check]] = {kind: [] for kind in ("expectations", "ledger", "numbers", "references")}
    for check in checks:
        parts[_kind_of(check)].append(check)
    references, judge_one = parts["references"], partial(_judge_reference, rows=rows, shape=shape, beside=beside)
    expected = evaluate(rows, parts["expectations"], shape.table_key, meter)
    statistics, judged = _judge_numbers(rows, shape, parts["numbers"], beside, meter)
    with meter.part("references", len(references)) if references else nullcontext():
        referenced = [compute(check.name, partial(judge_one, check)) for check in references]
    counted = [_OF_NO_ROWS[check.type](check) for check in parts["ledger"]]
    results = dict(zip(parts, map(iter, (expected, counted, judged, referenced)), strict=True))
    order = tuple(next(results[_kind_of(check)]) for check in checks)
    return Findings(order, statistics, tuple(meter.parts), time.perf_counter() - begun)


def _kind_of(check: Check) -> str:
    """Returns the part of the work that judges a check."""
    if not check.own:
        return "expectations"
    return "ledger" if check.type in _OF_NO_ROWS else "references" if check.type == REFERENCES else "numbers"


def account_rows(findings: Findings, checks: Sequence[Check], shape: TableSpec, rows: int, reuse: Reuse) -> Findings:
    """Returns the findings with the rows that each check read and took over. Wrong stored counts are a failed check."""

    def account(check: Check, judged: CheckResult) -> CheckResult:
        if check.type in _OF_NO_ROWS:
            return judged
        count = find_count(check, shape.types)
        if count is None or not can_count(count, shape):
            return replace(judged, read=rows, taken_over=0)
        read, taken = (reuse.read_keys, reuse.taken_keys) if count.same else (reuse.read, reuse.taken)
        return replace(judged, read=read, taken_over=taken)

    results = tuple(map(account, checks, findings.checks))
    if reuse.differs:
        check = Check("stored counts", STORED_COUNTS, {}, built_in=True)
        detail = f"of snapshot {reuse.snapshot} were wrong for {reuse.differs}; all rows were counted again"
        results = (*results, result(check, False, detail=detail))
    return replace(findings, checks=results, reuse=reuse)


def _judge_numbers(
    rows: JudgedRows, shape: TableSpec, checks: Sequence[Check], beside: ValidationContext, meter: Meter
) -> tuple[tuple[ColumnStatistics, ...], list[CheckResult]]:
    if not checks:
        return (), []
    what = ", ".join(c.name for c in checks[:3])
    with meter.part("numbers", len(checks)):
        now = compute(what, lambda: collect(rows, find_wanted_columns(checks), shape.types))
    base = beside.base
    before = _find_baseline_numbers(base, checks, what, meter) if base is not None else None
    facts = DriftInputs(now, beside.as_of, before, base.rows if base else None, base.name if base else "")
    return now.columns, [judge_numbers(check, facts) for check in checks]


def _find_baseline_numbers(base: Baseline, checks: Sequence[Check], what: str, meter: Meter) -> RowStatistics:
    """Returns the stored numbers. If a check needs others, computes them from the rows."""
    wanted, stored = find_wanted_columns(checks, compared_only=True), RowStatistics(base.rows, base.stored)
    if stored.answers(wanted, base.types):
        return stored
    with meter.part(f"numbers of {base.name}", len(checks)):
        return compute(what, lambda: collect(base.read(), wanted, base.types))


def _judge_reference(check: Check, rows: JudgedRows, shape: TableSpec, beside: ValidationContext) -> CheckResult:
    target = beside.targets.get((check.kwargs["log"], check.kwargs["staged"]))
    return judge_references(check, rows, target, shape.table_key)
