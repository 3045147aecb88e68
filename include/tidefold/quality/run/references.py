"""Checks references: each value of a column must exist in a snapshot of another table."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidefold.domain.wording import count_noun
from tidefold.quality.report.result import SAMPLES, CheckResult, clip_text, result
from tidefold.quality.run.engine import JudgedRows
from tidefold.quality.run.samples import as_text, key_text
from tidefold.quality.suite.check import Check


@dataclass(frozen=True, slots=True)
class Target:
    """The rows of the referenced snapshot, and its name for people."""

    name: str
    rows: JudgedRows


def judge_references(check: Check, rows: JudgedRows, target: Target | None, key: tuple[str, ...]) -> CheckResult:
    """Counts the rows whose value is missing in the target. Nulls are ignored. Without a target the check fails."""
    if target is None:
        return result(check, False, detail=f"`{check.kwargs['log']}` has no completed snapshot")
    missing = rows.find_missing(check.kwargs["column"], target.rows, check.kwargs["log_column"], key, SAMPLES)
    if not missing.rows:
        return replace(result(check, True, compared=target.name), unexpected=0)
    detail = f"{count_noun(missing.rows, 'row')} with {count_noun(missing.different, 'missing value')}"
    judged = result(check, False, detail=detail, compared=target.name)
    keys = tuple(key_text(dict(zip(key, row[1:], strict=True))) for row in missing.samples) if key else ()
    sample = tuple(clip_text(as_text(row[0])) for row in missing.samples)
    return replace(judged, unexpected=missing.rows, sample=sample, keys=keys)
