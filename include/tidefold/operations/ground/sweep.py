"""Finds and deletes the files of a log that no snapshot needs."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind, State
from tidefold.domain.paths import CHANGE_FOLDER, DataFileName, LogPaths, data_path, is_vector_file, vector_name
from tidefold.domain.retention.log_bounds import with_files
from tidefold.errors import CorruptError, NotFoundError
from tidefold.ledger import Ledger, decode_manifest, digest_of, read_manifest
from tidefold.ledger.evidence import ATTEMPT_FACT, EPOCH_FACT, find_folders, list_manifests, read_commit_facts
from tidefold.storage import Store, StoredObject, delete_files

# ABORTED is final, so each sweep decides from the state alone. That matters because a slow attempt may write more
# files after a sweep. A ledger that was set back may give an id a second time, but never a token.

# Snapshots in these states keep their files.
KEPT = (State.COMPLETED, State.STAGED, State.SUBSUMED)
# Snapshots in these states get no new files, except from a slow process that does not know the state yet.
_DECIDED = (State.COMPLETED, State.SUBSUMED, State.DELETED)
_FIRST_COMMIT = f"_delta_log/{0:020d}.json"


def sweep(store: Store, ledger: Ledger) -> int:
    """Deletes the files of all aborted attempts, and unneeded manifests. Returns the number of deleted files.

    Raises CorruptError, and deletes nothing, if the store shows something that the ledger does not know.
    """
    state = ledger.read()
    evidence = ledger.require_current(state)
    files = (*plan_sweep(store, state), *plan_manifests(store, state, evidence.manifests))
    return len(delete_hidden(store, ledger, state, files))


def delete_hidden(
    store: Store, ledger: Ledger, state: LogState, paths: Sequence[str], threads: int = 1
) -> tuple[str, ...]:
    """Deletes these files of a log, except those that the published table shows. Returns the deleted paths.

    Raises CorruptError, and deletes nothing, if the store shows something that the ledger does not know.
    """
    if not paths:
        return ()
    evidence = ledger.require_current(state)
    shown = frozenset() if evidence.is_as_known else _find_shown_files(store, state.log)
    # Vectors of such a table are not known by name.
    going = tuple(path for path in paths if path not in shown and not (shown and is_vector_file(path)))
    delete_files(store, going, threads)
    return going


def _find_shown_files(store: Store, log: str) -> frozenset[str]:
    """Returns the files that readers of the table see now, for example after a foreign RESTORE."""
    table = LogPaths(log).table
    # Only where files are deleted.
    from tidefold.delta.published_table import active_files
    from tidefold.storage.delta_tables import convert_errors, open_table

    with convert_errors(table):
        active = active_files(open_table(store, table))
    return frozenset(f"{table}/{name}" for name in active)


def plan_change_files(store: Store, state: LogState) -> tuple[str, ...]:
    """Returns the files of the change data feed that belong to aborted or deleted snapshots."""
    gone = {_attempt(s) for s in state.snapshots if s.state in (State.ABORTED, State.DELETED)}
    stored = store.list(f"{LogPaths(state.log).table}/{CHANGE_FOLDER}", unfinished=True)
    named = [(entry.path, name) for entry in stored if (name := _name_of(entry.path))]
    return tuple(path for path, name in named if _writer(name) in gone or _is_of_former(state, name.token))


def plan_forgotten(store: Store, state: LogState) -> tuple[str, ...]:
    """Returns files in the table's folder that no snapshot names.

    A slow publisher put them there after its snapshot's files were deleted, or the second try of a task of an
    incremental snapshot wrote them.
    """
    decided = {_attempt(s) for s in state.snapshots if s.state in _DECIDED}
    stored = store.list(f"{LogPaths(state.log).table}/_data")
    beside = [e.path for e in stored if (name := _name_of(e.path)) and _writer(name) in decided]
    beside += [e.path for e in stored if is_vector_file(e.path)]
    # An open attempt may take over files that only its future manifest will name.
    if not beside or state.open_attempt:
        return ()
    needed = _find_kept_names(store, state)
    # It is unknown which files a damaged manifest names. `verify` reports the damage.
    return () if needed is None else tuple(path for path in beside if path not in needed)


def _find_kept_names(store: Store, state: LogState) -> frozenset[str] | None:
    """Returns the files in the table's folder that retained snapshots name; None: unknown."""
    kept = with_files(s for s in state.snapshots if s.manifest and s.state in KEPT and not s.as_of)
    try:
        named = find_names(store, state.log, kept)
    except CorruptError:
        return None
    return frozenset(data_path(LogPaths(state.log).table, name) for name in named)


