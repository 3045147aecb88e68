"""Publishes snapshots as versions of the table that readers use, without a JVM; `raw_commit.py` writes commits."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tidefold.delta import published_table, raw_commit
from tidefold.delta.deletion_vectors import descriptor, vector_file
from tidefold.domain.ledger_evidence import hint_to_rebuild
from tidefold.domain.paths import LogPaths, data_path, vector_name
from tidefold.domain.snapshot.manifest import DataFile, Deletions, Manifest
from tidefold.errors import AlreadyExistsError, ConflictError, CorruptError, NotFoundError, UnknownOutcomeError
from tidefold.ledger.evidence import ATTEMPT_FACT, read_commit_facts
from tidefold.storage import SizedStore, Store, files_at_once, find_sizes, link_data_file
from tidefold.storage.delta_tables import convert_errors, open_table
from tidefold.storage.local_store import LocalStore
from tidefold.storage.safe_files import open_scratch
from tidefold.storage.store import make_taken_error

_log = logging.getLogger(__name__)
_TRIES = 5
# As often as Spark makes one.
_CHECKPOINT = 10


# Writes the files of the change data feed from one snapshot to the next, and returns them.
FeedWriter = Callable[[Manifest, Manifest], Sequence[DataFile]]


@dataclass(frozen=True, slots=True)
class Publication:
    """How a snapshot is published.

    description: comments and properties of the table.
    write_feed: writes the change data feed; None: the table has none.
    facts: further facts for the commit, such as the point of a set.
    reconcile: replace the files that other programs committed (such as OPTIMIZE), instead of refusing.
    """

    description: published_table.TableDescription = field(default_factory=published_table.TableDescription)
    write_feed: FeedWriter | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    reconcile: bool = False


def publish(
    store: Store,
    manifest: Manifest,
    digest: str,
    previous: published_table.Published | None,
    how: Publication | None = None,
) -> int:
    """Publishes a completed snapshot as exactly one new version of the table, and returns that version.

    Repeating the call returns the same version. Raises RefusedError if another program changed the table since
    `previous`, CorruptError if a file of the snapshot is missing, ConflictError if other writers are always faster.

    digest: sha256 of the manifest, which identifies the commit.
    """
    attempt = PublishAttempt(store, manifest, digest, previous, how or Publication())
    for _ in range(_TRIES):
        with convert_errors(LogPaths(manifest.log).table):
            version = attempt.try_publish()
        if version is not None:
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
        table = open_table(store, LogPaths(log).table, version)
        table.create_checkpoint()
        for name in (f"{version:020d}.checkpoint.parquet", "_last_checkpoint"):
            store.sync(f"{folder}/{name}")
    except Exception as error:
        _log.warning("%s: no checkpoint of version %d, readers read more of its log: %s", log, version, error)


def provide_new_files(store: Store, manifest: Manifest, copy: bool = False, threads: int | None = None) -> None:
    """Puts the new files of the snapshot into the table's folder. Readers do not see them before they are published.

    threads: how many files at once; None: the default.
    """
    _link_all(store, manifest, [f for f in manifest.files if not f.carried], copy, threads)


def _link_all(
    store: Store,
    manifest: Manifest,
    files: Iterable[DataFile],
    copy: bool = False,
    threads: int | None = None,
    taken: Container[str] = (),
) -> None:
    """Links files of the snapshot into the table's folder. `taken`: the names that the folder has already."""
    table = LogPaths(manifest.log).table

    def put(file: DataFile) -> None:
        source, target = data_path(manifest.data_folder, file.name), data_path(table, file.name)
        try:
            if target in taken:  # `link` compares the bytes.
                store.link(source, target, copy=copy)
            else:
                link_data_file(store, source, target, file.bytes, copy)
        except NotFoundError as error:
            raise CorruptError(
                "DATA_FILE_MISSING",
                f"`{source}` is missing, and snapshot {manifest.snapshot} of `{manifest.log}` needs it.",
            ) from error

    # Side by side: in an object store each takes a moment.
    with ThreadPoolExecutor(files_at_once(store, threads)) as pool:
        list(pool.map(put, files))


def create_snapshot_table(store: Store, manifest: Manifest) -> None:
    """Makes the folder of a full snapshot a self-contained Delta table over its own files. Raises TidefoldError."""
    path = LogPaths(manifest.log).snapshot(manifest.snapshot)
    with convert_errors(path):
        if published_table.is_table(store, path):
            raise make_taken_error(path, "already contains a Delta table")
        try:
            create_table(store, path, manifest, "", published_table.TableDescription())
        except (AlreadyExistsError, UnknownOutcomeError):
            # The store may have lost its answer to the commit.
            if (
                not published_table.is_table(store, path)
                or read_commit_facts(store, path, 0).get(ATTEMPT_FACT) != manifest.token
            ):
                raise


