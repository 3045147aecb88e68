"""What a snapshot is compared with: the snapshot before it, snapshots of other logs, and earlier judgements."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from tidefold.domain.landed_range import find_landed_range
from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.table.schema import shape_at
from tidefold.errors import CorruptError
from tidefold.ledger import read_manifest
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.quarantine.next_step import advise_on_refused, has_extracts
from tidefold.quality.report.result import Findings, HistoryPoint, ValidationResult, point_of
from tidefold.quality.report.verdict_store import find_stored_judgement
from tidefold.quality.run.engine import QualityEngine
from tidefold.quality.run.references import Target
from tidefold.quality.run.run_checks import Baseline, ValidationContext, run_checks
from tidefold.quality.run.staged_rows import check_files
from tidefold.quality.suite.check import REFERENCES, Check
from tidefold.quality.suite.suite import Suite

_log = logging.getLogger(__name__)
_HISTORY = 20


@dataclass(frozen=True, slots=True)
class Case:
    """A snapshot to judge with a suite. Ages count up to `as_of`."""

    state: LogState
    snapshot: Snapshot
    suite: Suite
    as_of: str


def find(pipeline: Pipeline, case: Case, manifest: Manifest, engine: QualityEngine) -> Findings:
    """Runs all checks on the rows of the snapshot. Raises TidefoldError if a check could not be computed."""
    check_files(pipeline.store, manifest)
    base = _base(pipeline, case, manifest, engine)
    extracts = has_extracts(pipeline.log(case.state.log).source)
    landed = find_landed_range(case.state, case.snapshot, extracts=extracts)
    advice = advise_on_refused(pipeline, case.state)
    checks = case.suite.checks(manifest.rows, base.rows if base else None, landed, advice)
    beside = ValidationContext(case.as_of, base, _targets(pipeline, case, checks, engine))
    rows = engine.read(pipeline.store, manifest)
    found = run_checks(rows, manifest.shape, checks, beside, engine.meter())
    told = "%s: %d checks over %d rows in %.1f s; engine: %s"
    _log.info(told, case.state.log, len(found.checks), manifest.rows, found.seconds, engine.name)
    return found


def history_of(pipeline: Pipeline, state: LogState, before: int) -> tuple[HistoryPoint, ...]:
    """Returns the stored judgements of the snapshots before this one, oldest first."""
    judged = [s for s in state.snapshots if s.id < before and s.verdict and s.in_main_lineage]
    return tuple(_point(pipeline, state.log, snapshot) for snapshot in judged[-_HISTORY:])


def _point(pipeline: Pipeline, log: str, snapshot: Snapshot) -> HistoryPoint:
    found = _read_stored(pipeline, log, snapshot)
    if found is None:
        return HistoryPoint(snapshot.id, snapshot.rows, 0, 0, 0.0, state=snapshot.state)
    return point_of(found, snapshot.state)


def _read_stored(pipeline: Pipeline, log: str, snapshot: Snapshot) -> ValidationResult | None:
    """Returns the stored judgement of a snapshot. None if it cannot be read, because it is only used for comparison."""
    if snapshot.verdict is None:
        return None
    try:
        return find_stored_judgement(pipeline.store, log, snapshot.id, snapshot.manifest or "", snapshot.verdict.suite)
    except CorruptError as error:
        _log.warning("%s", error)
        return None


def _base(pipeline: Pipeline, case: Case, manifest: Manifest, engine: QualityEngine) -> Baseline | None:
    state = case.state
    base = state.snapshot(case.snapshot.base) if case.snapshot.base is not None else None
    # A snapshot as of an instant may have more or fewer rows than the newest one.
    if base is None or case.snapshot.as_of is not None:
        return None
    stored = _read_stored(pipeline, state.log, base)
    return Baseline(
        name=f"snapshot {base.id}",
        # Rows that were dropped for their age do not count as lost.
        rows=max(base.rows - manifest.expired, 0),
        types={c.name: c.type for c in shape_at(state, base.schema).table_columns},
        read=lambda: engine.read(pipeline.store, read_manifest(pipeline.store, state.log, base)),
        stored=stored.statistics if stored else (),
    )


def _targets(
    pipeline: Pipeline, case: Case, checks: Sequence[Check], engine: QualityEngine
) -> dict[tuple[str, bool], Target]:
    found: dict[tuple[str, bool], Target] = {}
    for check in checks:
        if check.type == REFERENCES:
            log, staged = check.kwargs["log"], check.kwargs["staged"]
            target = _target(pipeline, case, log, staged, engine)
            if target is not None:
                found[log, staged] = target
    return found


def _target(pipeline: Pipeline, case: Case, log: str, staged: bool, engine: QualityEngine) -> Target | None:
    """Returns the newest completed snapshot of a log; with `staged` the one that the same run staged, if any.

    Rows as of an instant are compared with those of the same instant if the run made them, also without `staged`.
    """
    state = case.state if log == case.state.log else pipeline.ledger(log).find()
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
