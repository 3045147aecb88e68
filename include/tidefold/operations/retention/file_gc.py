"""Removes what aborted attempts left: only files that bear the name of such an attempt (I11, I13).

ABORTED is for ever and an id never comes back, so the state alone says what may go, each time anew: an attempt that was
only asleep may still write after its files were removed once.
"""

from __future__ import annotations

from tidefold.domain.log_state import Kind, LogState, Snapshot, State
from tidefold.domain.paths import DataFileName, LogPaths, data_path
from tidefold.domain.retention.retention import with_files
from tidefold.errors import CorruptError
from tidefold.ledger import Ledger, read_manifest
from tidefold.storage import Store

# The states in which a snapshot's files stay.
_KEPT = (State.COMPLETED, State.STAGED, State.SUBSUMED)
# Those for which nobody writes any more, or only whoever does not know it yet.
_DECIDED = (State.COMPLETED, State.SUBSUMED, State.DELETED)


def sweep(store: Store, ledger: Ledger) -> int:
    """Deletes the files of all aborted attempts; answers how many files went."""
    files = plan_sweep(store, ledger.read())
    store.delete(files)
    return len(files)


def plan_forgotten(store: Store, state: LogState) -> tuple[str, ...]:
    """Files beside the table's that no snapshot names: put there by a publisher that slept until its snapshot's files
    were gone, or by the second try of a task of an incremental one.
    """
    decided = {s.id for s in state.snapshots if s.state in _DECIDED}
    beside = [e.path for e in store.list(f"{LogPaths(state.log).table}/_data") if _writer(e.path) in decided]
    if not beside:
        return ()
    kept = with_files(s for s in state.snapshots if s.manifest and s.state in _KEPT and not s.as_of)
    try:
        named = {f.name for s in kept for f in read_manifest(store, state.log, s).files}
    except CorruptError:
        return ()  # Nobody knows what it names; `verify` tells of it.
    needed = {data_path(LogPaths(state.log).table, name) for name in named}
    # An attempt under way may carry files that only its own manifest will name.
    return () if state.attempt else tuple(path for path in beside if path not in needed)


def plan_unnamed(store: Store, state: LogState) -> tuple[str, ...]:
    """Data files in folders of full snapshots that their manifests do not name: the engine ran a task twice (I35)."""
    paths = LogPaths(state.log)
    # Decided ones only: a staged one may be begun again by a later epoch in this moment.
    full = {s.id: s for s in state.snapshots if s.kind is Kind.FULL and s.state in _DECIDED}
    stored: dict[int, list[str]] = {}
    for path in (entry.path for entry in store.list(paths.snapshots, unfinished=True)):
        folder = _folder(paths, path)
        if folder in full and path.startswith(f"{data_path(paths.snapshot(folder), '')}") and _writer(path) == folder:
            stored.setdefault(folder, []).append(path)
    try:
        named = {i: _named(store, state.log, full[i]) for i in stored}
    except CorruptError:
        return ()  # Nobody knows what it names; `verify` tells of it.
    return tuple(path for i, found in stored.items() for path in found if path.rsplit("/", 1)[1] not in named[i])


def _named(store: Store, log: str, snapshot: Snapshot) -> set[str]:
    if snapshot.state is State.DELETED:
        return set()
    return {f.name for f in read_manifest(store, log, snapshot).files}


def plan_sweep(store: Store, state: LogState) -> tuple[str, ...]:
    """The files of aborted attempts: their snapshot folders, and their links beside the table's files. Those of a log
    of that name that was dropped (ids up to `last_snapshot`) are aborted for good too.

    Manifests and verdicts stay: they are the history of what was refused and why.
    """
    aborted = {s.id for s in state.snapshots if s.state is State.ABORTED}
    if not aborted and not state.last_snapshot:
        return ()

    def is_aborted(snapshot: int | None) -> bool:
        return snapshot is not None and (snapshot in aborted or snapshot <= state.last_snapshot)

    paths = LogPaths(state.log)
    own = [e.path for e in store.list(paths.snapshots, unfinished=True) if is_aborted(_folder(paths, e.path))]
    beside = [e.path for e in store.list(f"{paths.table}/_data", unfinished=True) if is_aborted(_writer(e.path))]
    return (*own, *beside)


def _folder(paths: LogPaths, path: str) -> int | None:
    """The snapshot in whose folder a file lies."""
    name = path.removeprefix(f"{paths.snapshots}/").partition("/")[0]
    return int(name) if name.isdecimal() else None


def plan_halves(store: Store, state: LogState) -> tuple[str, ...]:
    """What killed writers left in the log's own folder, of files that nobody can complete any more: ledger versions
    that are taken, manifests and verdicts of snapshots that are decided. Another half may be of one who still writes.
    """
    paths = LogPaths(state.log)
    whole = {entry.path for entry in store.list(paths.folder)}
    halves = [e.path for e in store.list(paths.folder, unfinished=True) if e.path not in whole]
    decided = (*(paths.ledger_version(v) for v in {_number(h) for h in halves} if v <= state.version),)
    closed = [s.id for s in state.snapshots if not s.open]
    decided += (*(paths.manifest(i) for i in closed), *(f"{paths.quality(i)}/" for i in closed))
    return tuple(half for half in halves if half.startswith(decided))


def _number(path: str) -> int:
    """The ledger version that a half was to become; 0 for a half of something else."""
    name = path.rsplit("/", 1)[1].partition(".")[0]
    return int(name) if name.isdigit() else 0


def _writer(path: str) -> int | None:
    """The snapshot that a data file, whole or half, was written for; None for a file that is not ours."""
    name, dot, _ = path.rsplit("/", 1)[1].partition(".parquet")
    try:
        return DataFileName.parse(name + dot).snapshot
    except CorruptError:
        return None
