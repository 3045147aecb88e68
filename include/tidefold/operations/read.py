"""Reads a log's rows for people and scripts: as published, or live; starts no JVM."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tidefold.changelog.columns import table_schema
from tidefold.fold.bucket import open_base
from tidefold.fold.live import live_batches
from tidefold.ledger import read_manifest
from tidefold.lifecycle.errors import NotFoundError
from tidefold.lifecycle.moves import known
from tidefold.lifecycle.values import LogState, Manifest, Snapshot, State
from tidefold.operations.pipeline import Pipeline


def read_rows(
    pipeline: Pipeline, log: str, live: bool = False, snapshot: int | None = None
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Schema and rows of the published table, of one snapshot, or (`live`) of everything that was ingested.

    Raises NotFoundError when there is nothing to read yet.
    """
    state = pipeline.ledger(log).read()
    schema = table_schema(state.shape)
    if live:
        base = read_manifest(pipeline.store, log, state.latest) if state.latest else None
        return schema, live_batches(pipeline.store, state, base)
    chosen = _published(state) if snapshot is None else _kept(state, snapshot)
    return schema, _batches(pipeline, read_manifest(pipeline.store, log, chosen), schema)


def _published(state: LogState) -> Snapshot:
    found = next((s for s in reversed(state.snapshots) if s.published), None)
    if found is None:
        message = f"`{state.log}` has no published snapshot yet."
        raise NotFoundError("NOTHING_PUBLISHED", message, hint=f"`tidefold run {state.log}` makes one.")
    return found


def _kept(state: LogState, snapshot: int) -> Snapshot:
    found = known(state, snapshot)
    if found.state not in (State.COMPLETED, State.STAGED):
        raise NotFoundError(
            "SNAPSHOT_GONE",
            f"Snapshot {snapshot} of `{state.log}` is {found.state}; its files are not kept.",
            hint=f"`tidefold history {state.log}` shows which are COMPLETED.",
        )
    return found


def _batches(pipeline: Pipeline, manifest: Manifest, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    # File by file: a look at the first rows of a large table reads one file. (A dataset's reader threads hang the
    # process at its end when not all of it was read.)
    for file in manifest.files:
        with open_base(pipeline.store, manifest.log, manifest.snapshot, (file,), schema) as rows:
            yield from rows or ()