def create_table(
    store: Store,
    path: str,
    manifest: Manifest,
    digest: str,
    described: published_table.TableDescription,
    facts: Mapping[str, str] = raw_commit.NO_FACTS,
) -> None:
    """Commits version 0 of a table with the files of the manifest.

    digest: empty for the table of a snapshot, whose one commit has all of its deletion vectors.
    facts: further facts for the commit.
    """
    protocol = raw_commit.TableProtocol(any(file.deletions for file in manifest.shown), described.change_feed)
    properties = described.list_properties(protocol.vectors)
    commit = raw_commit.TableCommit(
        {**raw_commit.list_facts(manifest, digest), **facts},
        manifest.shown,
        metadata=raw_commit.TableMetadata(described.describe(manifest), described.comment, properties),
        protocol=protocol,
        transactions=raw_commit.list_transactions(manifest, digest),
        vector_files=bool(digest),
    )
    if commit.vector_files:
        _write_vectors(store, path, commit)
    raw_commit.write_first(store, path, manifest.log, commit)


def _write_vectors(store: Store, table: str, commit: raw_commit.TableCommit) -> None:
    """Writes the deletion vectors that a commit adds. Their names come from their content."""

    def put(deleted: Deletions) -> None:
        path, data = data_path(table, vector_name(deleted.vector)), vector_file(deleted)
        try:
            store.put_if_absent(path, data)
        except AlreadyExistsError:
            if store.read(path) != data:  # It was damaged since.
                with store.replace([path]) as stream:
                    stream.write(data)

    with ThreadPoolExecutor(files_at_once(store, None)) as pool:
        list(pool.map(put, {file.deletions for file in commit.adds if file.deletions}))


def build_table(manifest: Manifest) -> tuple[published_table.DeltaState, bytes]:
    """Returns the expected content of the Delta log of a snapshot's own table, and the bytes of its one commit."""
    path = LogPaths(manifest.log).snapshot(manifest.snapshot)
    with open_scratch() as scratch:
        store = LocalStore(Path(scratch))
        create_snapshot_table(store, manifest)
        state = published_table.delta_state(store, path)
        commit = store.read(f"{path}/{published_table.COMMIT}")
    if state is None:
        raise AssertionError("a table that was just made is there")
    return state, commit


