"""Delta commits without a JVM: a snapshot's own table, and the published table that readers use (design 4)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from tidefold.fold.delta_commit import commit_with_schema, delta_schema
from tidefold.lifecycle.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptError,
    NotFoundError,
    RefusedError,
    StorageError,
    TidefoldError,
)
from tidefold.lifecycle.manifest import DataFile, Manifest
from tidefold.lifecycle.names import LogPaths, data_path
from tidefold.storage import Store

_TRIES = 5
_LINKERS = 8
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Commit metadata: the snapshot that a table version shows, for people, and the sha256 of its manifest, which decides.
# Ids begin anew with a log; a manifest names files with random names, so no other one has its digest.
_SNAPSHOT = "tidefold.snapshot"
_MANIFEST = "tidefold.manifest"
_READER, _WRITER = 1, 2  # Protocol versions that every Delta reader knows.
# Files that plain readers of older versions use are tidefold's to remove, never a clock's.
_PROPERTIES = {
    "delta.deletedFileRetentionDuration": "interval 3650 days",
    "delta.logRetentionDuration": "interval 3650 days",
}


def create_snapshot_table(store: Store, manifest: Manifest) -> None:
    """Makes a full snapshot's folder a self-contained Delta table over its own files. Raises TidefoldError."""
    path = LogPaths(manifest.log).snapshot(manifest.snapshot)
    with delta_errors(path):
        if _is_table(store, path):
            raise AlreadyExistsError("NAME_TAKEN", f"`{path}` is a Delta table already.")
        _create(store, path, manifest, "")


@dataclass(frozen=True, slots=True)
class Published:
    """What the table shows now: a snapshot's manifest and the table version that showed it first."""

    manifest: Manifest
    version: int


def publish(store: Store, manifest: Manifest, digest: str, previous: Published | None, reconcile: bool = False) -> int:
    """Shows a completed snapshot to readers as exactly one new version of the table; answers that version.

    `digest`: sha256 of the manifest, by which the commit is known again. With `reconcile` it replaces whatever files
    somebody else's commits left in the table (such as OPTIMIZE), instead of refusing.

    Repeating it answers the same version. Raises RefusedError when somebody else changed the table since `previous`,
    CorruptError when a file of the snapshot is missing, ConflictError when other writers keep being faster.
    """
    _provide_files(store, manifest)
    for _ in range(_TRIES):
        with delta_errors(LogPaths(manifest.log).table):
            version = _try_publish(store, manifest, digest, previous, reconcile)
        if version is not None:
            store.sync(f"{LogPaths(manifest.log).table}/_delta_log/{version:020d}.json")
            return version
    raise ConflictError("TABLE_BUSY", f"Other writers committed to the table of `{manifest.log}` {_TRIES} times.")


def provide_new_files(store: Store, manifest: Manifest, copy: bool = False) -> None:
    """Puts the snapshot's new files beside the table's, where readers do not see them before they are published."""
    _link_all(store, manifest, [f for f in manifest.files if not f.carried], copy)


def _provide_files(store: Store, manifest: Manifest) -> None:
    """Checks that every file of the snapshot is in the table's folder, and provides what is not."""
    missing = _missing(store, manifest)
    # An incremental snapshot has its files nowhere else.
    _link_all(store, manifest, missing)
    # Names of one file, or copies of it, are as short as it is.
    cut = _missing(store, manifest) if missing else []
    if cut:
        raise CorruptError(
            "DATA_FILE_CUT",
            f"`{cut[0].name}` has not the length that snapshot {manifest.snapshot} of `{manifest.log}` was judged by.",
            hint="`tidefold verify --repair` mends it from another copy, if there is one.",
        )
    if manifest.files:
        # Whoever linked the others may have been killed before it synced.
        store.sync(f"{LogPaths(manifest.log).table}/_data")


def _missing(store: Store, manifest: Manifest) -> list[DataFile]:
    """The files that are not in the table's folder, or not with their length."""
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
                f"`{source}` is gone, and snapshot {manifest.snapshot} of `{manifest.log}` needs it.",
                hint="Restore the file from a copy.",
            ) from error

    # Side by side: in an object store each takes a moment.
    with ThreadPoolExecutor(_LINKERS) as pool:
        list(pool.map(put, files))


