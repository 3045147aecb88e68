"""What the published table shows, and whether anybody but us changed it since the last publication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from tidefold.fold.delta_commit import VECTORS, VECTORS_READER, VECTORS_WRITER, Active, delta_schema
from tidefold.lifecycle.errors import RefusedError
from tidefold.lifecycle.manifest import Deletions, Manifest
from tidefold.vectors import deletions

# Commit metadata: the sha256 of the manifest of the snapshot that a table version shows. Ids begin anew with a log; a
# manifest names files with random names, so no other one has its digest.
MANIFEST = "tidefold.manifest"
# Files that plain readers of older versions use are tidefold's to remove, never a clock's.
PROPERTIES = {
    "delta.deletedFileRetentionDuration": "interval 3650 days",
    "delta.logRetentionDuration": "interval 3650 days",
}
_READER, _WRITER = 1, 2  # Protocol versions that every Delta reader knows.


@dataclass(frozen=True, slots=True)
class Published:
    """What the table shows now: a snapshot's manifest and the table version that showed it first."""

    manifest: Manifest
    version: int


def version_of(table: DeltaTable, digest: str, previous: Published | None) -> int | None:
    """The table version, after the previous snapshot's, whose commit says that it shows the manifest."""
    found = (c for c in _commits_since(table, previous) if c.get(MANIFEST) == digest)
    return next((int(c["version"]) for c in found), None)


def active_files(table: DeltaTable) -> dict[str, Active]:
    """The files that readers see, by path."""
    actions, gone = table.get_add_actions(), _deleted(table)
    sizes = zip(actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist(), strict=True)
    return {path: Active(size, gone.get(path)) for path, size in sizes}


def _deleted(table: DeltaTable) -> dict[str, Deletions]:
    """Which rows of its active files a table says are deleted, by path."""
    if VECTORS not in (table.protocol().reader_features or ()):
        return {}
    found = pa.table(table.deletion_vectors())
    vectors = (selected.values.to_numpy(zero_copy_only=False) for selected in found.column("selection_vector"))
    gone = (deletions(np.flatnonzero(~selected).astype(np.uint64)) for selected in vectors)
    # Addresses of files: ours all lie in one folder of the table.
    names = (address.rpartition("/")[2] for address in found.column("filepath").to_pylist())
    return {f"_data/{name}": vector for name, vector in zip(names, gone, strict=True) if vector}


def require_untouched(table: DeltaTable, manifest: Manifest, previous: Published | None, reconcile: bool) -> None:
    """Raises RefusedError when the table is not as `previous` left it; with `reconcile` its files may be others."""
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
    ours = {f"_data/{f.name}": f.deletions for f in previous.manifest.shown} if previous else {}
    found = {path: active.deletions for path, active in active_files(table).items()}
    same = {
        "files": found == ours,
        # As the last snapshot had it; the commit brings that of the new one.
        "schema": table.schema().to_json() == delta_schema(previous.manifest if previous else manifest).to_json(),
        "properties": table.metadata().configuration == PROPERTIES,
        "protocol": _is_known(table),
        # Not even to be reconciled: only a vector that is known to the letter can be taken back.
        "deletion vectors": all(vector in (None, ours.get(path)) for path, vector in found.items()),
    }
    return [name for name, as_left in same.items() if not as_left]


def _is_known(table: DeltaTable) -> bool:
    found = table.protocol()
    versions = (found.min_reader_version, found.min_writer_version)
    with_vectors = versions == (VECTORS_READER, VECTORS_WRITER) and found.reader_features == [VECTORS]
    return versions == (_READER, _WRITER) or with_vectors


def _commits_since(table: DeltaTable, previous: Published | None) -> list[dict[str, Any]]:
    """Commits after the one that published the previous snapshot, newest first; earlier ones are not read."""
    count = table.version() - (previous.version if previous else -1)
    return table.history(limit=count) if count > 0 else []


def _foreign(table: DeltaTable, previous: Published | None) -> str:
    others = [c for c in _commits_since(table, previous) if MANIFEST not in c]
    return ", ".join(f"version {c['version']} {c.get('operation')}" for c in others) or "files differ"
