"""Compacts the log: keeps only the waiting changes that count (C12), by hand or as a tail-only snapshot."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from tidefold.changelog import write_intents
from tidefold.changelog.removed import reads_of
from tidefold.changelog.schema import Aligner
from tidefold.changelog.segment import Indexes, read_change_set
from tidefold.changelog.write_intents import Intent, IntentLog
from tidefold.domain.commit_times import merge_ranges
from tidefold.domain.ingest.append import require_fence
from tidefold.domain.log_state import ChangeSet, LogState, SnapshotKind, State
from tidefold.domain.paths import CHANGELOG
from tidefold.domain.retention import log_bounds
from tidefold.domain.snapshot import claim
from tidefold.domain.table.schema_evolution import shape_at
from tidefold.domain.table.table_spec import ARRIVAL, COLUMNS, POSITION, VERSION
from tidefold.domain.wording import count_noun
from tidefold.errors import ConflictError, RefusedError, TidefoldError
from tidefold.fold.merge.compaction import compact_changes, find_waiting_ties
from tidefold.operations.ground import recovery
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.ground.schema_update import aligner_to_newest
from tidefold.operations.ground.snapshot_details import CompactionDetails, TailDetails
from tidefold.operations.local_copies.segments import write_segment
from tidefold.operations.publish.publish_log import roll_forward
from tidefold.operations.quarantine.newer_changes import find_open, may_be_taken_over
from tidefold.operations.snapshot.attempt import hash_request

_log = logging.getLogger(__name__)
_KeptLog = log_bounds.LogRetention | None
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
        runs = log_bounds.find_due_runs(state, pipeline.config.compaction.trigger, kept_log)
    else:
        runs = log_bounds.find_compactable_runs(state, kept_log)
    if state is None or not runs:
        few = "fewer change sets wait than `compaction` in the configuration asks for"
        return Outcome(log, Status.NOTHING, few if only_due else _why_not(state))
    sets, rows = sum(map(len, runs)), sum(c.rows for run in runs for c in run)
    details = CompactionDetails(change_sets=sets, changes=rows, into=len(runs))
    if plan:
        return Outcome(
            log, Status.PLANNED, f"would compact {count_noun(sets, 'change set')} into {len(runs):,}", details=details
        )
    with reads_of(pipeline.store, log, state.unfolded):
        tied = find_waiting_ties(_read_waiting(pipeline, state), state.shape)
    kept = sum(_compact_run(pipeline, state, run, kept_log, tied) for run in runs)
    message = f"compacted {count_noun(sets, 'change set')} into {len(runs):,}"
    message += f": {kept:,} of {count_noun(rows, 'change')} are left"
    if state.shape.merge.engine not in log_bounds.REDUCING:
        message += f", because `merge: {state.shape.merge.engine}` needs each of them"
    return Outcome(log, Status.COMPACTED, message, details=replace(details, changes_kept=kept))


def compact_if_due(pipeline: Pipeline, state: LogState) -> bool:
    """Compacts a log of which more waits than configured. Returns whether the log changed; errors are warnings.

    If nothing is due, it reads nothing.
    """
    kept_log = pipeline.config.retention.log_retention(now())
    if not log_bounds.find_due_runs(state, pipeline.config.compaction.trigger, kept_log):
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


def _read_waiting(pipeline: Pipeline, state: LogState) -> Iterator[pa.Table]:
    """Yields the changes of each waiting change set as the next fold reads them."""
    indexes: Indexes = {}
    for one in state.unfolded:
        yield aligner_to_newest(state).changes(read_change_set(pipeline.store, one, indexes=indexes), one.schema)


def _compact_run(
    pipeline: Pipeline, state: LogState, run: Sequence[ChangeSet], kept_log: _KeptLog, tied: pa.Table | None
) -> int:
    """Writes the compaction of one run and replaces it. Returns how many changes are left."""
    store, this = pipeline.store, uuid.uuid4().hex
    # No snapshot that ends with the run has an older schema than the run's last change set.
    schema = run[-1].schema
    aligner = Aligner(shape_at(state, schema), schema, state.schemas)
    indexes: Indexes = {}
    with reads_of(store, state.log, run):
        changes = pa.concat_tables([aligner.changes(read_change_set(store, c, indexes=indexes), c.schema) for c in run])
    rest = compact_changes(
        changes, aligner.shape, _find_needed(state), tied, of_deletes=not may_be_taken_over(state.shape)
    )
    path = f"{CHANGELOG}/{now()[:10]}/{uuid.uuid4().hex}.seg"
    announced = IntentLog(state.log, state.shape, state.fence)
    write_intents.begin(store, Intent(this, 0, now(), (announced,), (path,)))
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


def _find_needed(state: LogState) -> Sequence[int] | None:
    """Returns the order of a change from which on each change of its key may be needed; None: none is.

    A change of a key takes values from the row of its old key. It may wait, or land later than the delete of that key.
    So may a record of the newest transaction, for the row that was under its key before (decision 0069).
    """
    if state.shape.order in (ARRIVAL, VERSION, COLUMNS):
        return None
    if any(entry.key_changes for entry in state.landed):
        return ()
    is_offset = state.shape.order == POSITION
    ends = [(p.partition, p.next_offset - 2) if is_offset else p.stream.max_order for p in state.positions]
    return find_open(state) or min(ends, default=())


def _replace_run(state: LogState, fence: int, change_set: ChangeSet, kept_log: _KeptLog) -> LogState:
    require_fence(state, fence)
    return log_bounds.compact(state, change_set, kept_log)


def take_tail(pipeline: Pipeline, log: str, run_id: str) -> Outcome:
    """Makes a tail-only snapshot: complete at once, never published, with the verdict of its base.

    Before that, it compacts a log of which too much waits: nothing is compacted across the end of a tail. Raises
    RefusedError if nothing was materialized yet. A repeated call of a run returns the same snapshot.
    """
    ledger = pipeline.ledger(log)
    before = ledger.find()
    if before is None:
        return Outcome(log, Status.NOTHING, "nothing was ingested yet")
    roll_forward(pipeline, log)
    if claim.find_by_run(before, run_id) is None:
        compact_if_due(pipeline, before)
    asked = claim.Claim(run_id, hash_request({"kind": SnapshotKind.TAIL}), SnapshotKind.TAIL, now())
    state = ledger.commit(lambda current: claim.tail(current, asked))
    snapshot = claim.find_by_run(state, run_id)
    if snapshot is None:
        return Outcome(log, Status.NOTHING, "nothing new since the newest snapshot")
    if before.snapshot(snapshot.id):
        return Outcome(log, Status.ALREADY, f"snapshot {snapshot.id} of this run is {snapshot.state}", snapshot.id)
    change_sets = state.change_sets_in(snapshot.from_sqn, snapshot.to_sqn)
    rows = sum(c.rows for c in change_sets)
    details = TailDetails(base=snapshot.base, change_sets=len(change_sets), changes=rows)
    message = f"snapshot {snapshot.id} is snapshot {snapshot.base} and {count_noun(rows, 'change')} after it"
    return Outcome(log, Status.COMPLETED, message, snapshot.id, details=details)
