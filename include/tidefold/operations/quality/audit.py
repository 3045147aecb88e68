"""Judges completed snapshots again with the current suites. Writes a report, and changes no verdict or snapshot."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tidefold.domain.table.schema import shape_at
from tidefold.operations.outcome import Outcome, Status, for_each_log
from tidefold.operations.pipeline import Pipeline, now
from tidefold.operations.quality.baseline import Case
from tidefold.operations.quality.judge import describe_judgement, judgement_of
from tidefold.operations.quality.suites import load_configured_suite
from tidefold.quality.report.result import ValidationResult
from tidefold.quality.report.verdict_store import audit_paths, find_stored_audit, store_audit
from tidefold.quality.run.engine import QualityEngine


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """The snapshot to audit, and where the result is stored.

    `path`: the path of the result as JSON.
    `page`: the path of the report for people.
    `stored`: the result of an earlier call of the same run; None: there is none.
    """

    case: Case
    path: str
    page: str
    stored: ValidationResult | None


def audit(
    pipeline: Pipeline, logs: Sequence[str], run_id: str | None, engine: QualityEngine | None, at_once: int = 1
) -> list[Outcome]:
    """Audits the newest completed snapshot of each log. Changes nothing but the report.

    A repeated call of the same run returns the first result. Ages count up to the start of the run.
    at_once: as for `judge`.
    """

    def act(log: str) -> Outcome:
        plan = prepare(pipeline, log, run_id)
        return plan if isinstance(plan, Outcome) else execute(pipeline, plan, engine)

    return for_each_log(logs, act, at_once)


def execute(pipeline: Pipeline, plan: AuditPlan, engine: QualityEngine | None) -> Outcome:
    """Audits one snapshot; `engine` may be None if the result is stored. Raises TidefoldError."""
    judged = plan.stored or judgement_of(pipeline, plan.case, engine, audit=True)
    judged = store_audit(pipeline.store, judged, plan.path, plan.page)
    store = pipeline.store
    return describe_judgement(judged, report=store.uri(plan.page), verdict=store.uri(plan.path), audit=True)


def prepare(pipeline: Pipeline, log: str, run_id: str | None) -> AuditPlan | Outcome:
    """Finds the newest completed snapshot and its suite; an outcome if there is none. Raises TidefoldError."""
    pipeline.log(log)
    state = pipeline.ledger(log).find_current()
    if state is None or state.latest is None:
        return Outcome(log, Status.NOTHING, "no completed snapshot to audit")
    snapshot, instant = state.latest, now()
    suite = load_configured_suite(pipeline.config, pipeline.log(log), shape_at(state, snapshot.schema))
    # Named by the run, so that a retry finds it; without a run, by the instant.
    name = hashlib.sha256(run_id.encode()).hexdigest()[:16] if run_id else re.sub(r"\D", "", instant)[:14]
    path, page = audit_paths(log, snapshot.id, suite.sha256, name)
    stored = find_stored_audit(pipeline.store, path, log, snapshot.id, snapshot.manifest or "", suite.sha256)
    return AuditPlan(Case(state, snapshot, suite, instant), path, page, stored)
