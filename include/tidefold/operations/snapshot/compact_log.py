"""Compacts the log: merges runs of waiting change sets, and keeps only the changes that count (C12)."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from tidefold.changelog import write_intents
from tidefold.changelog.schema_alignment import Aligner
from tidefold.changelog.segment import Indexes, read_change_set
from tidefold.changelog.write_intents import Intent, IntentLog
from tidefold.domain.commit_times import merge_ranges
from tidefold.domain.ingest.append import require_fence
from tidefold.domain.log_state import ChangeSet, LogState, State
from tidefold.domain.paths import CHANGELOG
from tidefold.domain.retention import compaction, log_retention
from tidefold.domain.table.schema import shape_at
from tidefold.errors import ConflictError, RefusedError, TidefoldError
from tidefold.fold.merge.compaction import compact_changes
from tidefold.operations.ingest import recovery
from tidefold.operations.local_copies.segments import write_segment
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.pipeline import Pipeline, now
from tidefold.operations.snapshot.details import CompactionDetails

_log = logging.getLogger(__name__)
_Runs = tuple[tuple[ChangeSet, ...], ...]


def compact_log(pipeline: Pipeline, log: str, plan: bool = False, only_due: bool = False) -> Outcome:
    """Compacts each run of waiting change sets to the changes that count. With `plan` nothing changes.

    The replaced segments become garbage, which `truncate` deletes. With `only_due` it does nothing below the configured
    numbers, and leaves out what backfills may need. Raises ConflictError if another process was faster.
    """
    state = pipeline.ledger(log).find()
    kept_log = pipeline.config.retention.log_retention(now())
    if state is None:
        runs: _Runs = ()
    elif only_due:
        runs = compaction.find_due_runs(state, pipeline.config.compaction.trigger, kept_log)
    else:
        runs = compaction.find_compactable_runs(state, kept_log)
    if state is None or not runs:
        few = "fewer change sets wait than `compaction` in the configuration asks for"
        return Outcome(log, Status.NOTHING, few if only_due else _why_not(state))
    sets, rows = sum(map(len, runs)), sum(c.rows for run in runs for c in run)
    details = CompactionDetails(change_sets=sets, changes=rows, into=len(runs))
    if plan:
        return Outcome(log, Status.PLANNED, f"would compact {sets:,} change sets into {len(runs):,}", details=details)
    kept = sum(_compact_run(pipeline, state, run, kept_log) for run in runs)
    message = f"compacted {sets:,} change sets into {len(runs):,}: {kept:,} of {rows:,} changes are left"
    if state.shape.merge.engine not in compaction.REDUCING:
        message += f", because `merge: {state.shape.merge.engine}` needs each of them"
    return Outcome(log, Status.COMPACTED, message, details=replace(details, changes_kept=kept))


def compact_if_due(pipeline: Pipeline, state: LogState) -> bool:
    """Compacts a log of which more waits than configured. Returns whether the log changed; errors are warnings.

    If nothing is due, it reads nothing.
    """
    kept_log = pipeline.config.retention.log_retention(now())
    if not compaction.find_due_runs(state, pipeline.config.compaction.trigger, kept_log):
        return False
    try:
        outcome = compact_log(pipeline, state.log, only_due=True)
    except TidefoldError as error:
        _log.warning("%s: the log is not compacted: %s", state.log, error)
        return False
    _log.info("%s: %s", state.log, outcome.message)
    return outcome.status is Status.COMPACTED


def _why_not(state: LogState | None) -> str:
    if state is None or not state.unfolded:
        return "no change sets wait to be folded"
    if state.open_attempt and state.open_attempt.state is State.ONGOING:
        return f"snapshot {state.open_attempt.id} is being made of these change sets"
    if state.as_of_attempts:
        return f"snapshot {state.as_of_attempts[0].id} is being made as of an instant, and may need each change set"
    return "no two waiting change sets may be merged: ends of snapshots, consumers or steps of backfills separate them"


def _compact_run(
    pipeline: Pipeline, state: LogState, run: Sequence[ChangeSet], kept_log: log_retention.LogRetention | None
) -> int:
    """Writes the compaction of one run and replaces it. Returns how many changes are left."""
    store, this = pipeline.store, uuid.uuid4().hex
    path = f"{CHANGELOG}/{now()[:10]}/{uuid.uuid4().hex}.seg"
    announced = IntentLog(state.log, state.shape, state.fence)
    write_intents.begin(store, Intent(this, 0, now(), (announced,), (path,)))
    # No snapshot that ends with the run has an older schema than the run's last change set.
    schema = run[-1].schema
    aligner = Aligner(shape_at(state, schema), schema, state.schemas)
    known: Indexes = {}
    given = pa.concat_tables([aligner.changes(read_change_set(store, c, known=known), c.schema) for c in run])
    rest = compact_changes(given, aligner.shape)
    [part] = write_segment(pipeline, path, [(state.log, rest)])
    written = part.change_set(run[-1].high)
    times = merge_ranges(one.times for one in run)
    change_set = replace(written, sqn=run[-1].sqn, first=run[0].begin, schema=run[-1].schema, times=times)
    try:
        pipeline.ledger(state.log).commit(
            partial(_replace_run, fence=state.fence, change_set=change_set, kept_log=kept_log)
        )
    except (RefusedError, ConflictError):
        recovery.end_run(store, this, [state.log], (path,))
        raise
    recovery.end_run(store, this, [state.log], (path,))
    return change_set.rows


def _replace_run(
    state: LogState, fence: int, change_set: ChangeSet, kept_log: log_retention.LogRetention | None
) -> LogState:
    require_fence(state, fence)
    return compaction.compact(state, change_set, kept_log)
