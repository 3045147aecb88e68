"""Folds what arrived since the last snapshot into a new one, and stages it for the quality gate.

A restore is the same work on an older snapshot: its files are proved and taken over, and what its tail holds is folded
in.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from tidefold.compute.runners import Answer, Runner
from tidefold.domain.external_snapshot import External, Layout
from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind, State, TableSpec
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot import claim, transitions
from tidefold.domain.snapshot.manifest import Manifest, home
from tidefold.domain.source_progress_history import positions_at
from tidefold.domain.table.schema import lost, must_rewrite, shape_at
from tidefold.domain.verify.expected_files import Where
from tidefold.errors import SupersededError, TidefoldError, unforeseen
from tidefold.fold.fold_bucket import fold_bucket
from tidefold.fold.plan import Places, plan_fold
from tidefold.fold.task import Address, FoldResult
from tidefold.ledger import read_manifest
from tidefold.operations.ingest.schema_update import apply_configured_schema, preview_configured_schema
from tidefold.operations.local_copies.manage import clear_leftovers, places_of
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.restore.plan import Into, manifest_of, plan_restore, require_rows, wanted_by
from tidefold.operations.retention.file_gc import sweep
from tidefold.operations.savepoint.external import checked_original, original_at
from tidefold.operations.savepoint.import_plan import plan_import, with_originals
from tidefold.operations.snapshot import point_in_time
from tidefold.operations.snapshot.confirm import roll_forward
from tidefold.operations.snapshot.heartbeat import Heartbeat, heartbeat
from tidefold.operations.snapshot.read_sources import failures
from tidefold.operations.snapshot.request import Asking, claim_of
from tidefold.operations.snapshot.stage import Attempt, stage

_log = logging.getLogger(__name__)


def pending(pipeline: Pipeline, logs: Sequence[str], asking: Asking) -> list[str]:
    """The logs that `materialize` would fold; the others have nothing new or are refused. Asks the ledgers only."""
    would = point_in_time.would_fold if asking.as_of is not None else _would_import if asking.imported else _would_fold
    return [log for log in logs if would(pipeline, log, asking)]


def _would_import(pipeline: Pipeline, log: str, asking: Asking) -> bool:
    try:
        external = _external(pipeline, log, asking)
        state = pipeline.ledger(log).peek(pipeline.log(log).shape)
        claimed = claim.claim(state, claim_of(pipeline, state, asking, external))
        # The files of a native one are taken over.
        return claimed != state and external is not None and external.layout is Layout.CANONICAL
    except TidefoldError:
        return False  # An error to report: that needs no Spark.


def _external(pipeline: Pipeline, log: str, asking: Asking) -> External | None:
    """What is imported, checked before anything is claimed."""
    wanted = asking.imported
    return checked_original(pipeline, log, wanted).external(wanted.ownership) if wanted else None


def _would_fold(pipeline: Pipeline, log: str, asking: Asking) -> bool:
    if not pipeline.ledger(log).exists():
        return False
    try:
        roll_forward(pipeline, log)
        claimed = _would_claim(pipeline, log, asking)
        # The return of a whole snapshot folds nothing: its files are taken over. So is a full one of what is there.
        return claimed is not None and _has_rows_to_write(pipeline, *claimed)
    except TidefoldError:
        return False  # An error to report: that needs no Spark.


def _would_claim(pipeline: Pipeline, log: str, asking: Asking) -> tuple[LogState, Snapshot] | None:
    """The log and its attempt, were it claimed; None: there is nothing to claim."""
    state = preview_configured_schema(pipeline, pipeline.ledger(log).read())
    claimed = claim.claim(state, claim_of(pipeline, state, asking))
    return (claimed, claimed.attempt) if claimed != state and claimed.attempt else None


def weight(pipeline: Pipeline, log: str, asking: Asking) -> int:
    """About how many bytes `materialize` would read of a log. Claims nothing. Raises TidefoldError."""
    if asking.imported:
        return original_at(asking.imported.address).savepoint.bytes
    would = point_in_time.would_claim if asking.as_of is not None else _would_claim
    claimed = would(pipeline, log, asking)
    return sum(task.weight for task in _plan(pipeline, *claimed, asking.restore).tasks) if claimed else 0


def _has_rows_to_write(pipeline: Pipeline, state: LogState, attempt: Snapshot) -> bool:
    rescaled = attempt.kind is SnapshotKind.FULL and state.shape.buckets != pipeline.log(state.log).shape.buckets
    source = None if attempt.source is None else state.snapshot(attempt.source)
    reshaped = source is not None and must_rewrite(state.schemas, source.schema, attempt.schema)
    anew = attempt.origin is None and (rescaled or attempt.expire is not None)
    return attempt.folds_to > attempt.from_sqn or reshaped or anew or _has_deletions(pipeline, state, attempt, source)


def _has_deletions(pipeline: Pipeline, state: LogState, attempt: Snapshot, source: Snapshot | None) -> bool:
    """Whether there are rows to write because neither a full snapshot nor a restored one has deletions."""
    if source is None or (attempt.kind is not SnapshotKind.FULL and attempt.origin is None):
        return False
    return any(file.deletions for file in read_manifest(pipeline.store, state.log, source).files)


def materialize(pipeline: Pipeline, logs: Sequence[str], asking: Asking, run: Runner) -> list[Outcome]:
    """Makes a snapshot of each log that has something new, all of them in one round of tasks.

    A log that cannot be folded gives an error outcome and is left as it was; the others go on.
    """
    # From the first claim until the last file is taken over: in an object store that is a copy of the whole table.
    with heartbeat(pipeline.ledger) as heart:
        begun = [_begin(pipeline, log, asking, heart) for log in logs]
        attempts = [a for a in begun if isinstance(a, Attempt)]
        tasks = sorted((t for a in attempts for t in a.tasks), key=lambda task: -task.weight)
        _log.info("folding %d buckets of %d logs", len(tasks), len(attempts))
        answers = run(fold_bucket, [msgspec.json.encode(task).decode() for task in tasks])
        folded = {a.log: [r for t, r in zip(tasks, answers, strict=True) if t.log == a.log] for a in attempts}
        return [b if isinstance(b, Outcome) else _finish(pipeline, b, folded[b.log]) for b in begun]


def _begin(pipeline: Pipeline, log: str, asking: Asking, heart: Heartbeat) -> Attempt | Outcome:
    try:
        claimed = (_claim if asking.as_of is None else point_in_time.begin)(pipeline, log, asking)
    except TidefoldError as error:
        return Outcome.of_error(log, error)
    if isinstance(claimed, Outcome):
        return claimed
    heart.add(log, claimed.id)
    try:
        return (
            _imported(pipeline, log, claimed) if claimed.external else _planned(pipeline, log, claimed, asking.restore)
        )
    except Exception as error:
        return _given_up(pipeline, log, claimed, error)


def _claim(pipeline: Pipeline, log: str, asking: Asking) -> Snapshot | Outcome:
    ledger = pipeline.ledger(log)
    shape = pipeline.log(log).shape
    external = _external(pipeline, log, asking)
    if external:
        ledger.begin(shape)
    elif not ledger.exists():
        if asking.restore:
            ledger.read()  # Raises what says so: nothing was restored.
        return Outcome(log, Status.NOTHING, "nothing was ingested yet")
    roll_forward(pipeline, log)
    apply_configured_schema(pipeline, ledger.read(), asking.run or "")
    state = ledger.commit(lambda current: claim.claim(current, claim_of(pipeline, current, asking, external)))
    mine = claim.of_run(state, asking.run or "")
    if mine is None:
        return Outcome(log, Status.NOTHING, f"nothing new to fold{_waiting(state, pipeline.log(log).shape)}")
    if mine.state is not State.ONGOING:
        return Outcome(log, Status.ALREADY, f"snapshot {mine.id} of this run is {mine.state}", mine.id)
    return mine


def _waiting(state: LogState, configured: TableSpec) -> str:
    if state.latest is None:
        return ""
    waiting = [] if state.shape.buckets == configured.buckets else [f"{configured.buckets} buckets"]
    waiting += [f"schema {state.schema}"] if state.latest.schema != state.schema else []
    verb = "wait" if len(waiting) > 1 or waiting[:1] == [f"{configured.buckets} buckets"] else "waits"
    said = f"; {' and '.join(waiting)} {verb} for the next full snapshot (`--kind full` makes one)"
    return said if waiting else ""


def _planned(pipeline: Pipeline, log: str, snapshot: Snapshot, restore: claim.Restore | None) -> Attempt:
    ledger = pipeline.ledger(log)
    sweep(pipeline.store, ledger)
    state = ledger.read()
    clear_leftovers(pipeline, log, state)
    return _plan(pipeline, state, snapshot, restore)


def _plan(pipeline: Pipeline, state: LogState, snapshot: Snapshot, restore: claim.Restore | None) -> Attempt:
    """What an attempt has to do. Reads manifests only."""
    places = places_of(pipeline, state.log)
    if restore:
        return _planned_restore(pipeline, state, snapshot, with_originals(state, places), restore)
    below = state.snapshot(snapshot.source) if snapshot.source is not None else None
    base = manifest_of(pipeline, state.log, below) if below else None
    config = pipeline.log(state.log)
    shape = _shape_of(state, snapshot, base, config.shape)
    tasks = plan_fold(state, snapshot, base, shape, places, config.deletion_vectors)
    return Attempt(state.log, snapshot, base, shape, tasks, {}, state.schemas, positions_at(state, snapshot.to_sqn))


def _planned_restore(
    pipeline: Pipeline, state: LogState, snapshot: Snapshot, places: Places, restore: claim.Restore
) -> Attempt:
    paths = LogPaths(state.log)
    target = Address(Where.STORE, places.store, home(state.log, snapshot.kind, snapshot.id))
    into = Into(target, snapshot.id, snapshot.epoch, paths.table, pipeline.config.snapshots.copies, snapshot.token)
    wanted = wanted_by(state, snapshot)
    planned = plan_restore(pipeline, wanted, places, into)
    facts = {**_restoring(state, snapshot, restore), "recorded": wanted.rows, "manifests": failures(planned.failed)}
    known = (state.schemas, positions_at(state, snapshot.to_sqn))
    return Attempt(state.log, snapshot, planned.base, planned.shape, planned.tasks, facts, *known)


def _imported(pipeline: Pipeline, log: str, snapshot: Snapshot) -> Attempt:
    ledger, external = pipeline.ledger(log), snapshot.external
    assert external is not None
    sweep(pipeline.store, ledger)
    places, copies = Places(pipeline.store.uri("")), pipeline.config.snapshots.copies
    shape, tasks = plan_import(snapshot, external, log, pipeline.log(log).shape, places, copies)
    skipped = (snapshot.folds_to + 1, snapshot.to_sqn) if snapshot.folds_to < snapshot.to_sqn else None
    facts = {"imported": external.address, "mode": external.ownership, "skipped": skipped, "replayed": None}
    return Attempt(log, snapshot, None, shape, tasks, facts)


def _shape_of(state: LogState, snapshot: Snapshot, base: Manifest | None, configured: TableSpec) -> TableSpec:
    """The number of buckets changes with a full snapshot only: an incremental one shares files of the old buckets."""
    buckets = configured.buckets if snapshot.kind is SnapshotKind.FULL or base is None else base.shape.buckets
    return replace(shape_at(state, snapshot.schema), buckets=buckets)


def _restoring(state: LogState, snapshot: Snapshot, restore: claim.Restore) -> dict[str, Any]:
    """What a restore does with the changes after it: their sqns, first and last, or None when there are none."""
    skipped = (snapshot.folds_to + 1, snapshot.to_sqn) if snapshot.folds_to < snapshot.to_sqn else None
    replayed = (snapshot.to_sqn + 1, state.last_sqn) if snapshot.to_sqn < state.last_sqn else None
    source = None if snapshot.source is None else state.snapshot(snapshot.source)
    gone = list(lost(state.schemas, source.schema, snapshot.schema)) if source else []
    said = {"columns_gone": gone} if gone else {}
    return {"restored": restore.snapshot, "mode": restore.mode, "skipped": skipped, "replayed": replayed, **said}


def _finish(pipeline: Pipeline, attempt: Attempt, answers: Sequence[Answer]) -> Outcome:
    try:
        results = _results(answers)
        require_rows(attempt.log, attempt.facts.get("recorded"), results)
        return stage(pipeline, attempt, results)
    except Exception as error:
        return _given_up(pipeline, attempt.log, attempt.snapshot, error)


def _results(answers: Sequence[Answer]) -> list[FoldResult]:
    for answer in answers:
        if isinstance(answer, TidefoldError):
            raise answer
    return [msgspec.json.decode(answer, type=FoldResult) for answer in answers if isinstance(answer, str)]


def _given_up(pipeline: Pipeline, log: str, snapshot: Snapshot, error: Exception) -> Outcome:
    """Discards the attempt. If that fails too, the first error still is the reason; the next run cleans up."""
    found = unforeseen(error)
    if found is not error:
        _log.error("%s: %s", log, found, exc_info=error)
    ledger = pipeline.ledger(log)
    try:
        # A newer attempt may have removed this one's files: then being superseded is the cause, not the missing file.
        transitions.held(ledger.read(), snapshot.id)
        ledger.commit(lambda state: transitions.abort(state, snapshot.id, f"{found.code}: {found.message}"))
        sweep(pipeline.store, ledger)
    except SupersededError as superseded:
        found = superseded
        with suppress(TidefoldError):
            sweep(pipeline.store, ledger)
    except TidefoldError as second:
        _log.warning("%s: cleaning up after %s failed: %s", log, found.code, second)
    return Outcome.of_error(log, found, snapshot.id)