@dataclass(slots=True)
class PublishAttempt:
    """The arguments of `publish`, and the change data feed, which is written at most once."""

    store: Store
    manifest: Manifest
    digest: str
    previous: published_table.Published | None
    how: Publication
    _feed: Sequence[DataFile] | None = None

    def try_publish(self) -> int | None:
        """Tries once. Returns the version that shows the snapshot; None if another commit came first."""
        store, manifest, path = self.store, self.manifest, LogPaths(self.manifest.log).table
        try:
            table = open_table(store, path)
        except TableNotFoundError:
            if self.previous is not None:
                raise CorruptError(
                    "TABLE_MISSING",
                    f"The table of `{manifest.log}` is missing, but snapshot {self.previous.manifest.snapshot} was "
                    "published.",
                    hint=f"{hint_to_rebuild(manifest.log)}.",
                ) from None
            _provide_files(store, manifest, {})
            return self._create(path)
        if (done := published_table.version_of(table, self.digest, self.previous)) is not None:
            return self._sync(done)
        published_table.require_untouched(store, table, manifest, self.previous, reconcile=self.how.reconcile)
        _provide_files(store, manifest, published_table.active_files(table))
        return self.commit(table)

    def _create(self, path: str) -> int | None:
        try:
            create_table(self.store, path, self.manifest, self.digest, self.how.description, self.how.facts)
        except (AlreadyExistsError, UnknownOutcomeError):
            if not published_table.is_table(self.store, path):
                raise
            return self._sync(published_table.version_of(open_table(self.store, path), self.digest, None))
        return published_table.version_of(open_table(self.store, path), self.digest, None)

    def commit(self, table: DeltaTable) -> int | None:
        path, commit = LogPaths(self.manifest.log).table, self._find_difference(table)
        _write_vectors(self.store, path, commit)
        try:
            raw_commit.write_commit(self.store, path, table, commit)
        except AlreadyExistsError:
            return None
        except UnknownOutcomeError:  # The table shows whether it was written.
            table.update_incremental()
            return self._sync(published_table.version_of(table, self.digest, self.previous))
        table.update_incremental()
        return published_table.version_of(table, self.digest, self.previous)

    def _sync(self, version: int | None) -> int | None:
        """Returns the version. Another process that wrote it may have been killed before it synced."""
        if version is not None:
            self.store.sync(f"{LogPaths(self.manifest.log).table}/_delta_log/{version:020d}.json")
        return version

    def _find_difference(self, table: DeltaTable) -> raw_commit.TableCommit:
        """Returns the commit that replaces the previous snapshot's files (when reconciling: all files) by the new
        ones.
        """
        manifest = self.manifest
        vectors = published_table.find_vectors(self.store, table, manifest.log, self.previous) or {}
        active = published_table.active_files(table).items()
        before = {path: raw_commit.Active(size, vectors.get(path)) for path, size in active}
        after = {f"_data/{f.name}": f for f in manifest.shown}
        new = {path: descriptor(f.deletions, is_file=True) if f.deletions else None for path, f in after.items()}
        same = {path for path, vector in new.items() if path in before and before[path].vector == vector}
        protocol = published_table.find_protocol(table) or raw_commit.TableProtocol()
        wanted = raw_commit.TableProtocol(
            protocol.vectors or any(new.values()), protocol.feed or self.how.description.change_feed
        )
        return raw_commit.TableCommit(
            {**raw_commit.list_facts(manifest, self.digest), **self.how.facts},
            [f for path, f in after.items() if path not in same],
            {path: file for path, file in before.items() if path not in same},
            metadata=_find_new_metadata(table, manifest, self.how.description, wanted.vectors),
            protocol=None if wanted == protocol else wanted,
            transactions=raw_commit.list_transactions(manifest, self.digest),
            changes=self._write_feed(),
            replaces_all=bool(before) and not same,
            vector_files=True,
        )

    def _write_feed(self) -> Sequence[DataFile]:
        if self._feed is None:
            write, previous = self.how.write_feed, self.previous
            self._feed = write(previous.manifest, self.manifest) if write and previous else ()
        return self._feed


def _provide_files(store: Store, manifest: Manifest, shown: Mapping[str, int]) -> None:
    """Checks that every file of the snapshot is in the table's folder, and adds missing ones.

    shown: the files that the table shows now, and their lengths. A store across a network is not asked for them again.
    """
    folder = f"{LogPaths(manifest.log).table}/_data"
    wanted = manifest.files
    if isinstance(store, SizedStore):
        wanted = tuple(file for file in wanted if shown.get(f"_data/{file.name}") != file.bytes)
    present = find_sizes(store, folder, _list_paths(folder, wanted))
    missing = _find_missing(folder, wanted, present)
    # An incremental snapshot has its files nowhere else.
    _link_all(store, manifest, missing, taken=present)
    # Names of one file, or copies of it, are as short as it is.
    cut = _find_missing(folder, missing, find_sizes(store, folder, _list_paths(folder, missing)))
    if cut:
        raise CorruptError(
            "DATA_FILE_CUT",
            f"`{cut[0].name}` of snapshot {manifest.snapshot} of `{manifest.log}` has another length than recorded.",
        )
    if manifest.files:
        # The process that linked the others may have been killed before it synced.
        store.sync(folder)


def _list_paths(folder: str, files: Sequence[DataFile]) -> list[str]:
    return [f"{folder}/{file.name}" for file in files]


def _find_missing(folder: str, files: Sequence[DataFile], present: Mapping[str, int]) -> list[DataFile]:
    """Returns the files that are missing in the table's folder, or have another length."""
    return [file for file in files if present.get(f"{folder}/{file.name}") != file.bytes]


def _find_new_metadata(
    table: DeltaTable, manifest: Manifest, described: published_table.TableDescription, vectors: bool
) -> raw_commit.TableMetadata | None:
    """Returns the metadata of the snapshot; None if the table has it already."""
    now, schema = table.metadata(), table.schema().to_json()
    # Comments that the configuration does not mention are the user's.
    described = replace(described, comments={**published_table.find_comments(schema), **described.comments})
    comment = now.description if described.comment is None else described.comment
    wanted = raw_commit.TableMetadata(described.describe(manifest), comment, described.list_properties(vectors))
    same = (json.loads(schema), now.description, dict(now.configuration))
    return None if same == (json.loads(wanted.schema.to_json()), comment, wanted.properties) else wanted