def plan_unnamed(store: Store, state: LogState) -> tuple[str, ...]:
    """Returns data files of full snapshots that their manifests do not name: Spark ran a task twice (I35)."""
    paths = LogPaths(state.log)
    # Not for staged snapshots, because a later epoch may be starting again at this moment.
    full = {s.id: s for s in state.snapshots if s.kind is SnapshotKind.FULL and s.state in _DECIDED}
    stored: dict[int, list[str]] = {}
    for path in (entry.path for entry in store.list(paths.snapshots, unfinished=True)):
        name, folder = _name_of(path), _folder(paths, path)
        if name and folder in full and _writer(name) == _attempt(full[folder]):
            stored.setdefault(folder, []).append(path)
    try:
        named = {i: find_names(store, state.log, [s for s in (full[i],) if s.state in KEPT]) for i in stored}
    except CorruptError:
        return ()  # It is unknown which files a damaged manifest names. `verify` reports the damage.
    return tuple(path for i, listed in stored.items() for path in listed if path.rsplit("/", 1)[1] not in named[i])


def find_names(store: Store, log: str, snapshots: Iterable[Snapshot]) -> set[str]:
    """Returns the names of the files of these snapshots, and of their deletion vectors. Raises CorruptError."""
    files = [file for snapshot in snapshots for file in read_manifest(store, log, snapshot).files]
    return {f.name for f in files} | {vector_name(f.deletions.vector) for f in files if f.deletions}


def plan_sweep(store: Store, state: LogState) -> tuple[str, ...]:
    """Returns the files of aborted attempts: their snapshot folders, and their files in the table's folder.

    Attempts of a dropped log of the same name count as aborted, too. Verdicts stay as a history of refused snapshots.
    """
    aborted = {s.id: s for s in state.snapshots if s.state is State.ABORTED}
    if not aborted and not state.last_snapshot:
        return ()
    paths = LogPaths(state.log)
    folders = store.list(paths.snapshots, unfinished=True)
    beside = store.list(f"{paths.table}/_data", unfinished=True)
    going = [e.path for e in (*folders, *beside) if (n := _name_of(e.path)) and _is_left(state, aborted, n)]
    return tuple(dict.fromkeys((*_plan_folders(store, state, aborted, folders), *going)))


def _is_left(state: LogState, aborted: dict[int, Snapshot], name: DataFileName) -> bool:
    """Whether a data file was written by an attempt that is aborted for good."""
    attempt = aborted.get(name.snapshot)
    if attempt is not None:
        return _writer(name) == _attempt(attempt)
    return name.snapshot <= state.last_snapshot and _is_of_former(state, name.token)


def _is_of_former(state: LogState, token: str) -> bool:
    """Whether a token belongs to a dropped log of the same name."""
    return any(token.startswith(incarnation) for incarnation in state.former)


def _plan_folders(
    store: Store, state: LogState, aborted: dict[int, Snapshot], entries: Iterable[StoredObject]
) -> Iterable[str]:
    """Yields the folders of aborted full snapshots, with files taken over from others and the Delta log."""
    paths = LogPaths(state.log)
    folders: dict[int, list[str]] = {}
    for entry in entries:
        folder = _folder(paths, entry.path)
        if folder is not None and (folder in aborted or folder <= state.last_snapshot):
            folders.setdefault(folder, []).append(entry.path)
    for snapshot, files in folders.items():
        if _is_folder_left(store, state, aborted.get(snapshot), paths.snapshot(snapshot), files):
            yield from files


def _folder(paths: LogPaths, path: str) -> int | None:
    """Returns the snapshot that the folder of a file belongs to."""
    name = path.removeprefix(f"{paths.snapshots}/").partition("/")[0]
    return int(name) if name.isdecimal() else None


