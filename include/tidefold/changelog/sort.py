"""Sorts a change set by key group. A large one is sorted on disk, so that its size does not decide the memory."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tidefold.changelog.duckdb_connection import connect
from tidefold.storage.scratch import open_scratch

# Bytes. Larger change sets are sorted on disk, with this much memory.
SORTED_IN_MEMORY, _MEMORY = 256 << 20, 512 << 20


def sort_by_key_group(table: pa.Table, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Returns the changes as batches of at most `batch_rows` rows, the lowest key group first."""
    if table.nbytes <= SORTED_IN_MEMORY:
        yield from table.sort_by([("_kg", "ascending")]).combine_chunks().to_batches(max_chunksize=batch_rows)
        return
    with open_scratch() as folder, connect(_MEMORY, folder) as connection:
        connection.register("changes", table)
        ordered = connection.sql("SELECT * FROM changes ORDER BY _kg, _partition, _offset")
        for batch in ordered.to_arrow_reader(batch_rows):
            yield batch.cast(table.schema)
