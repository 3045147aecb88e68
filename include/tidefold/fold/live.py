"""Rows as of now: the newest snapshot with the change sets after it, folded while reading; writes nothing, no Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pyarrow as pa

from tidefold.changelog.columns import table_schema
from tidefold.changelog.segment import read_change_set
from tidefold.fold.bucket import MERGE_MEMORY, open_base, with_schema
from tidefold.fold.kernel import merged
from tidefold.fold.plan import files_of
from tidefold.lifecycle.key_groups import KeyGroups, bucket_ranges
from tidefold.lifecycle.values import LogState, Manifest
from tidefold.storage import Store


def live_batches(store: Store, state: LogState, base: Manifest | None) -> Iterator[pa.RecordBatch]:
    """The log's rows, bucket by bucket, each with `table_schema`. `base` is the manifest of `state.latest`."""
    for bucket in bucket_ranges(state.shape.key_groups, state.shape.buckets):
        yield from _bucket(store, state, base, bucket)


def _bucket(store: Store, state: LogState, base: Manifest | None, bucket: KeyGroups) -> Iterator[pa.RecordBatch]:
    schema = table_schema(state.shape)
    tables = [read_change_set(store, c, bucket) for c in state.unfolded if c.key_groups.meets(bucket)]
    with open_base(store, state.log, base.snapshot if base else None, files_of(bucket, base), schema) as rows:
        if not any(table.num_rows for table in tables):
            yield from rows or ()
            return
        with (
            tempfile.TemporaryDirectory(prefix="tidefold-") as scratch,
            merged(rows, pa.concat_tables(tables), state.shape, memory=MERGE_MEMORY, scratch=scratch) as (_, stream),
        ):
            yield from with_schema(stream, schema)