@contextmanager
def delta_errors(path: str) -> Iterator[None]:
    """deltalake raises errors of its own and of the system; whoever calls handles only ours."""
    try:
        yield
    except TidefoldError:
        raise
    except DeltaError as error:
        if "interacting with object store" in str(error):
            raise _unreachable(path, error) from error
        raise CorruptError(
            "DELTA_TABLE", f"The Delta table `{path}` cannot be used: {error}", hint="Restore its _delta_log."
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
    """One try: the version that shows the snapshot, or None when another commit came between."""
    path = LogPaths(manifest.log).table
    try:
        table = DeltaTable(store.uri(path), storage_options=store.options())
    except TableNotFoundError:
        if previous is not None:
            raise CorruptError(
                "TABLE_MISSING",
                f"The table of `{manifest.log}` is gone, though snapshot {previous.manifest.snapshot} was published.",
                hint=f"Every snapshot is a table of its own under `snapshots/{manifest.log}/`.",
            ) from None
        return _create_published(store, path, manifest, digest)
    done = _version_of(table, digest, previous)
    if done is not None:
        return done
    _require_untouched(table, manifest, previous, reconcile)
    return _commit(store, table, manifest, digest, previous)


def _create_published(store: Store, path: str, manifest: Manifest, digest: str) -> int | None:
    try:
        _create(store, path, manifest, digest)
    except DeltaError:
        if not _is_table(store, path):
            raise
    return _version_of(DeltaTable(store.uri(path), storage_options=store.options()), digest, None)


def _is_table(store: Store, path: str) -> bool:
    # Not deltalake's is_deltatable: no other thread of the process runs while that one waits for S3.
    return any(e.path.endswith((".json", ".parquet")) for e in store.list(f"{path}/_delta_log"))


def _create(store: Store, path: str, manifest: Manifest, digest: str) -> None:
    create_table_with_add_actions(
        store.uri(path),
        delta_schema(manifest),
        [_add(file) for file in manifest.shown],
        mode="error",
        name=manifest.log,
        configuration=_PROPERTIES,
        storage_options=store.options(),
        commit_properties=_properties(manifest, digest),
    )
    store.sync(f"{path}/_delta_log/{0:020d}.json")


def _commit(store: Store, table: DeltaTable, manifest: Manifest, digest: str, previous: Published | None) -> int | None:
    # What the table shows now: the files of the previous snapshot, unless others' work is being reconciled.
    before = _active_files(table)
    after = {f"_data/{f.name}": f for f in manifest.shown}
    adds = [_add(f) for path, f in after.items() if path not in before]
    gone = {path: size for path, size in before.items() if path not in after}
    schema = delta_schema(manifest)
    try:
        if table.schema().to_json() == schema.to_json():
            actions: list[AddAction | RemoveAction] = [*adds, *(_remove(path, size) for path, size in gone.items())]
            said = _properties(manifest, digest)
            table.create_write_transaction(actions, mode="append", schema=schema, commit_properties=said)
        else:
            path = LogPaths(manifest.log).table
            commit_with_schema(store, path, table, schema, adds, gone, _facts(manifest, digest))
    except (CommitFailedError, AlreadyExistsError):
        return None
    table.update_incremental()
    return _version_of(table, digest, previous)


def _version_of(table: DeltaTable, digest: str, previous: Published | None) -> int | None:
    """The table version, after the previous snapshot's, whose commit says that it shows the manifest."""
    found = (c for c in _commits_since(table, previous) if c.get(_MANIFEST) == digest)
    return next((int(c["version"]) for c in found), None)


def _active_files(table: DeltaTable) -> dict[str, int]:
    """Paths and sizes (bytes) of the files that readers see."""
    actions = table.get_add_actions()
    return dict(zip(actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist(), strict=True))


def _require_untouched(table: DeltaTable, manifest: Manifest, previous: Published | None, reconcile: bool) -> None:
    changed = [what for what in _changes(table, manifest, previous) if not (reconcile and what == "files")]
    if not changed:
        return
    raise RefusedError(
        "FOREIGN_COMMIT",
        f"Other {', '.join(changed)} in the table of `{manifest.log}` than tidefold left: {_foreign(table, previous)}.",
        hint="Undo it (RESTORE to the version before) and `tidefold confirm` again, or `tidefold confirm --reconcile` "
        "to replace other files. Readers still see that commit.",
    )


def _changes(table: DeltaTable, manifest: Manifest, previous: Published | None) -> list[str]:
    """What of the table is not as the last publication left it."""
    ours = {f"_data/{f.name}" for f in previous.manifest.shown} if previous else set()
    protocol = table.protocol()
    same = {
        "files": set(_active_files(table)) == ours,
        # As the last snapshot had it; the commit brings that of the new one.
        "schema": table.schema().to_json() == delta_schema(previous.manifest if previous else manifest).to_json(),
        "properties": table.metadata().configuration == _PROPERTIES,
        # Also the only way in which rows could vanish from a file that keeps its name: deletion vectors need more.
        "protocol": (protocol.min_reader_version, protocol.min_writer_version) == (_READER, _WRITER),
    }
    return [name for name, as_left in same.items() if not as_left]


def _commits_since(table: DeltaTable, previous: Published | None) -> list[dict[str, Any]]:
    """Commits after the one that published the previous snapshot, newest first; earlier ones are not read."""
    count = table.version() - (previous.version if previous else -1)
    return table.history(limit=count) if count > 0 else []


def _foreign(table: DeltaTable, previous: Published | None) -> str:
    others = [c for c in _commits_since(table, previous) if _MANIFEST not in c]
    return ", ".join(f"version {c['version']} {c.get('operation')}" for c in others) or "files differ"


def _add(file: DataFile) -> AddAction:
    return AddAction(f"_data/{file.name}", file.bytes, {}, _millis(), True, file.stats)


def _remove(path: str, size: int) -> RemoveAction:
    return RemoveAction(path, True, _millis(), size, {})


def _millis() -> int:
    # Only information: no reader and no move of ours decides by a file's time.
    return int(time.time() * 1000)


def _facts(manifest: Manifest, digest: str) -> dict[str, str]:
    return {
        _SNAPSHOT: str(manifest.snapshot),
        _MANIFEST: digest,
        "tidefold.epoch": str(manifest.epoch),
        "tidefold.sqn": str(manifest.to_sqn),
    }


def _properties(manifest: Manifest, digest: str) -> CommitProperties:
    facts: dict[str, Any] = {**_facts(manifest, digest)}
    # Never retried by the library: a conflict means that ledger and table are read again first.
    return CommitProperties(custom_metadata=facts, max_commit_retries=0)
