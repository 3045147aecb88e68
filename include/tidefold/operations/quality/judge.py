"""Judges staged snapshots with their logs' suites, in one Spark session for all logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidefold.domain.log_state import State
from tidefold.domain.snapshot import transitions
from tidefold.errors import TidefoldError
from tidefold.ledger import read_manifest
from tidefold.operations.outcome import Details, Outcome, Status, omitted_if_none
from tidefold.operations.pipeline import Pipeline, now
from tidefold.operations.quality.baseline import Case, find, history_of, suite_of
from tidefold.quality.report.result import Circumstances, Judgement, conclude
from tidefold.quality.report.verdict_store import (
    store_judgement,
    store_report,
    stored_judgement,
    verdict_of,
    verdict_path,
)
from tidefold.quality.run.duckdb_rows import can_judge
from tidefold.quality.run.engine import QualityEngine
from tidefold.quality.run.expectations import load


def pending(pipeline: Pipeline, logs: Sequence[str], run_id: str | None) -> list[str]:
    """The logs whose rows `judge` would look at; for the others it needs no Spark. Loads no Great Expectations."""
    return [log for log in logs if _is_pending(pipeline, log, run_id)]


def _is_pending(pipeline: Pipeline, log: str, run_id: str | None) -> bool:
    try:
        case = _case(pipeline, log, run_id)
    except TidefoldError:
        return False  # An error to report: that needs no Spark.
    if case is None:
        return False
    verdict = case.snapshot.verdict
    return verdict is None or verdict.suite != case.suite.sha256


def weight(pipeline: Pipeline, log: str, run_id: str | None) -> int:
    """How many bytes `judge` would read of a log without Spark. Raises TidefoldError where it needs Spark."""
    case = _case(pipeline, log, run_id)
    return 0 if case is None else weigh(pipeline, case)


def weigh(pipeline: Pipeline, case: Case) -> int:
    """How many bytes the rows of a snapshot are. Raises TidefoldError where its suite needs Spark."""
    left_to_spark = [check.name for check in case.suite.own if not can_judge(check)]
    if left_to_spark:
        raise TidefoldError("SPARK_NEEDED", f"`{left_to_spark[0]}` can be judged only with Spark.")
    manifest = read_manifest(pipeline.store, case.state.log, case.snapshot)
    return sum(file.bytes for file in manifest.shown)


def judge(pipeline: Pipeline, logs: Sequence[str], run_id: str | None, engine: QualityEngine | None) -> list[Outcome]:
    """Gives every log's staged snapshot (of this run, or any when `run_id` is None) its verdict: passed or failed.

    A snapshot that this suite judged before keeps its verdict, and Spark is not asked: None will do when nothing is
    `pending`. Whatever keeps a check from being computed is an error of its log, never a pass; the others go on.
    """
    return [_outcome(pipeline, log, run_id, engine) for log in logs]


def _outcome(pipeline: Pipeline, log: str, run_id: str | None, engine: QualityEngine | None) -> Outcome:
    try:
        case = _case(pipeline, log, run_id)
    except TidefoldError as error:
        return Outcome.of_error(log, error)
    if case is None:
        return Outcome(log, Status.NOTHING, "no staged snapshot to judge")
    try:
        return _judge(pipeline, case, engine)
    except TidefoldError as error:
        return Outcome.of_error(log, error, case.snapshot.id)


def _case(pipeline: Pipeline, log: str, run_id: str | None) -> Case | None:
    pipeline.log(log)
    state = pipeline.ledger(log).find()
    if state is None:
        return None
    snapshot = state.open_of(run_id)
    if snapshot is None or snapshot.state is not State.STAGED:
        return None
    # The instant of its claim, or the one that it is as of: judging later must not make it older.
    instant = snapshot.instant if snapshot.as_of is None else str(snapshot.as_of)
    return Case(state, snapshot, suite_of(pipeline, state, snapshot), instant)


def _judge(pipeline: Pipeline, case: Case, engine: QualityEngine | None) -> Outcome:
    log, snapshot, suite = case.state.log, case.snapshot, case.suite.sha256
    store = pipeline.store
    judged = stored_judgement(store, log, snapshot.id, snapshot.manifest or "", suite)
    if judged is None:
        judged = store_judgement(store, judgement_of(pipeline, case, engine))
    # Also after a crash that came between the verdict file, the page and the ledger.
    report = store_report(store, judged)
    verdict = verdict_of(judged)
    pipeline.ledger(log).commit(lambda state: transitions.judge(state, snapshot.id, verdict))
    return _judged(pipeline, judged, report)


def judgement_of(pipeline: Pipeline, case: Case, engine: QualityEngine | None, *, audit: bool = False) -> Judgement:
    """Judges the rows of a snapshot; an audit counts its own verdict as history, too. Raises TidefoldError."""
    state, snapshot = case.state, case.snapshot
    if engine is None:
        done = "audited" if audit else "judged"
        raise TidefoldError("SPARK_NEEDED", f"Snapshot {snapshot.id} of `{state.log}` can be {done} only with Spark.")
    manifest = read_manifest(pipeline.store, state.log, snapshot)
    load()
    findings = find(pipeline, case, manifest, engine)
    history = history_of(pipeline, state, snapshot.id + 1 if audit else snapshot.id)
    how = Circumstances(now(), case.as_of, history, audit)
    return conclude(state, snapshot, manifest, case.suite.sha256, findings, how)


def _judged(pipeline: Pipeline, judged: Judgement, report: str) -> Outcome:
    verdict = verdict_path(judged.log, judged.snapshot, judged.suite)
    details = describe_judgement(judged, report=pipeline.store.uri(report), verdict=pipeline.store.uri(verdict))
    status = Status.PASSED if judged.passed else Status.FAILED
    message = f"snapshot {judged.snapshot} {status}: {judged.summary}"
    return Outcome(judged.log, status, message, judged.snapshot, details=details)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgementDetails(Details):
    """The numbers of a judgement, and what it cost.

    `checks`: how many there are; `failed` and `warnings`: how many of them did not pass.
    `suite`: sha256 of the suite.
    `report`, `verdict`: addresses of the page and of the stored result.
    `audit`: true for an audit.
    """

    rows: int
    base_rows: int | None
    checks: int
    failed: int
    warnings: int
    seconds: float
    jobs: int
    bytes: int
    suite: str
    report: str
    verdict: str
    audit: bool | None = omitted_if_none()


def describe_judgement(judged: Judgement, *, report: str, verdict: str, audit: bool | None = None) -> JudgementDetails:
    """The details of a judgement whose report and result are stored at these addresses."""
    return JudgementDetails(
        rows=judged.rows,
        base_rows=judged.base_rows,
        checks=len(judged.checks),
        failed=sum(c.failed for c in judged.checks),
        warnings=sum(c.warned for c in judged.checks),
        seconds=judged.seconds,
        jobs=judged.jobs,
        bytes=judged.bytes_full,
        suite=judged.suite,
        report=report,
        verdict=verdict,
        audit=audit,
    )
