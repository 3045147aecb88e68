"""Removes a log with everything that only it needs (requirement C13); starts no JVM."""

from __future__ import annotations

from dataclasses import replace

from tidefold.lifecycle.errors import RefusedError
from tidefold.lifecycle.names import LogPaths
from tidefold.lifecycle.values import LogState
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold.storage import Entry, Store


def drop(pipeline: Pipeline, log: str, plan: bool = True) -> Outcome:
    """Deletes table, snapshots, segments, verdicts, quarantine and last the ledger. With `plan` it only says so.

    An interrupted drop is finished by the next. Raises RefusedError while an attempt is open.
    """
    ledger = pipeline.ledger(log)
    if not ledger.exists():
        return Outcome(log, "nothing", "the store has no such log")
    state = ledger.read()
    if not plan and not state.dropped:
        state = ledger.commit(_dropped)
    shared, own = files_of_log(pipeline.store, state)
    files = (*shared, *own)
    facts = {"files": len(files), "bytes": sum(f.bytes for f in files), "paths": [f.path for f in files]}
    if plan:
        return Outcome(log, "planned", f"would delete {len(files):,} files, {facts['bytes']:,} bytes", facts=facts)
    pipeline.store.delete([file.path for file in shared])
    # From here on the ledger must be readable without its pages, which go before it.
    ledger.commit(lambda now: LogState(now.log, now.shape, now.version, dropped=True), of_dropped=True)
    pipeline.store.delete([file.path for file in files_of_log(pipeline.store, ledger.read())[1]])
    return Outcome(log, "dropped", f"deleted {len(files):,} files, {facts['bytes']:,} bytes", facts=facts)


def _dropped(state: LogState) -> LogState:
    if state.attempt:
        raise RefusedError(
            "ATTEMPT_OPEN",
            f"Snapshot {state.attempt.id} of `{state.log}` is {state.attempt.state} under run `{state.attempt.run}`.",
            hint=f"Let it end, or `tidefold abort {state.log}`.",
        )
    return replace(state, dropped=True)


def files_of_log(store: Store, state: LogState) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    """What a log has in folders of many logs, and its own folder with the ledger last, each in the order to delete."""
    paths = LogPaths(state.log)
    segments = {c.segment for c in state.change_sets} | set(state.garbage)
    found = [*store.list(paths.table, unfinished=True), *store.list(paths.snapshots, unfinished=True)]
    found += [entry for entry in store.list("changelog") if entry.path in segments]
    own = store.list(f"logs/{state.log}", unfinished=True)
    # Ascending: while any version is left, the newest one is, and it says that the log is being dropped.
    ledger = [entry for entry in own if entry.path.startswith(f"{paths.ledger}/")]
    return tuple(found), (*(entry for entry in own if entry not in ledger), *ledger)
