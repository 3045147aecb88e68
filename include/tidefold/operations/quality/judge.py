"""Judges staged snapshots with their logs' suites, in one Spark session for all logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tidefold.domain.engine_name import EngineName
from tidefold.domain.log_state import State
from tidefold.domain.snapshot import transitions
from tidefold.domain.table.schema import shape_at
from tidefold.errors import CorruptError, NotFoundError, StorageError, TidefoldError
from tidefold.ledger import read_manifest
from tidefold.operations.outcome import Details, Outcome, Status, for_each_log, omit_if_none
from tidefold.operations.pipeline import Pipeline, now
from tidefold.operations.quality.baseline import Case, find, history_of
from tidefold.operations.quality.suites import load_configured_suite
from tidefold.quality.report.result import Circumstances, ValidationResult, conclude
from tidefold.quality.report.verdict_store import (
    find_stored_judgement,
    store_judgement,
    store_report,
    verdict_of,
    verdict_path,
)
from tidefold.quality.run.duckdb_rows import can_judge
from tidefold.quality.run.engine import QualityEngine
from tidefold.quality.run.gx_import import load


def prepare(pipeline: Pipeline, log: str, run_id: str | None) -> Case | Outcome:
    """Finds the staged snapshot to judge and its suite; an outcome if there is none. Raises TidefoldError."""
    pipeline.log(log)
    state = pipeline.ledger(log).find()
    snapshot = state.open_of(run_id) if state else None
    if state is None or snapshot is None or snapshot.state is not State.STAGED:
        return Outcome(log, Status.NOTHING, "no staged snapshot to judge")
    # Ages count up to the instant of the claim, so that a later judgement gives the same result.
    instant = snapshot.started_at if snapshot.as_of is None else str(snapshot.as_of)
    return Case(
        state,
        snapshot,
        load_configured_suite(pipeline.config, pipeline.log(log), shape_at(state, snapshot.schema)),
        instant,
    )


def is_judged(case: Case) -> bool:
    """Whether this suite has judged the snapshot before, so that its rows need not be read."""
    verdict = case.snapshot.verdict
    return verdict is not None and verdict.suite == case.suite.sha256


def weigh(pipeline: Pipeline, case: Case) -> int | None:
    """Returns the bytes of a snapshot's rows, at least 1; None: only Spark can judge them. Raises CorruptError.

    0 would mean that there is nothing to judge. A snapshot without rows is judged, too.
    """
    if not all(can_judge(check) for check in case.suite.own):
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
        with suppress(NotFoundError, CorruptError, StorageError):
            transitions.require_staged(pipeline.ledger(case.state.log).read(), case.snapshot)
        raise


def judge(
    pipeline: Pipeline, logs: Sequence[str], run_id: str | None, engine: QualityEngine | None, at_once: int = 1
) -> list[Outcome]:
    """Gives every log's staged snapshot (of this run, or any when `run_id` is None) its verdict: passed or failed.

    A snapshot that this suite judged before keeps its verdict, and no engine is needed. If a check cannot be computed,
    that is an error of its log, never a pass; the other logs continue.

    at_once: how many logs are judged at the same time; more than one only with an engine that allows it.
    """

    def act(log: str) -> Outcome:
        case = prepare(pipeline, log, run_id)
        return case if isinstance(case, Outcome) else judge_case(pipeline, case, engine)

    return for_each_log(logs, act, at_once)


def judge_case(pipeline: Pipeline, case: Case, engine: QualityEngine | None) -> Outcome:
    """Gives one snapshot its verdict; `engine` may be None if the suite judged it before."""
    try:
        with _explain_lost_files(pipeline, case):
            return _judge(pipeline, case, engine)
    except TidefoldError as error:
        return Outcome.of_error(case.state.log, error, case.snapshot.id)


def _judge(pipeline: Pipeline, case: Case, engine: QualityEngine | None) -> Outcome:
    log, snapshot, suite = case.state.log, case.snapshot, case.suite.sha256
    store = pipeline.store
    judged = find_stored_judgement(store, log, snapshot.id, snapshot.manifest or "", suite)
    if judged is None:
        judged = store_judgement(store, judgement_of(pipeline, case, engine))
    # Also completes a judgement that crashed between the verdict file, the page and the ledger.
    report = store_report(store, judged)
    verdict = verdict_of(judged)
    pipeline.ledger(log).commit(lambda state: transitions.judge(state, snapshot.id, verdict))
    stored = verdict_path(judged.log, judged.snapshot, judged.suite)
    return describe_judgement(judged, report=store.uri(report), verdict=store.uri(stored))


def judgement_of(
    pipeline: Pipeline, case: Case, engine: QualityEngine | None, *, audit: bool = False
) -> ValidationResult:
    """Judges the rows of a snapshot; an audit counts its own verdict as history, too. Raises TidefoldError."""
    state, snapshot = case.state, case.snapshot
    if engine is None:
        done = "audited" if audit else "judged"
        raise TidefoldError("SPARK_NEEDED", f"Snapshot {snapshot.id} of `{state.log}` can be {done} only with Spark.")
    manifest = read_manifest(pipeline.store, state.log, snapshot)
    load()
    findings = find(pipeline, case, manifest, engine)
    history = history_of(pipeline, state, snapshot.id + 1 if audit else snapshot.id)
    how = Circumstances(now(), case.as_of, history, audit, engine.name)
    return conclude(state, snapshot, manifest, case.suite.sha256, findings, how)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgementDetails(Details):
    """The numbers and the cost of a judgement.

    `checks`: how many there are; `failed` and `warnings`: how many of them did not pass.
    `suite`: sha256 of the suite.
    `report`, `verdict`: addresses of the page and of the stored result.
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
    audit: bool | None = omit_if_none()


def describe_judgement(judged: ValidationResult, *, report: str, verdict: str, audit: bool = False) -> Outcome:
    """Returns the outcome of a judgement. `report`, `verdict`: where its page and its result are stored."""
    details = JudgementDetails(
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
        audit=audit or None,
        engine=EngineName(judged.engine) if judged.engine else None,
    )
    status = Status.PASSED if judged.passed else Status.FAILED
    message = f"{'audit of ' if audit else ''}snapshot {judged.snapshot} {status}: {judged.summary}"
    return Outcome(judged.log, status, message, judged.snapshot, details=details)
