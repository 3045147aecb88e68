"""Judges snapshots with their logs' suites, staged and again, and finds the baseline that they are compared with."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.domain.snapshot import transitions
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.source_progress_history import find_landed_range
from tidefold.domain.table.schema_evolution import shape_at
from tidefold.domain.wording import EngineName
from tidefold.errors import CorruptError, NotFoundError, StorageError, TidefoldError
from tidefold.ledger import read_manifest
from tidefold.operations.ground.outcome import Details, Outcome, Status, for_each_log, omit_if_none
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.quality.suites import load_configured_suite
from tidefold.operations.quarantine.next_step import advise_on_refused, has_extracts
from tidefold.quality.report import verdict_store
from tidefold.quality.report.result import Circumstances, Findings, HistoryPoint, ValidationResult, conclude, point_of
from tidefold.quality.run.bucket_counts import check_files
from tidefold.quality.run.cost import Reuse
from tidefold.quality.run.count_memory import CountMemory
from tidefold.quality.run.count_task import JUDGE_AGAIN
from tidefold.quality.run.engine import QualityEngine
from tidefold.quality.run.gx_import import load
from tidefold.quality.run.metrics import can_judge
from tidefold.quality.run.run_checks import Baseline, Target, ValidationContext, account_rows, run_checks
from tidefold.quality.suite.check import REFERENCES, Check
from tidefold.quality.suite.suite import Suite, build_age_check

_log = logging.getLogger(__name__)
_HISTORY = 20


@dataclass(frozen=True, slots=True)
class Case:
    """A snapshot to judge with a suite. Ages count up to `as_of`.

    path, page: of the result as JSON, and of the report for people.
    audit: judges a completed snapshot again, and decides nothing.
    recount: takes nothing over from the counts of the base. An audit never does.
    live: the pipeline whose newest snapshot is the base, and whose logs are referenced; None: the one of the snapshot.
    """

    state: LogState
    snapshot: Snapshot
    suite: Suite
    as_of: str
    path: str
    page: str
    audit: bool = False
    recount: bool = False
    live: Pipeline | None = None


def find(
    pipeline: Pipeline, case: Case, manifest: Manifest, engine: QualityEngine, memory: CountMemory | None = None
) -> Findings:
    """Runs all checks on the rows of the snapshot. Raises TidefoldError if a check could not be computed."""
    check_files(pipeline.store, manifest)
    base = _base(pipeline, case, manifest, engine)
    extracts = has_extracts(pipeline.log(case.state.log).source)
    landed = find_landed_range(case.state, case.snapshot, extracts=extracts)
    advice = advise_on_refused(pipeline, case.state)
    before = base.rows if base else None
    if manifest.clears and case.snapshot.as_of is None:
        before = max(before or 0, manifest.cleared_rows)
    checks = case.suite.checks(manifest.rows, before, landed, advice, manifest.ties, manifest.unresolved)
    if before is not None and case.suite.max_row_drop < 1 and manifest.is_outdated:
        checks = (*checks, build_age_check(manifest.rows, manifest.expired))
    beside = ValidationContext(case.as_of, base, _targets(pipeline, case, checks, engine))
    rows = engine.read(pipeline.store, manifest, memory)
    findings = run_checks(rows, manifest.shape, checks, beside, engine.meter())
    reuse = memory.reuse if memory else None
    findings = account_rows(
        findings, checks, manifest.shape, manifest.rows, reuse or Reuse(manifest.rows, 0, manifest.rows, 0)
    )
    told = "%s: %d checks over %d rows in %.1f s; engine: %s"
    _log.info(told, case.state.log, len(findings.checks), manifest.rows, findings.seconds, engine.name)
    return findings


def history_of(pipeline: Pipeline, state: LogState, before: int) -> tuple[HistoryPoint, ...]:
    """Returns the stored judgements of the snapshots before this one, oldest first."""
    judged = [s for s in state.snapshots if s.id < before and s.verdict and s.in_main_lineage]
    return tuple(_point(pipeline, state.log, snapshot) for snapshot in judged[-_HISTORY:])


def _point(pipeline: Pipeline, log: str, snapshot: Snapshot) -> HistoryPoint:
    judged = _read_stored(pipeline, log, snapshot)
    if judged is None:
        return HistoryPoint(snapshot.id, snapshot.rows, 0, 0, 0.0, state=snapshot.state)
    return point_of(judged, snapshot.state)


def _read_stored(pipeline: Pipeline, log: str, snapshot: Snapshot) -> ValidationResult | None:
    """Returns the stored judgement of a snapshot. None if it cannot be read, because it is only used for comparison."""
    try:
        return verdict_store.find_judgement(pipeline.store, log, snapshot)
    except CorruptError as error:
        _log.warning("%s", error)
        return None


def _base(pipeline: Pipeline, case: Case, manifest: Manifest, engine: QualityEngine) -> Baseline | None:
    live, state = case.live or pipeline, case.state
    base = state.snapshot(case.snapshot.base) if case.snapshot.base is not None else None
    if case.live and (published := live.ledger(state.log).find()):
        state, base = published, published.latest
    # A snapshot as of an instant may have more or fewer rows than the newest one.
    if base is None or case.snapshot.as_of is not None:
        return None
    stored = _read_stored(live, state.log, base)
    return Baseline(
        name=f"snapshot {base.id}",
        # Rows that were dropped for their age do not count as lost.
        rows=max(base.rows - manifest.expired, 0),
        types=shape_at(state, base.schema).types,
        read=lambda: engine.read(live.store, read_manifest(live.store, state.log, base)),
        stored=stored.statistics if stored else (),
    )


def _targets(
    pipeline: Pipeline, case: Case, checks: Sequence[Check], engine: QualityEngine
) -> dict[tuple[str, bool], Target]:
    targets: dict[tuple[str, bool], Target] = {}
    for check in checks:
        if check.type == REFERENCES:
            log, staged = check.kwargs["log"], check.kwargs["staged"]
            target = _target(pipeline, case, log, staged, engine)
            if target is not None:
                targets[log, staged] = target
    return targets


def _target(pipeline: Pipeline, case: Case, log: str, staged: bool, engine: QualityEngine) -> Target | None:
    """Returns the newest completed snapshot of a log; with `staged` the one that the same run staged, if any.

    Rows as of an instant are compared with those of the same instant if the run made them, also without `staged`.
    """
    own = log == case.state.log
    pipeline = pipeline if own else case.live or pipeline
    state = case.state if own else pipeline.ledger(log).find()
    if state is None:
        return None
    ours = _find_of_run(state, case.snapshot) if staged or case.snapshot.as_of else None
    snapshot = ours or state.latest
    if snapshot is None:
        return None
    manifest = read_manifest(pipeline.store, log, snapshot)
    check_files(pipeline.store, manifest)
    name = f"{log} snapshot {snapshot.id}{' (staged)' if ours else ''}"
    return Target(name, engine.read(pipeline.store, manifest))


def _find_of_run(state: LogState, judged: Snapshot) -> Snapshot | None:
    """Returns the snapshot of a log that the run of the judged one made for the same purpose."""
    kept = (State.STAGED, State.COMPLETED) if judged.as_of else (State.STAGED,)
    mine = (s for s in reversed(state.snapshots) if s.run == judged.run and s.as_of == judged.as_of)
    return next((s for s in mine if s.state in kept), None)


def prepare(pipeline: Pipeline, log: str, run_id: str | None) -> Case | Outcome:
    """Finds the staged snapshot to judge and its suite; an outcome if there is none. Raises TidefoldError."""
    pipeline.log(log)
    state = pipeline.ledger(log).find()
    snapshot = state.find_open(run_id) if state else None
    if state is None or snapshot is None or snapshot.state is not State.STAGED:
        return Outcome(log, Status.NOTHING, "no staged snapshot to judge")
    # Ages count up to the instant of the claim, so that a later judgement gives the same result.
    instant = snapshot.started_at if snapshot.as_of is None else str(snapshot.as_of)
    suite = load_configured_suite(pipeline.config, pipeline.log(log), shape_at(state, snapshot.schema))
    of_suite = (log, snapshot.id, snapshot.manifest or "", suite.sha256)
    live = pipeline.plan_of.live if pipeline.plan_of else None
    paths = verdict_store.verdict_path(*of_suite), verdict_store.report_path(*of_suite)
    return Case(state, snapshot, suite, instant, *paths, live=live)


def prepare_audit(pipeline: Pipeline, log: str, run_id: str | None) -> Case | Outcome:
    """Finds the newest completed snapshot and its suite; an outcome if there is none. Raises TidefoldError."""
    pipeline.log(log)
    state = pipeline.ledger(log).find_current()
    if state is None or state.latest is None:
        return Outcome(log, Status.NOTHING, "no completed snapshot to audit")
    snapshot, instant = state.latest, now()
    suite = load_configured_suite(pipeline.config, pipeline.log(log), shape_at(state, snapshot.schema))
    # Named by the run, so that a retry finds it; without a run, by the instant.
    name = hashlib.sha256(run_id.encode()).hexdigest()[:16] if run_id else re.sub(r"\D", "", instant)[:14]
    return Case(
        state, snapshot, suite, instant, *verdict_store.audit_paths(log, snapshot.id, suite.sha256, name), audit=True
    )


def is_judged(pipeline: Pipeline, case: Case) -> bool:
    """Whether this suite has judged the snapshot before, so that its rows need not be read."""
    verdict = case.snapshot.verdict
    if case.audit:
        return _find_stored(pipeline, case) is not None
    return verdict is not None and verdict.suite == case.suite.sha256


def _find_stored(pipeline: Pipeline, case: Case) -> ValidationResult | None:
    log, snapshot = case.state.log, case.snapshot
    return verdict_store.find_stored_judgement(
        pipeline.store, log, snapshot.id, snapshot.manifest or "", case.suite.sha256, case.path
    )


def weigh(pipeline: Pipeline, case: Case) -> int | None:
    """Returns the bytes of a snapshot's rows, at least 1; None: only Spark can judge them. Raises CorruptError.

    0 would mean that there is nothing to judge. A snapshot without rows is judged, too.
    """
    types = shape_at(case.state, case.snapshot.schema).types
    if not all(can_judge(check, types) for check in case.suite.own):
        return None
    with _explain_lost_files(pipeline, case):
        manifest = read_manifest(pipeline.store, case.state.log, case.snapshot)
    return max(1, sum(file.bytes for file in manifest.shown))


@contextmanager
def _explain_lost_files(pipeline: Pipeline, case: Case) -> Iterator[None]:
    """Replaces an error by the real cause if the snapshot is not staged any more.

    Another process may abort or take over the snapshot, and delete its files while they are read.
    """
    try:
        yield
    except TidefoldError:
        if not case.audit:
            with suppress(NotFoundError, CorruptError, StorageError):
                transitions.require_staged(pipeline.ledger(case.state.log).read(), case.snapshot)
        raise


def judge(
    pipeline: Pipeline,
    logs: Sequence[str],
    run_id: str | None,
    engine: QualityEngine | None,
    at_once: int = 1,
    *,
    audit: bool = False,
    recount: bool = False,
) -> list[Outcome]:
    """Gives every log's staged snapshot (of this run, or any when `run_id` is None) its verdict: passed or failed.

    A snapshot that this suite judged before keeps its verdict, and no engine is needed. If a check cannot be computed,
    that is an error of its log, never a pass; the other logs continue.

    at_once: how many logs are judged at the same time; more than one only with an engine that allows it.
    audit: judges the newest completed snapshot instead, and changes nothing but its report. Ages count up to the start
    of the run. A repeated call of the same run returns the first result.
    recount: reads all rows, also those whose counts the base has.
    """

    def act(log: str) -> Outcome:
        case = prepare_audit(pipeline, log, run_id) if audit else prepare(pipeline, log, run_id)
        if isinstance(case, Outcome):
            return case
        return judge_case(pipeline, replace(case, recount=recount), engine)

    return for_each_log(logs, act, at_once)


audit = partial(judge, audit=True)


def judge_case(pipeline: Pipeline, case: Case, engine: QualityEngine | None) -> Outcome:
    """Gives one snapshot its verdict; `engine` may be None if the suite judged it before."""
    try:
        with _explain_lost_files(pipeline, case):
            return _judge(pipeline, case, engine)
    except TidefoldError as error:
        return Outcome.of_error(case.state.log, error, case.snapshot.id)


def _judge(pipeline: Pipeline, case: Case, engine: QualityEngine | None) -> Outcome:
    store = pipeline.store
    judged = _find_stored(pipeline, case)
    is_stored = judged is not None
    if judged is None:
        memory = None if case.audit else _open_memory(pipeline, case)
        judged = verdict_store.store_judgement(store, _judge_rows(pipeline, case, engine, memory), case.path)
        if memory:
            memory.keep()
    # Also completes a judgement that crashed between the verdict file, the page and the ledger.
    verdict_store.store_report(store, judged, case.page)
    if not case.audit:
        ledger, verdict = pipeline.ledger(case.state.log), verdict_store.verdict_of(judged)
        ledger.commit(lambda state: transitions.record_verdict(state, case.snapshot.id, verdict))
    outcome = describe_judgement(judged, report=store.uri(case.page), verdict=store.uri(case.path))
    if is_stored and case.recount:
        return replace(outcome, message=f"{outcome.message}; judged before, so --recount read nothing. {JUDGE_AGAIN}")
    return outcome


def _open_memory(pipeline: Pipeline, case: Case) -> CountMemory:
    state, snapshot = case.state, case.snapshot
    base = None if case.recount or snapshot.base is None else state.snapshot(snapshot.base)
    if base is None:
        return CountMemory(pipeline.store, state.log, snapshot.id)
    read = partial(read_manifest, pipeline.store, state.log, base)
    return CountMemory(pipeline.store, state.log, snapshot.id, base.id, read)


def _judge_rows(
    pipeline: Pipeline, case: Case, engine: QualityEngine | None, memory: CountMemory | None
) -> ValidationResult:
    state, snapshot = case.state, case.snapshot
    if engine is None:
        done = "audited" if case.audit else "judged"
        raise TidefoldError("SPARK_NEEDED", f"Snapshot {snapshot.id} of `{state.log}` can be {done} only with Spark.")
    manifest = read_manifest(pipeline.store, state.log, snapshot)
    load()
    findings = find(pipeline, case, manifest, engine, memory)
    # An audit counts the snapshot's own verdict as history, too.
    history = history_of(pipeline, state, snapshot.id + case.audit)
    how = Circumstances(now(), case.as_of, history, case.audit, engine.name)
    return conclude(state, snapshot, manifest, case.suite.sha256, findings, how)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgementDetails(Details):
    """The numbers and the cost of a judgement.

    `checks`: how many there are; `checks_failed` and `warnings`: how many of them did not pass.
    `suite`: sha256 of the suite.
    `report`, `verdict`: addresses of the page and of the stored result.
    `rows_read`: of how many rows single values were counted now. `rows_taken_over`: of how many the counts of snapshot
    `counted_by` were used.
    """

    rows: int
    base_rows: int | None
    checks: int
    checks_failed: int
    warnings: int
    seconds: float
    jobs: int
    bytes: int
    suite: str
    report: str
    verdict: str
    rows_read: int | None = omit_if_none()
    rows_taken_over: int | None = omit_if_none()
    counted_by: int | None = omit_if_none()
    audit: bool | None = omit_if_none()


def describe_judgement(judged: ValidationResult, *, report: str, verdict: str) -> Outcome:
    """Returns the outcome of a judgement. `report`, `verdict`: where its page and its result are stored."""
    details = JudgementDetails(
        rows=judged.rows,
        base_rows=judged.base_rows,
        checks=len(judged.checks),
        checks_failed=sum(c.failed for c in judged.checks),
        warnings=sum(c.warned for c in judged.checks),
        seconds=judged.seconds,
        jobs=judged.jobs,
        bytes=judged.bytes_full,
        suite=judged.suite,
        report=report,
        verdict=verdict,
        rows_read=judged.read,
        rows_taken_over=judged.taken_over if judged.read is not None else None,
        counted_by=judged.counted_by,
        audit=judged.audit or None,
        engine=EngineName(judged.engine) if judged.engine else None,
    )
    status = Status.PASSED if judged.passed else Status.FAILED
    message = f"{'audit of ' if judged.audit else ''}snapshot {judged.snapshot} {status}: {judged.summary}"
    if judged.counted_by is not None:
        of = f"{judged.taken_over:,} taken over from snapshot {judged.counted_by}"
        message = f"{message} ({judged.read:,} rows read, {of})"
    return Outcome(judged.log, status, message, judged.snapshot, details=details)
