"""Removes what aborted attempts left: only files that such an attempt itself wrote (I11, I13)."""

from __future__ import annotations

from functools import partial

from tidefold.ledger import Ledger
from tidefold.lifecycle.moves import swept, to_sweep
from tidefold.lifecycle.names import DataFileName, LogPaths
from tidefold.lifecycle.values import LogState, Snapshot
from tidefold.storage import Store


def plan_sweep(store: Store, state: LogState) -> tuple[str, ...]:
    """The files of aborted attempts: their snapshot folders, and their links beside the table's files.

    Manifests and verdicts stay: they are the history of what was refused and why.
    """
    aborted = to_sweep(state)
    if not aborted:
        return ()
    paths = LogPaths(state.log)
    own = [entry.path for s in aborted for entry in store.list(paths.snapshot(s.id))]
    beside = [e.path for e in store.list(f"{paths.table}/_data") if _written_by(e.path, aborted)]
    return (*own, *beside)


def sweep(store: Store, ledger: Ledger) -> int:
    """Deletes what `plan_sweep` names and records it; answers how many files went."""
    state = ledger.read()
    files = plan_sweep(store, state)
    store.delete(files)
    ledger.commit(partial(_mark, snapshots=tuple(s.id for s in to_sweep(state))))
    return len(files)


def _mark(state: LogState, snapshots: tuple[int, ...]) -> LogState:
    return swept(state, snapshots)


def _written_by(path: str, attempts: tuple[Snapshot, ...]) -> bool:
    name = DataFileName.parse(path.rsplit("/", 1)[1])
    return any((s.id, s.epoch) == (name.snapshot, name.epoch) for s in attempts)
