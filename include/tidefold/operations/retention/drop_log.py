"""Deletes a log with everything that only it needs (requirement C13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidefold.changelog.write_intents import ExpectedFiles, read_announced
from tidefold.domain.external_snapshot import External
from tidefold.domain.log_state import DeletionState, LogState, State
from tidefold.domain.paths import LogPaths
from tidefold.domain.retention.local_copies import segment_of
from tidefold.domain.wording import in_units
from tidefold.errors import ConflictError, NotFoundError, RefusedError
from tidefold.operations.local_copies.manage import forget
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.retention.details import DropDetails
from tidefold.operations.retention.segment_gc import plan_release
from tidefold.operations.savepoint.external import delete_originals, find_owned_originals
from tidefold.operations.sets.membership import require_alone
from tidefold.storage import Store, StoredObject, delete_files

# After this many deleted files, `drop` checks again that the rest still belongs to this log.
_AT_ONCE = 500


def drop(pipeline: Pipeline, log: str, plan: bool = True) -> Outcome:
    """Deletes table, snapshots, segments, verdicts, quarantine and the ledger except its last head. `plan` only lists
    them.

    The next call finishes an interrupted drop. Raises RefusedError while an attempt is open, or the log is in a set.
    """
    require_alone(
        pipeline,
        log,
        ", whose readers open its table together with the others.",
        hint=f"Remove `{log}` from the set in the configuration first.",
    )
    ledger = pipeline.ledger(log)
    try:
        state = ledger.read()
    except NotFoundError:
        return Outcome(log, Status.NOTHING, "the store has no such log")
    ledger.require_current(state)
    if state.deletion is DeletionState.GONE:
        return _delete_leftovers(pipeline, state, plan)
    if plan:
        _require_closed(state)
    elif state.deletion is DeletionState.NO:
        state = ledger.commit(_begin_deletion)
    shared, own = files_of_log(pipeline.store, state)
    files = (*shared, *own)
    originals = delete_originals(_find_owned_originals(state), plan)
    details = DropDetails(
        files=len(files),
        bytes=sum(file.bytes for file in files),
        paths=[*(file.path for file in files), *originals],
        originals=len(originals),
    )
    counted = f"{details.files:,} files, {in_units(details.bytes or 0)}"
    counted += f"; {len(originals):,} files of claimed imports" if originals else ""
    if plan:
        return Outcome(log, Status.PLANNED, f"would delete {counted}", details=details)
    _delete(pipeline, state, [file.path for file in shared])
    forget(pipeline, log, [file.path for file in shared if segment_of(file.path)])
    # This head has no pages and stays. The next log of this name continues its epochs and ids.
    gone = ledger.commit(_end_deletion, of_dropped=True)
    # The next log of this name never gives any of these names again.
    last = LogPaths(log).ledger_version(gone.version)
    rest = [file.path for file in own if file.path != last]
    delete_files(pipeline.store, rest, pipeline.config.retention.threads)
    return Outcome(log, Status.DROPPED, f"deleted {counted}", details=details)


def _find_owned_originals(state: LogState) -> tuple[External, ...]:
    """Returns the originals that the log owns: those of confirmed imports."""
    return find_owned_originals(s for s in state.snapshots if s.state in (State.COMPLETED, State.SUBSUMED))


def _delete(pipeline: Pipeline, state: LogState, paths: Sequence[str]) -> None:
    """Deletes the listed files while the log stays in this state: another drop may win, and a new log may begin."""
    ledger = pipeline.ledger(state.log)
    for begin in range(0, len(paths), _AT_ONCE):
        if ledger.read().version != state.version:
            raise ConflictError(
                "DROPPED_MEANWHILE",
                f"Another command has dropped `{state.log}`, or started it again, at the same time.",
                hint=f"`tidefold status {state.log}` shows the current state.",
            )
        delete_files(pipeline.store, paths[begin : begin + _AT_ONCE], pipeline.config.retention.threads)


def _delete_leftovers(pipeline: Pipeline, gone: LogState, plan: bool) -> Outcome:
    """Deletes the remaining files of a dropped log, except its head and files of a new log of that name."""
    last = LogPaths(gone.log).ledger_version(gone.version)
    files = [file.path for part in files_of_log(pipeline.store, gone) for file in part if file.path != last]
    coming = ExpectedFiles(read_announced(pipeline.store))
    files = [path for path in files if path not in coming]
    if not files:
        return Outcome(gone.log, Status.NOTHING, "the store has no such log")
    if not plan:
        _delete(pipeline, gone, files)
        forget(pipeline, gone.log, ())
    details = DropDetails(files=len(files), paths=files)
    status = Status.PLANNED if plan else Status.DROPPED
    return Outcome(gone.log, status, f"{len(files):,} files of the dropped log were left", details=details)


def _begin_deletion(state: LogState) -> LogState:
    _require_closed(state)
    return replace(state, deletion=DeletionState.GOING)


def _end_deletion(state: LogState) -> LogState:
    if state.deletion is DeletionState.GONE:
        return state
    if state.deletion is DeletionState.NO:
        raise ConflictError(
            "DROPPED_MEANWHILE",
            f"Another command has dropped `{state.log}`, and the log was started again.",
            hint="Nothing of the new log was touched.",
        )
    last = max((s.id for s in state.snapshots), default=state.last_snapshot)
    # The next log of that name refuses results that were meant for this one.
    gone = LogState(state.log, state.shape, state.version, state.epoch, deletion=DeletionState.GONE, last_snapshot=last)
    former = (*state.former, *filter(None, [state.incarnation]))
    return replace(gone, fence=state.fence + 1, generation=state.generation + 1, former=former)


def _require_closed(state: LogState) -> None:
    for attempt in (*([state.open_attempt] if state.open_attempt else []), *state.as_of_attempts):
        raise RefusedError(
            "ATTEMPT_OPEN",
            f"Run `{attempt.run}` has an open attempt on `{state.log}`: snapshot {attempt.id} is {attempt.state}.",
            hint=f"Wait until it ends, or run `tidefold abort {state.log} --snapshot {attempt.id}`.",
        )


def files_of_log(store: Store, state: LogState) -> tuple[tuple[StoredObject, ...], tuple[StoredObject, ...]]:
    """Returns the log's files in shared folders and in its own, in the order to delete: the ledger last."""
    paths = LogPaths(state.log)
    segments = {c.location.segment for c in state.change_sets} | set(state.garbage)
    found = [*store.list(paths.table, unfinished=True), *store.list(paths.snapshots, unfinished=True)]
    found += plan_release(store, replace(state, garbage=tuple(sorted(segments)))).unneeded
    own = store.list(paths.folder, unfinished=True)
    ledger = [entry for entry in own if entry.path.startswith(f"{paths.ledger}/")]
    return tuple(found), (*(entry for entry in own if entry not in ledger), *ledger)
