"""Reads the content of a Delta log, to compare it with its manifest, and builds the log that a manifest should give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tidefold.delta.create_table import create_snapshot_table
from tidefold.delta.delta_errors import convert_errors
from tidefold.delta.published_table import find_deleted_rows
from tidefold.delta.table_description import drop_comments
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.storage import Store
from tidefold.storage.local_store import LocalStore
from tidefold.storage.scratch import open_scratch

# The time of an action does not belong to its content.
_INSTANT = "modification_time"


@dataclass(frozen=True, slots=True)
class DeltaState:
    """The schema without comments, and for each active file its whole `add` action, including size and statistics."""

    schema: str
    files: Mapping[str, Mapping[str, Any]]


def delta_state(store: Store, path: str) -> DeltaState | None:
    """Returns the content of the newest version of a Delta table; None if there is no table.

    Raises CorruptError if the log cannot be read, StorageError if the store does not answer.
    """
    with convert_errors(path):
        try:
            table = DeltaTable(store.uri(path), storage_options=store.options())
        except TableNotFoundError:
            return None
        # Flat: what a struct of statistics holds depends on which columns have any.
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        files = {a["path"]: {k: v for k, v in a.items() if k != _INSTANT and v is not None} for a in actions}
        for name, gone in find_deleted_rows(table).items():
            files[name]["deleted"] = gone
        return DeltaState(drop_comments(table.schema().to_json()), files)


def build_table(manifest: Manifest) -> tuple[DeltaState, bytes]:
    """Returns the expected content of the Delta log of a snapshot's own table, and the bytes of its one commit."""
    path = LogPaths(manifest.log).snapshot(manifest.snapshot)
    with open_scratch() as scratch:
        store = LocalStore(Path(scratch))
        create_snapshot_table(store, manifest)
        state = delta_state(store, path)
        commit = store.read(f"{path}/{COMMIT}")
    if state is None:
        raise AssertionError("a table that was just made is there")
    return state, commit


COMMIT = f"_delta_log/{0:020d}.json"
