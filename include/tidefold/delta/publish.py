"""Makes Delta commits without a JVM: for the table of a snapshot, and for the published table that readers use."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from tidefold.delta.published_table import (
    PROPERTIES,
    Published,
    active_files,
    require_untouched,
    vectors_of,
    version_of,
)
from tidefold.delta.raw_commit import VECTORS_READER, Active, TableCommit, delta_schema, write_commit, write_first
from tidefold.domain.paths import LogPaths, data_path
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.errors import AlreadyExistsError, ConflictError, CorruptError, NotFoundError, StorageError, TidefoldError
from tidefold.ledger.evidence import ATTEMPT_FACT, EPOCH_FACT, MANIFEST_FACT, SNAPSHOT_FACT, transactions_of
from tidefold.storage import Store

_log = logging.getLogger(__name__)
_TRIES = 5
# As often as Spark makes one.
_CHECKPOINT = 10
_LINKERS = 8
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def create_snapshot_table(store: Store, manifest: Manifest) -> None:
    """Makes the folder of a full snapshot a self-contained Delta table over its own files. Raises TidefoldError."""
    path = LogPaths(manifest.log).snapshot(manifest.snapshot)
    with delta_errors(path):
        if _is_table(store, path):
            raise AlreadyExistsError("NAME_TAKEN", f"`{path}` already contains a Delta table.")
        _create(store, path, manifest, "")


def publish(store: Store, manifest: Manifest, digest: str, previous: Published | None, reconcile: bool = False) -> int:
    """Publishes a completed snapshot as exactly one new version of the table, and returns that version.

    Repeating the call returns the same version. Raises RefusedError if another program changed the table since
    `previous`, CorruptError if a file of the snapshot is missing, ConflictError if other writers are always faster.

    digest: sha256 of the manifest, which identifies the commit.
    reconcile: replace the files that other programs committed (such as OPTIMIZE), instead of refusing.
    """
    _provide_files(store, manifest)
    for _ in range(_TRIES):
        with delta_errors(LogPaths(manifest.log).table):
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


@contextmanager
def delta_errors(path: str) -> Iterator[None]:
    """Converts errors of deltalake and of the system: callers handle only tidefold's errors."""
    try:
        yield
    except TidefoldError:
        raise
    except DeltaError as error:
        if "interacting with object store" in str(error):
            raise _unreachable(path, error) from error
        raise CorruptError(
            "DELTA_TABLE", f"The Delta table `{path}` cannot be used: {error}", hint="Restore its `_delta_log`."
        ) from error
    except OSError as error:
        raise _unreachable(path, error) from error


def _unreachable(path: str, error: Exception) -> StorageError:
    # deltalake draws its chain of causes with colours and arrows, over many lines.
    said = " ".join(_COLOUR.sub("", str(error)).replace("\N{DOWNWARDS ARROW WITH TIP RIGHTWARDS}", ":").split())
    return StorageError("STORAGE", f"The Delta table `{path}`: {said}", hint="Call again when the store answers.")


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
        _create(store, path, manifest, digest)
    except (DeltaError, AlreadyExistsError):
        if not _is_table(store, path):
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


def _is_table(store: Store, path: str) -> bool:
    # Not deltalake's is_deltatable: no other thread of the process runs while that one waits for S3.
    return any(e.path.endswith((".json", ".parquet")) for e in store.list(f"{path}/_delta_log"))


def _create(store: Store, path: str, manifest: Manifest, digest: str) -> None:
    kept = _transactions(manifest, digest)
    commit = TableCommit(_facts(manifest, digest), manifest.shown, schema=delta_schema(manifest), transactions=kept)
    if commit.has_vectors:
        write_first(store, path, manifest.log, PROPERTIES, commit)
        return
    create_table_with_add_actions(
        store.uri(path),
        delta_schema(manifest),
        [_add(file) for file in manifest.shown],
        mode="error",
        name=manifest.log,
        configuration=PROPERTIES,
        storage_options=store.options(),
        commit_properties=_properties(manifest, digest),
    )
    store.sync(f"{path}/_delta_log/{0:020d}.json")
    # deltalake makes folders and syncs none: without these the whole log could be lost with a power cut.
    store.sync(path)
    store.sync(path.split("/")[0])


def _commit(store: Store, table: DeltaTable, manifest: Manifest, digest: str, previous: Published | None) -> int | None:
    commit = _difference(table, manifest, digest, previous)
    try:
        if commit.schema or commit.has_vectors:
            write_commit(store, LogPaths(manifest.log).table, table, commit)
        else:
            removes = [RemoveAction(path, True, _millis(), active.size, {}) for path, active in commit.removes.items()]
            actions: list[AddAction | RemoveAction] = [*map(_add, commit.adds), *removes]
            said = _properties(manifest, digest)
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
        _facts(manifest, digest),
        [f for path, f in after.items() if path not in same],
        {path: active for path, active in before.items() if path not in same},
        None if table.schema().to_json() == schema.to_json() else schema,
        upgrade=any(f.deletions for f in after.values()) and table.protocol().min_reader_version < VECTORS_READER,
        transactions=_transactions(manifest, digest),
    )


def _add(file: DataFile) -> AddAction:
    return AddAction(f"_data/{file.name}", file.bytes, {}, _millis(), True, file.stats)


def _millis() -> int:
    # Only information: no reader and no move of ours decides by a file's time.
    return int(time.time() * 1000)


def _facts(manifest: Manifest, digest: str) -> dict[str, str]:
    return {
        SNAPSHOT_FACT: str(manifest.snapshot),
        MANIFEST_FACT: digest,
        EPOCH_FACT: str(manifest.epoch),
        "tidefold.sqn": str(manifest.to_sqn),
        **({ATTEMPT_FACT: manifest.token} if manifest.token else {}),
    }


def _transactions(manifest: Manifest, digest: str) -> dict[str, int]:
    """Returns the transactions that the table keeps for good. The table of a snapshot, which is not published, has
    none.
    """
    return transactions_of(manifest.log, manifest.snapshot, manifest.epoch, digest) if digest else {}


def _properties(manifest: Manifest, digest: str) -> CommitProperties:
    facts: dict[str, Any] = {**_facts(manifest, digest)}
    kept = [Transaction(app, version) for app, version in _transactions(manifest, digest).items()]
    # Never retried by the library: a conflict means that ledger and table are read again first.
    return CommitProperties(custom_metadata=facts, max_commit_retries=0, app_transactions=kept)
