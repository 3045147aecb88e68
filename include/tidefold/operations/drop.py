"""Removes a log with everything that only it needs (requirement C13); starts no JVM."""

from __future__ import annotations

from dataclasses import replace

from tidefold.lifecycle.errors import NotFoundError, RefusedError
from tidefold.lifecycle.local_copies import segment_of
from tidefold.lifecycle.names import LogPaths
from tidefold.lifecycle.values import Drop, LogState
from tidefold.operations.local_copies import forget
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.release import plan_release
from tidefold.storage import Entry, Store


def drop(pipeline: Pipeline, log: str, plan: bool = True) -> Outcome:
    """Deletes table, snapshots, segments, verdicts, quarantine and the ledger but its last head. `plan` only says so.

    An interrupted drop is finished by the next. Raises RefusedError while an attempt is open.
    """
    ledger = pipeline.ledger(log)
    try:
        state = ledger.read()
    except NotFoundError:
        return Outcome(log, "nothing", "the store has no such log")
    if state.dropped is Drop.GONE:
        return _leftovers(pipeline, state, plan)
    if plan:
        _require_closed(state)
    elif state.dropped is Drop.NO:
        state = ledger.commit(_going)
    shared, own = files_of_log(pipeline.store, state)
    files = (*shared, *own)
    facts = {"files": len(files), "bytes": sum(f.bytes for f in files), "paths": [f.path for f in files]}
    if plan:
        return Outcome(log, "planned", f"would delete {len(files):,} files, {facts['bytes']:,} bytes", facts=facts)
    pipeline.store.delete([file.path for file in shared])
    forget(pipeline, log, [file.path for file in shared if segment_of(file.path)])
    # This head needs no pages. It stays: from it a next log of this name goes on with epoch and ids.
    _leftovers(pipeline, ledger.commit(_gone, of_dropped=True), plan)
    return Outcome(log, "dropped", f"deleted {len(files):,} files, {facts['bytes']:,} bytes", facts=facts)


def _leftovers(pipeline: Pipeline, gone: LogState, plan: bool) -> Outcome:
    """Deletes what is left of a log that is gone, but for the head that says so."""
    last = LogPaths(gone.log).ledger_version(gone.version)
    files = [file.path for file in files_of_log(pipeline.store, gone)[1] if file.path != last]
    if not files:
        return Outcome(gone.log, "nothing", "the store has no such log")
    if not plan:
        pipeline.store.delete(files)
        forget(pipeline, gone.log, ())
    facts = {"files": len(files), "paths": files}
    return Outcome(gone.log, "planned" if plan else "dropped", f"{len(files):,} files were left of it", facts=facts)


def _going(state: LogState) -> LogState:
    _require_closed(state)
    return replace(state, dropped=Drop.GOING)


def _gone(state: LogState) -> LogState:
    last = max((s.id for s in state.snapshots), default=state.last_snapshot)
    # Whatever is still on its way to this log is refused by the next one of that name.
    fence = state.fence + 1
    return LogState(
        state.log, state.shape, state.version, state.epoch, dropped=Drop.GONE, last_snapshot=last, fence=fence
    )


def _require_closed(state: LogState) -> None:
    if state.attempt:
        raise RefusedError(
            "ATTEMPT_OPEN",
            f"Snapshot {state.attempt.id} of `{state.log}` is {state.attempt.state} under run `{state.attempt.run}`.",
            hint=f"Let it end, or `tidefold abort {state.log}`.",
        )


def files_of_log(store: Store, state: LogState) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    """What a log has in folders of many logs, and its own folder with the ledger last, each in the order to delete."""
    paths = LogPaths(state.log)
    segments = {c.segment for c in state.change_sets} | set(state.garbage)
    found = [*store.list(paths.table, unfinished=True), *store.list(paths.snapshots, unfinished=True)]
    found += plan_release(store, replace(state, garbage=tuple(sorted(segments)))).unneeded
    own = store.list(f"logs/{state.log}", unfinished=True)
    ledger = [entry for entry in own if entry.path.startswith(f"{paths.ledger}/")]
    return tuple(found), (*(entry for entry in own if entry not in ledger), *ledger)
