"""The rows of one file as a gate reads them: all, those at some places, or those with some keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidefold.changelog.schema import table_schema
from tidefold.delta.deletion_vectors import Places, places, without_deleted
from tidefold.domain.log_state import TableSpec
from tidefold.domain.paths import data_path
from tidefold.domain.snapshot.manifest import DataFile
from tidefold.fold.merge.arrow_merge import rows_of
from tidefold.storage import Store

# It does not use `format("delta")`, by measurement (decision 0007). Delta takes row counts from the
# statistics in its log. If its schema declares a column NOT NULL, Spark replaces `IS NULL` by false, so a null
# key would pass.
# Rows of a batch; of one in which keys are searched, which keeps few of them.
_ROWS, _SEARCHED_ROWS = 65_536, 262_144


def file_rows(
    store: Store,
    folder: str,
    file: DataFile,
    shape: TableSpec,
    columns: Sequence[str] | None = None,
    only: Places | None = None,
    keys: pa.Table | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of one file that are not deleted, every column nullable and of its current type.

    columns: those that are read; None: all.
    only: the places of the rows that are read instead. Row groups without such a row are not read.
    keys: of the rows only those with one of these values of the first key column.
    """
    wanted = [f for f in table_schema(shape) if columns is None or f.name in columns]
    schema = pa.schema([field.with_nullable(True) for field in wanted])
    with store.open(data_path(folder, file.name)) as stream:
        parquet = pq.ParquetFile(stream)
        written = parquet.schema_arrow.names
        # Without any column Arrow takes no rows, but a file that is older than all wanted columns has some.
        present = [name for name in schema.names if name in written] or written[:1]
        if only is not None:
            batches = _take_rows(parquet, present, only)
        else:
            batches = parquet.iter_batches(_ROWS if keys is None else _SEARCHED_ROWS, columns=present)
            batches = without_deleted(batches, file) if keys is None else batches
        filled = (_fill_columns(rows, schema) for rows in batches)
        yield from filled if keys is None else _find_live(filled, file, keys)


def _find_live(batches: Iterable[pa.RecordBatch], file: DataFile, keys: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yields the rows with one of these keys that are not deleted. The search comes first: it leaves few."""
    gone, start = places(file.deletions), 0
    for batch in batches:
        numbers = rows_of(batch, keys)
        yield batch.take(pa.array(numbers[~np.isin((numbers + start).astype(np.uint64), gone)]))
        start += batch.num_rows


def _take_rows(parquet: pq.ParquetFile, columns: Sequence[str], wanted: Places) -> Iterator[pa.RecordBatch]:
    start = 0
    for group in range(parquet.num_row_groups):
        end = start + parquet.metadata.row_group(group).num_rows
        first, last = np.searchsorted(wanted, np.array([start, end], np.uint64))
        if first < last:
            yield from parquet.read_row_group(group, columns).take(wanted[first:last] - np.uint64(start)).to_batches()
        start = end


def _fill_columns(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Adds null columns for those that are newer than the file."""
    present = set(rows.schema.names)
    columns = [
        rows.column(field.name).cast(field.type) if field.name in present else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
