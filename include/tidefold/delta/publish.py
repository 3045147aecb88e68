"""Publishes snapshots as versions of the table that readers use, without a JVM."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from tidefold.delta.commit_content import get_millis, list_facts, list_transactions, make_add_action, make_properties
from tidefold.delta.create_table import create_table, is_table
from tidefold.delta.delta_errors import convert_errors
from tidefold.delta.published_table import (
    Published,
    active_files,
    require_untouched,
    vectors_of,
    version_of,
)
from tidefold.delta.raw_commit import VECTORS_READER, Active, TableCommit, delta_schema, write_commit
from tidefold.domain.paths import LogPaths, data_path
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.errors import AlreadyExistsError, ConflictError, CorruptError, NotFoundError
from tidefold.storage import Store

_log = logging.getLogger(__name__)
_TRIES = 5
# As often as Spark makes one.
_CHECKPOINT = 10
_LINKERS = 8


def publish(store: Store, manifest: Manifest, digest: str, previous: Published | None, reconcile: bool = False) -> int:
    """Publishes a completed snapshot as exactly one new version of the table, and returns that version.

    Repeating the call returns the same version. Raises RefusedError if another program changed the table since
    `previous`, CorruptError if a file of the snapshot is missing, ConflictError if other writers are always faster.

    digest: sha256 of the manifest, which identifies the commit.
    reconcile: replace the files that other programs committed (such as OPTIMIZE), instead of refusing.
    """
    _provide_files(store, manifest)
    for _ in range(_TRIES):
        with convert_errors(LogPaths(manifest.log).table):
            version = _try_publish(store, manifest, digest, previous, reconcile)
        if version is not None:
            store.sync(f"{LogPaths(manifest.log).table}/_delta_log/{version:020d}.json")
            return version
    raise ConflictError("TABLE_BUSY", f"Other writers committed to the table of `{manifest.log}` {_TRIES} times.")


def shorten_log(store: Store, log: str, version: int) -> None:
    """Writes a checkpoint at every tenth version: a reader reads at most ten commits, and older ones can be deleted.

    Version 0 gets none: it replaces no commit, and would cost Spark readers one more job. Never raises.
    """
    if version == 0 or version % _CHECKPOINT:
        return
    folder = f"{LogPaths(log).table}/_delta_log"
    try:
        table = DeltaTable(store.uri(LogPaths(log).table), version=version, storage_options=store.options())
        table.create_checkpoint()
        for name in (f"{version:020d}.checkpoint.parquet", "_last_checkpoint"):
            store.sync(f"{folder}/{name}")
    except Exception as error:
        _log.warning("%s: no checkpoint of version %d, readers read more of its log: %s", log, version, error)


def provide_new_files(store: Store, manifest: Manifest, copy: bool = False) -> None:
    """Puts the new files of the snapshot into the table's folder. Readers do not see them before they are published."""
    _link_all(store, manifest, [f for f in manifest.files if not f.carried], copy)


def _provide_files(store: Store, manifest: Manifest) -> None:
    """Checks that every file of the snapshot is in the table's folder, and adds missing ones."""
    missing = _missing(store, manifest)
    # An incremental snapshot has its files nowhere else.
    _link_all(store, manifest, missing)
    # Names of one file, or copies of it, are as short as it is.
    cut = _missing(store, manifest) if missing else []
    if cut:
        raise CorruptError(
            "DATA_FILE_CUT",
            f"`{cut[0].name}` of snapshot {manifest.snapshot} of `{manifest.log}` has another length than recorded.",
            hint="`tidefold verify --repair` repairs it from another copy, if there is one.",
        )
    if manifest.files:
        # The process that linked the others may have been killed before it synced.
        store.sync(f"{LogPaths(manifest.log).table}/_data")


def _missing(store: Store, manifest: Manifest) -> list[DataFile]:
    """Returns the files that are missing in the table's folder, or have another length."""
    table = LogPaths(manifest.log).table
    present = {entry.path: entry.bytes for entry in store.list(f"{table}/_data")}
    return [f for f in manifest.files if present.get(data_path(table, f.name)) != f.bytes]


