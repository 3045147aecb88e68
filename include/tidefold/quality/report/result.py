"""The judgement of one snapshot as a frozen value: what was checked, what was seen, what it cost, in one line too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.quality.run.cost import CostPart
from tidefold.quality.run.statistics import ColumnStatistics
from tidefold.quality.suite.check import Check, Severity, canonical

SAMPLES = 10
_LONGEST_SAMPLE = 200
_NAMED = 3
_TREND = 30


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check saw. `unexpected` counts rows; `sample` holds at most `SAMPLES` of their values, as text, and
    `keys` (none for a table without a key) which rows those are.

    `detail` says in a few words what is wrong, for the summary; `arguments` and `observed` are texts for people;
    `compared` names the snapshot, or the frozen instant, that the rows were compared with.
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
    """What was seen of a check, without a sample."""
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
class RowCount:
    """Rows of one snapshot, a point of the trend."""

    snapshot: int
    rows: int


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """What a stored judgement said of one snapshot, a point of the plots. `sums`: column and its sum as text; `state`:
    what became of the snapshot, as far as it was known.
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
    """The whole content of verdict.json, and all that the report shows. `manifest` and `suite` are sha256 sums.

    `rows` is what the manifest counts, `seconds` the wall time of the checks, `cost` that of each part; `instant` (ISO
    8601) informs people only, and `as_of` is the frozen instant that ages are counted to. `statistics` are those of the
    columns that checks compare, so that the next snapshot need not read these rows again. `history` is what former
    judgements said. An `audit` judges a completed snapshot again and decides nothing.
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
    trend: tuple[RowCount, ...]
    seconds: float
    instant: str
    as_of: str = ""
    statistics: tuple[ColumnStatistics, ...] = ()
    cost: tuple[CostPart, ...] = ()
    history: tuple[HistoryPoint, ...] = ()
    audit: bool = False

    @property
    def jobs(self) -> int:
        """How many Spark jobs the checks took."""
        return sum(part.jobs for part in self.cost)


@dataclass(frozen=True, slots=True)
class Findings:
    """What running the checks brought: their results, the numbers of the rows, and what it cost."""

    checks: tuple[CheckResult, ...]
    statistics: tuple[ColumnStatistics, ...]
    cost: tuple[CostPart, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Circumstances:
    """When and how it was judged: see `ValidationResult`."""

    instant: str
    as_of: str = ""
    history: tuple[HistoryPoint, ...] = ()
    audit: bool = False


def conclude(
    state: LogState, snapshot: Snapshot, manifest: Manifest, suite: str, findings: Findings, how: Circumstances
) -> ValidationResult:
    """The judgement that follows from the results of all checks."""
    checks = findings.checks
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
        trend=_trend(state, snapshot),
        seconds=round(findings.seconds, 2),
        instant=how.instant,
        as_of=how.as_of,
        statistics=findings.statistics,
        cost=findings.cost,
        history=how.history,
        audit=how.audit,
    )


def point_of(judged: ValidationResult, state: str) -> HistoryPoint:
    """A judgement as a point of the plots."""
    sums = tuple((c.column, c.total) for c in judged.statistics if c.total is not None)
    failed, warned = sum(c.failed for c in judged.checks), sum(c.warned for c in judged.checks)
    return HistoryPoint(judged.snapshot, judged.rows, failed, warned, judged.seconds, sums, state)


def summarize(checks: Sequence[CheckResult]) -> str:
    """One line: `2 of 7 checks failed: aid unique (3 duplicates); row count 10 < 100`."""
    failed = [c for c in checks if c.failed]
    warned = [c for c in checks if c.warned]
    if failed:
        line = f"{len(failed)} of {_count(len(checks), 'check')} failed: {_list_checks(failed)}"
    else:
        line = f"{_count(len(checks) - len(warned), 'check')} passed"
    return f"{line}; {_count(len(warned), 'warning')}: {_list_checks(warned)}" if warned else line


def clip_text(text: str) -> str:
    """Text of bounded length: a sample is a hint, not a copy of the data. What does not print is shown as its escape,
    so no value can steer a terminal or turn the direction of the text around it.
    """
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:_LONGEST_SAMPLE])
    return shown if len(text) <= _LONGEST_SAMPLE else f"{shown}\u2026"


def _list_checks(checks: Sequence[CheckResult]) -> str:
    named = [_describe_check(c) for c in checks[:_NAMED]]
    rest = len(checks) - _NAMED
    return "; ".join([*named, f"{rest} more"] if rest > 0 else named)


def _describe_check(check: CheckResult) -> str:
    if not check.detail:
        return check.name
    reads_on = check.built_in and check.unexpected is None
    return f"{check.name} {check.detail}" if reads_on else f"{check.name} ({check.detail})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _trend(state: LogState, snapshot: Snapshot) -> tuple[RowCount, ...]:
    """Rows of the completed snapshots before this one, and of this one, which is alone as of an instant."""
    completed = [s for s in state.snapshots if s.state is State.COMPLETED and not s.as_of and not snapshot.as_of]
    before = [s for s in completed if s.id < snapshot.id]
    return tuple(RowCount(s.id, s.rows) for s in (*before, snapshot))[-_TREND:]
