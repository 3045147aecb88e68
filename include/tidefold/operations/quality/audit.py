"""Judges completed snapshots again, with today's suites: a report, which changes no verdict and no snapshot."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tidefold.errors import TidefoldError
from tidefold.operations.outcome import Outcome, Status, each_log
from tidefold.operations.pipeline import Pipeline, now
from tidefold.operations.quality.baseline import Case, suite_of
from tidefold.operations.quality.judge import describe_judgement, judgement_of, weigh
from tidefold.quality.report.result import Judgement
from tidefold.quality.report.verdict_store import audit_paths, store_audit, stored_audit
from tidefold.quality.run.engine import QualityEngine


@dataclass(frozen=True, slots=True)
class _Audit:
    """What is audited, and where the result lies: `path` as JSON, `page` for people."""

    case: Case
    path: str
    page: str


def pending(pipeline: Pipeline, logs: Sequence[str], run_id: str | None) -> list[str]:
    """The logs whose rows `audit` would look at; for the others it needs no Spark."""
    return [log for log in logs if _is_pending(pipeline, log, run_id)]


def _is_pending(pipeline: Pipeline, log: str, run_id: str | None) -> bool:
    try:
        audit = _audit(pipeline, log, run_id)
        return audit is not None and _stored(pipeline, audit) is None
    except TidefoldError:
        return False  # An error to report: that needs no Spark.


def weight(pipeline: Pipeline, log: str, run_id: str | None) -> int:
    """How many bytes `audit` would read of a log without Spark. Raises TidefoldError where it needs Spark."""
    found = _audit(pipeline, log, run_id)
    return 0 if found is None else weigh(pipeline, found.case)


def audit(pipeline: Pipeline, logs: Sequence[str], run_id: str | None, engine: QualityEngine | None) -> list[Outcome]:
    """Audits the newest completed snapshot of each log: passed or failed. Nothing else changes, whatever it finds.

    The same run again answers what it found before. Ages are counted to the instant at which it begins.
    """
    return each_log(logs, lambda log: _act(pipeline, log, run_id, engine))


def _act(pipeline: Pipeline, log: str, run_id: str | None, engine: QualityEngine | None) -> Outcome:
    found = _audit(pipeline, log, run_id)
    if found is None:
        return Outcome(log, Status.NOTHING, "no completed snapshot to audit")
    judged = _stored(pipeline, found) or judgement_of(pipeline, found.case, engine, audit=True)
    judged = store_audit(pipeline.store, judged, found.path, found.page)
    return _judged(pipeline, judged, found)


def _audit(pipeline: Pipeline, log: str, run_id: str | None) -> _Audit | None:
    pipeline.log(log)
    state = pipeline.ledger(log).find()
    if state is None or state.latest is None:
        return None
    snapshot, instant = state.latest, now()
    suite = suite_of(pipeline, state, snapshot)
    # By its run, so that a retry finds it again; else by its instant.
    name = hashlib.sha256(run_id.encode()).hexdigest()[:16] if run_id else re.sub(r"\D", "", instant)[:14]
    paths = audit_paths(log, snapshot.id, suite.sha256, name)
    return _Audit(Case(state, snapshot, suite, instant), *paths)


def _stored(pipeline: Pipeline, audit: _Audit) -> Judgement | None:
    case = audit.case
    of = (case.state.log, case.snapshot.id, case.snapshot.manifest or "", case.suite.sha256)
    return stored_audit(pipeline.store, audit.path, *of)


def _judged(pipeline: Pipeline, judged: Judgement, audit: _Audit) -> Outcome:
    store = pipeline.store
    details = describe_judgement(judged, report=store.uri(audit.page), verdict=store.uri(audit.path), audit=True)
    status = Status.PASSED if judged.passed else Status.FAILED
    message = f"audit of snapshot {judged.snapshot} {status}: {judged.summary}"
    return Outcome(judged.log, status, message, judged.snapshot, details=details)
