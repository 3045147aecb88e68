"""Removes what aborted attempts left: only files that such an attempt itself wrote (I11, I13)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tidefold.ledger import Ledger
from tidefold.lifecycle.moves import swept, to_sweep
from tidefold.lifecycle.names import DataFileName, LogPaths
from tidefold.lifecycle.values import LogState, Snapshot
from tidefold.storage import Store


def plan_sweep(store: Store, log: str, attempts: Sequence[Snapshot]) -> tuple[str, ...]:
    """The files of these attempts: their snapshot folders, and their links beside the table's files.

    Manifests and verdicts stay: they are the history of what was refused and why.
    """
    if not attempts:
        return ()
    paths = LogPaths(log)
    own = [entry.path for s in attempts for entry in store.list(paths.snapshot(s.id), unfinished=True)]
    beside = [e.path for e in store.list(f"{paths.table}/_data") if _written_by(e.path, attempts)]
    return (*own, *beside)


def sweep(store: Store, ledger: Ledger) -> int:
    """Deletes the files of all aborted attempts not yet swept, and records it; answers how many files went."""
    state = ledger.read()
    aborted = to_sweep(state)
    files = plan_sweep(store, state.log, aborted)
    store.delete(files)
    ledger.commit(partial(_mark, snapshots=tuple(s.id for s in aborted)))
    return len(files)


def discard(store: Store, log: str, attempt: Snapshot) -> None:
    """Deletes what a fenced attempt wrote, also after it was swept: called by that attempt itself, once it knows."""
    store.delete(plan_sweep(store, log, [attempt]))


def _mark(state: LogState, snapshots: tuple[int, ...]) -> LogState:
    return swept(state, snapshots)


def _written_by(path: str, attempts: Sequence[Snapshot]) -> bool:
    name = DataFileName.parse(path.rsplit("/", 1)[1])
    return any((s.id, s.epoch) == (name.snapshot, name.epoch) for s in attempts)
