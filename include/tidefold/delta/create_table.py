"""Creates Delta tables without a JVM: the table of a full snapshot, and the first version of the published table."""

from __future__ import annotations

from collections.abc import Mapping

from deltalake.transaction import create_table_with_add_actions

from tidefold.delta.commit_content import NO_FACTS, list_facts, list_transactions, make_add_action, make_properties
from tidefold.delta.delta_errors import convert_errors
from tidefold.delta.raw_commit import TableCommit, TableMetadata, TableProtocol, write_first
from tidefold.delta.table_description import TableDescription
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.storage import Store
from tidefold.storage.store import make_taken_error


def create_snapshot_table(store: Store, manifest: Manifest) -> None:
    """Makes the folder of a full snapshot a self-contained Delta table over its own files. Raises TidefoldError."""
    path = LogPaths(manifest.log).snapshot(manifest.snapshot)
    with convert_errors(path):
        if is_table(store, path):
            raise make_taken_error(path, "already contains a Delta table")
        create_table(store, path, manifest, "", TableDescription())


def is_table(store: Store, path: str) -> bool:
    """Whether a folder has a Delta log."""
    # Not deltalake's is_deltatable: no other thread of the process runs while that one waits for S3.
    return any(e.path.endswith((".json", ".parquet")) for e in store.list(f"{path}/_delta_log"))


def create_table(
    store: Store,
    path: str,
    manifest: Manifest,
    digest: str,
    described: TableDescription,
    facts: Mapping[str, str] = NO_FACTS,
) -> None:
    """Commits version 0 of a table with the files of the manifest.

    digest: empty for the table of a snapshot.
    facts: further facts for the commit.
    """
    schema, properties = described.describe(manifest), described.properties
    vectors = any(file.deletions for file in manifest.shown)
    # deltalake refuses properties that are not Delta's.
    if vectors or described.change_feed or described.facts:
        commit = TableCommit(
            {**list_facts(manifest, digest), **facts},
            manifest.shown,
            metadata=TableMetadata(schema, described.comment, properties),
            protocol=TableProtocol(vectors, described.change_feed),
            transactions=list_transactions(manifest, digest),
        )
        write_first(store, path, manifest.log, commit)
        return
    create_table_with_add_actions(
        store.uri(path),
        schema,
        [make_add_action(file) for file in manifest.shown],
        mode="error",
        name=manifest.log,
        description=described.comment,
        configuration=properties,
        storage_options=store.options(),
        commit_properties=make_properties(manifest, digest, facts),
    )
    store.sync(f"{path}/_delta_log/{0:020d}.json")
    # deltalake makes folders and syncs none: without these the whole log could be lost with a power cut.
    store.sync(path)
    store.sync(path.split("/")[0])
