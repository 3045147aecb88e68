"""Reads what the published table shows, and whether another program changed it since the last publication."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from tidefold.delta.deletion_vectors import deletions
from tidefold.delta.raw_commit import VECTORS_READER, TableProtocol
from tidefold.delta.table_description import delta_schema, drop_comments, is_as_described
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.manifest import Deletions, Manifest
from tidefold.errors import NotFoundError, RefusedError
from tidefold.ledger.evidence import MANIFEST_FACT
from tidefold.storage import Store


@dataclass(frozen=True, slots=True)
class Published:
    """What the table shows now: the manifest of a snapshot, and the table version that showed it first."""

    manifest: Manifest
    version: int


def version_of(table: DeltaTable, digest: str, previous: Published | None) -> int | None:
    """Returns the table version after the previous snapshot's whose commit names the manifest."""
    found = (c for c in _commits_since(table, previous) if c.get(MANIFEST_FACT) == digest)
    return next((int(c["version"]) for c in found), None)


def active_files(table: DeltaTable) -> dict[str, int]:
    """Returns paths and sizes (bytes) of the files that readers see."""
    actions = table.get_add_actions()
    return dict(zip(actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist(), strict=True))


def vectors_of(manifest: Manifest) -> dict[str, Deletions]:
    """Returns the deleted rows of its files, by path."""
    return {f"_data/{f.name}": f.deletions for f in manifest.shown if f.deletions}


def require_untouched(
    store: Store, table: DeltaTable, manifest: Manifest, previous: Published | None, reconcile: bool
) -> None:
    """Raises RefusedError if the table differs from what `previous` left. With `reconcile`, its files may differ."""
    changed = [what for what in _changes(store, table, manifest, previous) if not (reconcile and what == "files")]
    if not changed:
        return
    raise RefusedError(
        "FOREIGN_COMMIT",
        f"Another program changed {', '.join(changed)} of the table of `{manifest.log}`: {_foreign(table, previous)}.",
        hint=f"Readers see that commit. Undo it with Delta's RESTORE and run `tidefold confirm {manifest.log}` again. "
        f"If only files differ, `tidefold confirm {manifest.log} --reconcile` replaces them.",
    )


def _changes(store: Store, table: DeltaTable, manifest: Manifest, previous: Published | None) -> list[str]:
    """Returns which parts of the table differ from the last publication."""
    ours = {f"_data/{f.name}" for f in previous.manifest.shown} if previous else set()
    same = {
        "files": set(active_files(table)) == ours,
        # The schema of the last snapshot. The commit adds that of the new one.
        "schema": drop_comments(table.schema().to_json())
        == drop_comments(delta_schema(previous.manifest if previous else manifest).to_json()),
        "properties": is_as_described(table.metadata().configuration),
        "protocol": find_protocol(table) is not None,
        # Never reconciled: a commit can remove a vector only if it knows its exact bytes.
        "deletion vectors": not _has_vectors_of_others(store, table, ours, manifest.log, previous),
    }
    return [name for name, as_left in same.items() if not as_left]


def find_protocol(table: DeltaTable) -> TableProtocol | None:
    """Returns the protocol of a table; None: tidefold never writes such a protocol."""
    found = table.protocol()
    readers, writers = set(found.reader_features or ()), set(found.writer_features or ())
    known = TableProtocol("deletionVectors" in readers, "changeDataFeed" in writers)
    as_known = (known.versions, set(known.reader_features), set(known.writer_features))
    versions = (found.min_reader_version, found.min_writer_version)
    return known if (versions, readers, writers) == as_known else None


def _has_vectors_of_others(
    store: Store, table: DeltaTable, ours: Collection[str], log: str, previous: Published | None
) -> bool:
    """Whether a commit after the last publication added a deletion vector, or changed or removed one of ours.

    Only such a commit can hide rows of a file that keeps its name, or show them again.
    """
    if table.protocol().min_reader_version < VECTORS_READER:
        return False
    for version in range(previous.version + 1 if previous else 0, table.version() + 1):
        try:
            lines = store.read(f"{LogPaths(log).table}/_delta_log/{version:020d}.json").splitlines()
        except NotFoundError:
            return True  # Another program shortened the log, so tidefold cannot tell.
        adds = [action["add"] for action in map(msgspec.json.decode, lines) if "add" in action]
        if any("deletionVector" in add or add["path"] in ours for add in adds):
            return True
    return False


def find_deleted_rows(table: DeltaTable) -> dict[str, Deletions]:
    """Returns the deleted rows of the active files, by path. It needs memory for every row of such a file."""
    if table.protocol().min_reader_version < VECTORS_READER:
        return {}
    root, found = f"{table.table_uri.rstrip('/')}/", {}
    for batch in table.deletion_vectors():
        rows = pa.record_batch(batch)
        for address, selected in zip(rows.column("filepath"), rows.column("selection_vector"), strict=True):
            gone = np.flatnonzero(~selected.values.to_numpy(zero_copy_only=False)).astype(np.uint64)
            if (vector := deletions(gone)) is not None:
                found[address.as_py().removeprefix(root)] = vector
    return found


def _commits_since(table: DeltaTable, previous: Published | None) -> list[dict[str, Any]]:
    """Returns the commits after the one that published the previous snapshot, newest first."""
    count = table.version() - (previous.version if previous else -1)
    return table.history(limit=count) if count > 0 else []


def _foreign(table: DeltaTable, previous: Published | None) -> str:
    others = [c for c in _commits_since(table, previous) if MANIFEST_FACT not in c]
    return ", ".join(f"version {c['version']} {c.get('operation')}" for c in others) or "files differ"