def _link_all(store: Store, manifest: Manifest, files: Iterable[DataFile], copy: bool = False) -> None:
    table = LogPaths(manifest.log).table

    def put(file: DataFile) -> None:
        source = data_path(manifest.home, file.name)
        try:
            store.link(source, data_path(table, file.name), copy=copy)
        except NotFoundError as error:
            raise CorruptError(
                "DATA_FILE_MISSING",
                f"`{source}` is missing, and snapshot {manifest.snapshot} of `{manifest.log}` needs it.",
                hint="Restore the file from a backup, or run `tidefold verify --repair`.",
            ) from error

    # Side by side: in an object store each takes a moment.
    with ThreadPoolExecutor(_LINKERS) as pool:
        list(pool.map(put, files))


def _try_publish(
    store: Store, manifest: Manifest, digest: str, previous: Published | None, reconcile: bool
) -> int | None:
    """Tries once. Returns the version that shows the snapshot; None if another commit came first."""
    path = LogPaths(manifest.log).table
    try:
        table = DeltaTable(store.uri(path), storage_options=store.options())
    except TableNotFoundError:
        if previous is not None:
            raise CorruptError(
                "TABLE_MISSING",
                f"The table of `{manifest.log}` is missing, but snapshot {previous.manifest.snapshot} was published.",
                hint=f"Restore `{path}/_delta_log` from a backup. Until then read a full snapshot in "
                f"`snapshots/{manifest.log}/`.",
            ) from None
        return _create_published(store, path, manifest, digest)
    except DeltaError:
        if previous is not None or not _delete_empty_commit(store, path):
            raise
        return None
    done = version_of(table, digest, previous)
    if done is not None:
        return done
    require_untouched(store, table, manifest, previous, reconcile)
    return _commit(store, table, manifest, digest, previous)


def _create_published(store: Store, path: str, manifest: Manifest, digest: str) -> int | None:
    try:
        create_table(store, path, manifest, digest)
    except (DeltaError, AlreadyExistsError):
        if not is_table(store, path):
            raise
    return version_of(DeltaTable(store.uri(path), storage_options=store.options()), digest, None)


def _delete_empty_commit(store: Store, path: str) -> bool:
    """Deletes the only commit of a table if it has no bytes; returns whether it did.

    deltalake syncs no file, so a power cut can leave the name of a first commit alone. Nobody can read such a table.
    """
    commits = [e for e in store.list(f"{path}/_delta_log") if e.path.endswith((".json", ".parquet"))]
    if [commit.bytes for commit in commits] != [0]:
        return False
    store.delete([commit.path for commit in commits])
    return True


def _commit(store: Store, table: DeltaTable, manifest: Manifest, digest: str, previous: Published | None) -> int | None:
    commit = _difference(table, manifest, digest, previous)
    try:
        if commit.schema or commit.has_vectors:
            write_commit(store, LogPaths(manifest.log).table, table, commit)
        else:
            removes = [
                RemoveAction(path, True, get_millis(), active.size, {}) for path, active in commit.removes.items()
            ]
            actions: list[AddAction | RemoveAction] = [*map(make_add_action, commit.adds), *removes]
            said = make_properties(manifest, digest)
            schema = delta_schema(manifest)
            table.create_write_transaction(actions, mode="append", schema=schema, commit_properties=said)
    except (CommitFailedError, AlreadyExistsError):
        return None
    table.update_incremental()
    return version_of(table, digest, previous)


def _difference(table: DeltaTable, manifest: Manifest, digest: str, previous: Published | None) -> TableCommit:
    """Returns the commit that replaces the previous snapshot's files (when reconciling: all files) by the new ones."""
    known = vectors_of(previous.manifest) if previous else {}
    before = {path: Active(size, known.get(path)) for path, size in active_files(table).items()}
    after = {f"_data/{f.name}": f for f in manifest.shown}
    same = {path for path, f in after.items() if path in before and before[path].deletions == f.deletions}
    schema = delta_schema(manifest)
    return TableCommit(
        list_facts(manifest, digest),
        [f for path, f in after.items() if path not in same],
        {path: active for path, active in before.items() if path not in same},
        None if table.schema().to_json() == schema.to_json() else schema,
        upgrade=any(f.deletions for f in after.values()) and table.protocol().min_reader_version < VECTORS_READER,
        transactions=list_transactions(manifest, digest),
    )
