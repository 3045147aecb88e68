"""Creates Delta tables without a JVM: the table of a full snapshot, and the first version of the published table."""

from __future__ import annotations

from deltalake.transaction import create_table_with_add_actions

from tidefold.delta.commit_content import list_facts, list_transactions, make_add_action, make_properties
from tidefold.delta.delta_errors import convert_errors
from tidefold.delta.published_table import PROPERTIES
from tidefold.delta.raw_commit import TableCommit, delta_schema, write_first
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.errors import AlreadyExistsError
from tidefold.storage import Store


def create_snapshot_table(store: Store, manifest: Manifest) -> None:
    """Makes the folder of a full snapshot a self-contained Delta table over its own files. Raises TidefoldError."""
    path = LogPaths(manifest.log).snapshot(manifest.snapshot)
    with convert_errors(path):
        if is_table(store, path):
            raise AlreadyExistsError("NAME_TAKEN", f"`{path}` already contains a Delta table.")
        create_table(store, path, manifest, "")


def is_table(store: Store, path: str) -> bool:
    """Whether a folder has a Delta log."""
    # Not deltalake's is_deltatable: no other thread of the process runs while that one waits for S3.
    return any(e.path.endswith((".json", ".parquet")) for e in store.list(f"{path}/_delta_log"))


def create_table(store: Store, path: str, manifest: Manifest, digest: str) -> None:
    """Commits version 0 of a table with the files of the manifest. `digest`: empty for the table of a snapshot."""
    kept = list_transactions(manifest, digest)
    commit = TableCommit(list_facts(manifest, digest), manifest.shown, schema=delta_schema(manifest), transactions=kept)
    if commit.has_vectors:
        write_first(store, path, manifest.log, PROPERTIES, commit)
        return
    create_table_with_add_actions(
        store.uri(path),
        delta_schema(manifest),
        [make_add_action(file) for file in manifest.shown],
        mode="error",
        name=manifest.log,
        configuration=PROPERTIES,
        storage_options=store.options(),
        commit_properties=make_properties(manifest, digest),
    )
    store.sync(f"{path}/_delta_log/{0:020d}.json")
    # deltalake makes folders and syncs none: without these the whole log could be lost with a power cut.
    store.sync(path)
    store.sync(path.split("/")[0])