def _is_folder_left(store: Store, state: LogState, attempt: Snapshot | None, folder: str, files: list[str]) -> bool:
    """Whether a folder belongs to an aborted attempt: its Delta log names the attempt, or has no commit yet."""
    if f"{folder}/{_FIRST_COMMIT}" not in files:
        return True
    facts = read_commit_facts(store, folder, 0)
    token = str(facts.get(ATTEMPT_FACT, ""))
    if attempt is None:
        return _is_of_former(state, token)
    return (str(facts.get(EPOCH_FACT)), token) == (str(attempt.epoch), attempt.token)


def plan_manifests(store: Store, state: LogState, ids: Iterable[int] | None = None) -> tuple[str, ...]:
    """Returns the manifests of aborted and deleted snapshots. `ids`: the ids of all stored manifests, if known."""
    paths = LogPaths(state.log)
    ids = list_manifests(store, state.log) if ids is None else ids
    gone = {s.id: s for s in state.snapshots if s.state in (State.ABORTED, State.DELETED)}
    own = [gone[i] for i in sorted(ids) if i in gone and _is_manifest_of(store, paths.manifest(i), gone[i])]
    return tuple(path for s in own for path in manifest_files(state.log, s))


def manifest_files(log: str, snapshot: Snapshot) -> tuple[str, ...]:
    """Returns the paths of a snapshot's manifest and of its mark of completion."""
    paths = LogPaths(log)
    completion = (paths.completion(snapshot.id),) if snapshot.as_of else ()
    return (*completion, paths.manifest(snapshot.id))


def _is_manifest_of(store: Store, path: str, snapshot: Snapshot) -> bool:
    """Whether a manifest belongs to this attempt. A ledger that was set back may have given the same id."""
    try:
        data = store.read(path)
        manifest = decode_manifest(path, data)
    except (NotFoundError, CorruptError):
        return False
    if snapshot.manifest and snapshot.manifest != digest_of(data):
        return False
    return (manifest.epoch, manifest.token) == (snapshot.epoch, snapshot.token)


def plan_halves(store: Store, state: LogState) -> tuple[str, ...]:
    """Returns unfinished files of killed writers in the log's own folder that no process can complete any more.

    These are ledger versions that exist already, and manifests and verdicts of decided snapshots. Other unfinished
    files may belong to a running writer.
    """
    paths = LogPaths(state.log)
    whole = {entry.path for entry in store.list(paths.folder)}
    halves = [e.path for e in store.list(paths.folder, unfinished=True) if e.path not in whole]
    decided = (*(paths.ledger_version(v) for v in {_number(h) for h in halves} if v <= state.version),)
    closed = [s.id for s in state.snapshots if not s.open]
    decided += tuple(f"{path}/" for i in closed for path in (paths.about(i), paths.quality(i)))
    return tuple(half for half in halves if half.startswith(decided))


def _number(path: str) -> int:
    """Returns the ledger version that an unfinished file was written for; 0: it is no ledger version."""
    name = path.rsplit("/", 1)[1].partition(".")[0]
    return int(name) if name.isdigit() else 0


def find_with_files(store: Store, log: str, snapshots: Iterable[Snapshot], named: Container[str]) -> frozenset[int]:
    """Returns which of these snapshots have files of their own in the store, beside those with a name in `named`."""
    folders = find_folders(store, log)
    stored = store.list(f"{LogPaths(log).table}/_data")
    beside = {_writer(name) for entry in stored if (name := _name_of(entry.path)) and str(name) not in named}
    return frozenset(
        s.id for s in snapshots if (s.id in folders if s.kind is SnapshotKind.FULL else _attempt(s) in beside)
    )


def _attempt(snapshot: Snapshot) -> tuple[int, int, str]:
    return snapshot.id, snapshot.epoch, snapshot.token


def _writer(name: DataFileName) -> tuple[int, int, str]:
    """Returns the attempt that wrote a data file."""
    return name.snapshot, name.epoch, name.token


def _name_of(path: str) -> DataFileName | None:
    """Returns the name of a finished or unfinished data file; None: tidefold did not write it."""
    name, dot, _ = path.rsplit("/", 1)[1].partition(".parquet")
    try:
        return DataFileName.parse(name + dot)
    except CorruptError:
        return None


# Each returns files of a log that nothing needs.
LEFTOVERS = (plan_sweep, plan_forgotten, plan_unnamed, plan_halves, plan_manifests)
