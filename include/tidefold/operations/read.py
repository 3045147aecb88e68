"""Reads a log's rows for people and scripts: as published, or live; starts no JVM."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from deltalake import DeltaTable

from tidefold.changelog.columns import table_schema
from tidefold.fold.live import live_batches
from tidefold.ledger import read_manifest
from tidefold.lifecycle.errors import NotFoundError
from tidefold.lifecycle.moves import known
from tidefold.lifecycle.names import LogPaths
from tidefold.lifecycle.values import State
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
    path = LogPaths(log).table
    if snapshot is not None:
        _require_kept(known(state, snapshot).state, log, snapshot)
        path = LogPaths(log).snapshot(snapshot)
    elif not any(s.published for s in state.snapshots):
        raise NotFoundError(
            "NOTHING_PUBLISHED", f"`{log}` has no published snapshot yet.", hint=f"`tidefold run {log}`"
        )
    return schema, _batches(DeltaTable(pipeline.store.uri(path)), schema)


def _require_kept(state: State, log: str, snapshot: int) -> None:
    if state not in (State.COMPLETED, State.STAGED):
        raise NotFoundError(
            "SNAPSHOT_GONE",
            f"Snapshot {snapshot} of `{log}` is {state}; its files are not kept.",
            hint=f"`tidefold history {log}` shows which are COMPLETED.",
        )


def _batches(table: DeltaTable, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in table.to_pyarrow_dataset().to_batches():
        yield from pa.Table.from_batches([batch]).cast(schema).to_batches()
