"""The judgement of one snapshot as a frozen value: checks, findings, samples and cost, also as one line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidefold.domain.log_state import LogState, Snapshot
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.wording import clip_text, count_noun
from tidefold.quality.run.cost import CostPart, Reuse
from tidefold.quality.run.statistics import ColumnStatistics
from tidefold.quality.suite.check import Check, Severity, canonical

SAMPLES = 10
_NAMED = 3


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check.

    unexpected: the number of bad rows.
    sample: at most `SAMPLES` of their values, as text.
    keys: the keys of these rows; empty for a table without a key.
    detail: what is wrong, in a few words, for the summary.
    arguments, observed: texts for people.
    compared: the snapshot, or the frozen instant, that the rows were compared with.
    read, taken_over: how many rows were read now, and of how many earlier counts were used; None: it reads no rows.
    """

    name: str
    type: str
    arguments: str
    severity: str
    built_in: bool
    passed: bool
    observed: str | None = None
    unexpected: int | None = None
    sample: tuple[str, ...] = ()
    detail: str = ""
    keys: tuple[str, ...] = ()
    compared: str | None = None
    read: int | None = None
    taken_over: int | None = None

    @property
    def told_arguments(self) -> str:
        """Returns the arguments in words: `column: qty, max value: 1000`."""
        told = ((name.replace("_", " "), value) for name, value in json.loads(self.arguments).items())
        return ", ".join(f"{name}: {', '.join(map(str, v)) if isinstance(v, list) else v}" for name, v in told)

    @property
    def failed(self) -> bool:
        return not self.passed and self.severity == Severity.FAIL

    @property
    def warned(self) -> bool:
        return not self.passed and self.severity == Severity.WARN


def result(
    check: Check,
    passed: bool,
    *,
    observed: str | None = None,
    unexpected: int | None = None,
    detail: str = "",
    compared: str | None = None,
) -> CheckResult:
    """Builds the result of a check, without a sample."""
    return CheckResult(
        name=check.name,
        type=check.type,
        arguments=canonical(check.kwargs),
        severity=check.severity,
        built_in=check.built_in,
        passed=passed,
        observed=observed,
        unexpected=unexpected,
        detail=detail,
        compared=compared,
    )


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """One stored judgement, as a row of the trend.

    sums: columns with their sums as text.
    state: the last known state of the snapshot.
    """

    snapshot: int
    rows: int
    failed: int
    warned: int
    seconds: float
    sums: tuple[tuple[str, str], ...] = ()
    state: str = ""


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """The content of verdict.json, and of the report.

    manifest, suite: sha256 sums.
    rows: the row count of the manifest.
    seconds: the wall time of the checks.
    instant: when it was judged (ISO 8601), for people only.
    as_of: the frozen instant up to which ages count.
    statistics: of the compared columns, so that the next judgement need not read these rows.
    history: former judgements.
    audit: judges a completed snapshot again, and decides nothing.
    engine: the engine that ran the checks.
    read, taken_over, counted_by: of how many rows single values were counted now; of how many earlier counts were
    used, and of which snapshot these are.
    """

    log: str
    snapshot: int
    run: str
    manifest: str
    suite: str
    passed: bool
    summary: str
    checks: tuple[CheckResult, ...]
    rows: int
    base: int | None
    base_rows: int | None
    files: int
    files_carried: int
    bytes_full: int
    bytes_written: int
    seconds: float
    instant: str
    as_of: str = ""
    statistics: tuple[ColumnStatistics, ...] = ()
    cost: tuple[CostPart, ...] = ()
    history: tuple[HistoryPoint, ...] = ()
    audit: bool = False
    engine: str = ""
    read: int | None = None
    taken_over: int = 0
    counted_by: int | None = None

    @property
    def jobs(self) -> int:
        """Returns the number of Spark jobs of the checks."""
        return sum(part.jobs for part in self.cost)


