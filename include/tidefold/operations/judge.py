"""Judges staged snapshots with their logs' suites, in one Spark session for all logs (design 4.3)."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tidefold.ledger import read_manifest
from tidefold.lifecycle import moves
from tidefold.lifecycle.errors import TidefoldError
from tidefold.lifecycle.manifest import Manifest
from tidefold.lifecycle.schemas import shape_at
from tidefold.lifecycle.values import LogState, Snapshot, State
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline, now
from tidefold.quality.gate import evaluate, load
from tidefold.quality.judgement import Judgement, conclude
from tidefold.quality.staged import Session, check_files, read_rows
from tidefold.quality.suite import Suite, load_suite
from tidefold.quality.verdict import (
    store_judgement,
    store_report,
    stored_judgement,
    verdict_of,
    verdict_path,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Case:
    """A staged snapshot that waits for the verdict of a suite."""

    state: LogState
    snapshot: Snapshot
    suite: Suite


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


def judge(pipeline: Pipeline, logs: Sequence[str], run_id: str | None, spark: Session | None) -> list[Outcome]:
    """Gives every log's staged snapshot (of this run, or any when `run_id` is None) its verdict: passed or failed.

    A snapshot that this suite judged before keeps its verdict, and Spark is not asked: None will do when nothing is
    `pending`. Whatever keeps a check from being computed is an error of its log, never a pass; the others go on.
    """
    return [_outcome(pipeline, log, run_id, spark) for log in logs]


def _outcome(pipeline: Pipeline, log: str, run_id: str | None, spark: Session | None) -> Outcome:
    try:
        case = _case(pipeline, log, run_id)
    except TidefoldError as error:
        return Outcome.of_error(log, error)
    if case is None:
        return Outcome(log, "nothing", "no staged snapshot to judge")
    try:
        return _judge(pipeline, case, spark)
    except TidefoldError as error:
        return Outcome.of_error(log, error, case.snapshot.id)


def _case(pipeline: Pipeline, log: str, run_id: str | None) -> Case | None:
    config = pipeline.log(log)
    state = pipeline.ledger(log).find()
    if state is None:
        return None
    snapshot = state.attempt
    if snapshot is None or snapshot.state is not State.STAGED or (run_id is not None and snapshot.run != run_id):
        return None
    shape = shape_at(state, snapshot.schema)
    return Case(state, snapshot, load_suite(config.quality.suite, shape, config.quality.max_row_drop))


def _judge(pipeline: Pipeline, case: Case, spark: Session | None) -> Outcome:
    log, snapshot, suite = case.state.log, case.snapshot, case.suite.sha256
    store = pipeline.store
    judged = stored_judgement(store, log, snapshot.id, snapshot.manifest or "", suite)
    if judged is None:
        judged = store_judgement(store, _run_checks(pipeline, case, spark))
    # Also after a crash that came between the verdict file, the page and the ledger.
    report = store_report(store, judged)
    verdict = verdict_of(judged)
    pipeline.ledger(log).commit(lambda state: moves.judge(state, snapshot.id, verdict))
    return _judged(pipeline, judged, report)


def _run_checks(pipeline: Pipeline, case: Case, spark: Session | None) -> Judgement:
    state, snapshot = case.state, case.snapshot
    if spark is None:
        raise TidefoldError("SPARK_NEEDED", f"Snapshot {snapshot.id} of `{state.log}` can be judged only with Spark.")
    manifest = read_manifest(pipeline.store, state.log, snapshot)
    check_files(pipeline.store, manifest)
    base = state.snapshot(snapshot.base) if snapshot.base is not None else None
    load()
    begun = time.perf_counter()
    rows = read_rows(spark, pipeline.store, manifest)
    results = evaluate(rows, case.suite.checks(manifest.rows, _rows_before(manifest, base)))
    seconds = time.perf_counter() - begun
    _log.info("%s: %d checks over %d rows in %.1f s", state.log, len(results), manifest.rows, seconds)
    return conclude(state, snapshot, manifest, case.suite.sha256, results, seconds, now())


def _rows_before(manifest: Manifest, base: Snapshot | None) -> int | None:
    """How many rows are compared with: those that went for their age are no loss that anybody must look at."""
    return None if base is None else max(base.rows - manifest.expired, 0)


def _judged(pipeline: Pipeline, judged: Judgement, report: str) -> Outcome:
    facts = {
        "rows": judged.rows,
        "base_rows": judged.base_rows,
        "checks": len(judged.checks),
        "failed": sum(c.failed for c in judged.checks),
        "warnings": sum(c.warned for c in judged.checks),
        "seconds": judged.seconds,
        "suite": judged.suite,
        "report": pipeline.store.uri(report),
        "verdict": pipeline.store.uri(verdict_path(judged.log, judged.snapshot, judged.suite)),
    }
    result = "passed" if judged.passed else "failed"
    message = f"snapshot {judged.snapshot} {result}: {judged.summary}"
    return Outcome(judged.log, result, message, judged.snapshot, facts=facts)
