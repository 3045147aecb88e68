"""Runs all checks of a suite (expectations, numbers, references) over a snapshot, and measures each part."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from tidefold.domain.log_state import TableSpec
from tidefold.errors import TidefoldError
from tidefold.quality.report.result import CheckResult, Findings
from tidefold.quality.run.cost import Meter
from tidefold.quality.run.drift_checks import DriftInputs, judge_numbers, judge_refused
from tidefold.quality.run.engine import JudgedRows
from tidefold.quality.run.expectations import evaluate, not_computed
from tidefold.quality.run.references import Target, judge_references
from tidefold.quality.run.statistics import ColumnStatistics, RowStatistics, collect, find_wanted_columns
from tidefold.quality.suite.check import REFERENCES, REFUSED_RECORDS, Check, Types

_T = TypeVar("_T")
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
    expectations = [c for c in checks if not c.own]
    results = dict(zip(map(id, expectations), evaluate(rows, expectations, shape.table_key, meter), strict=True))
    results |= {id(check): judge_refused(check) for check in checks if check.type == REFUSED_RECORDS}
    numbers, references = _select_own(checks, False), _select_own(checks, True)
    statistics: tuple[ColumnStatistics, ...] = ()
    if numbers:
        found, judged = _judge_numbers(rows, shape, numbers, beside, meter)
        statistics = found.columns
        results |= dict(zip(map(id, numbers), judged, strict=True))
    if references:
        with meter.part("references", len(references)):
            for check in references:
                results[id(check)] = _compute(check.name, partial(_judge_reference, check, rows, shape, beside))
    order = tuple(results[id(check)] for check in checks)
    return Findings(order, statistics, tuple(meter.parts), time.perf_counter() - begun)


def _select_own(checks: Sequence[Check], references: bool) -> list[Check]:
    of_rows = [c for c in checks if c.own and c.type != REFUSED_RECORDS]
    return [c for c in of_rows if (c.type == REFERENCES) is references]


def _judge_numbers(
    rows: JudgedRows, shape: TableSpec, checks: Sequence[Check], beside: ValidationContext, meter: Meter
) -> tuple[RowStatistics, list[CheckResult]]:
    types = {c.name: c.type for c in shape.table_columns}
    what = ", ".join(c.name for c in checks[:3])
    with meter.part("numbers", len(checks)):
        now = _compute(what, lambda: collect(rows, find_wanted_columns(checks), types))
    base = beside.base
    before = _find_baseline_numbers(base, checks, what, meter) if base is not None else None
    facts = DriftInputs(now, beside.as_of, before, base.rows if base else None, base.name if base else "")
    return now, [judge_numbers(check, facts) for check in checks]


def _find_baseline_numbers(base: Baseline, checks: Sequence[Check], what: str, meter: Meter) -> RowStatistics:
    """Returns the stored numbers. If a check needs others, computes them from the rows."""
    wanted, stored = find_wanted_columns(checks, compared_only=True), RowStatistics(base.rows, base.stored)
    if stored.answers(wanted, base.types):
        return stored
    with meter.part(f"numbers of {base.name}", len(checks)):
        return _compute(what, lambda: collect(base.read(), wanted, base.types))


def _judge_reference(check: Check, rows: JudgedRows, shape: TableSpec, beside: ValidationContext) -> CheckResult:
    target = beside.targets.get((check.kwargs["log"], check.kwargs["staged"]))
    return judge_references(check, rows, target, shape.table_key)


def _compute(what: str, compute: Callable[[], _T]) -> _T:
    try:
        return compute()
    except TidefoldError:
        raise
    except Exception as error:  # Any exception of Spark must become an error of this log, never a pass.
        raise not_computed(what, str(error)) from error