@dataclass(frozen=True, slots=True)
class Findings:
    """The outcome of running the checks: their results, the statistics of the rows, and the cost.

    reuse: what was counted and what was taken over; None: all rows were read.
    """

    checks: tuple[CheckResult, ...]
    statistics: tuple[ColumnStatistics, ...]
    cost: tuple[CostPart, ...]
    seconds: float
    reuse: Reuse | None = None


@dataclass(frozen=True, slots=True)
class Circumstances:
    """When and how the snapshot was judged: see `ValidationResult`."""

    instant: str
    as_of: str = ""
    history: tuple[HistoryPoint, ...] = ()
    audit: bool = False
    engine: str = ""


def conclude(
    state: LogState, snapshot: Snapshot, manifest: Manifest, suite: str, findings: Findings, how: Circumstances
) -> ValidationResult:
    """Builds the judgement from the results of all checks."""
    checks, reuse = findings.checks, findings.reuse
    return ValidationResult(
        log=state.log,
        snapshot=snapshot.id,
        run=snapshot.run,
        manifest=snapshot.manifest or "",
        suite=suite,
        passed=not any(c.failed for c in checks),
        summary=summarize(checks),
        checks=checks,
        rows=manifest.rows,
        base=snapshot.base,
        base_rows=next((s.rows for s in state.snapshots if s.id == snapshot.base and not snapshot.as_of), None),
        files=len(manifest.files),
        files_carried=sum(f.carried for f in manifest.files),
        bytes_full=manifest.bytes_full,
        bytes_written=manifest.bytes_written,
        seconds=round(findings.seconds, 2),
        instant=how.instant,
        as_of=how.as_of,
        statistics=findings.statistics,
        cost=findings.cost,
        history=how.history,
        audit=how.audit,
        engine=how.engine,
        read=reuse.read if reuse else manifest.rows,
        taken_over=reuse.taken if reuse else 0,
        counted_by=reuse.snapshot if reuse and reuse.taken else None,
    )


def point_of(judged: ValidationResult, state: str) -> HistoryPoint:
    """Returns a judgement as a row of the trend."""
    sums = tuple((c.column, c.total) for c in judged.statistics if c.total is not None)
    failed, warned = sum(c.failed for c in judged.checks), sum(c.warned for c in judged.checks)
    return HistoryPoint(judged.snapshot, judged.rows, failed, warned, judged.seconds, sums, state)


def summarize(checks: Sequence[CheckResult]) -> str:
    """One line: `2 of 7 checks failed: aid unique (3 duplicates); row count 10 < 100`."""
    failed = [c for c in checks if c.failed]
    warned = [c for c in checks if c.warned]
    if failed:
        line = f"{len(failed)} of {count_noun(len(checks), 'check')} failed: {_list_checks(failed)}"
    else:
        line = f"{count_noun(len(checks) - len(warned), 'check')} passed"
    return f"{line}; {count_noun(len(warned), 'warning')}: {_list_checks(warned)}" if warned else line


def _list_checks(checks: Sequence[CheckResult]) -> str:
    named = [_describe_check(c) for c in checks[:_NAMED]]
    rest = len(checks) - _NAMED
    return "; ".join([*named, f"{rest} more"] if rest > 0 else named)


def _describe_check(check: CheckResult) -> str:
    if not check.detail:
        return check.name
    reads_on = check.built_in and check.unexpected is None
    return f"{check.name} {check.detail}" if reads_on else f"{check.name} ({check.detail})"


def as_text(value: object) -> str:
    """Returns a value of a row, or of Great Expectations, as text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={as_text(v)}" for name, v in value.items())
    if isinstance(value, str):
        return value
    try:
        return canonical(value)
    except (TypeError, ValueError):
        return str(value)


def key_text(key: Mapping[str, object]) -> str:
    """Returns the key of a row, such as `aid=7`."""
    return clip_text(as_text(key))
