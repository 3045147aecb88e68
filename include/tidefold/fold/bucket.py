"""The work of one Spark task: folds one bucket (requirement A1: this is what the PySpark job runs)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tidefold.changelog.columns import table_schema
from tidefold.changelog.segment import read_change_set
from tidefold.fold.kernel import merged
from tidefold.fold.parquet import write_data_file
from tidefold.fold.plan import FoldResult, FoldTask
from tidefold.lifecycle.errors import CorruptError
from tidefold.lifecycle.names import LogPaths, data_path
from tidefold.lifecycle.values import DataFile
from tidefold.storage import Store, open_store

_MEMORY = "1GB"


def fold_bucket(text: str) -> str:
    """Takes a FoldTask and gives a FoldResult, both as JSON. Writes one new file at most."""
    task = msgspec.json.decode(text, type=FoldTask)
    store = open_store(task.store, Path("/"))
    return msgspec.json.encode(_fold(store, task)).decode()


def _fold(store: Store, task: FoldTask) -> FoldResult:
    changes = pa.concat_tables([read_change_set(store, c, task.bucket) for c in task.change_sets])
    if changes.num_rows == 0:
        return FoldResult(task.bucket, touched=False, file=None)
    schema = table_schema(task.shape)
    target = LogPaths(task.log).snapshot(task.snapshot)
    base_rows = sum(f.rows for f in task.base)
    with (
        tempfile.TemporaryDirectory(prefix="tidefold-") as scratch,
        _base_rows(store, task, schema) as base,
        merged(base, changes, task.shape, memory=_MEMORY, scratch=scratch) as (squashed, rows),
    ):
        file = write_data_file(store, target, task.bucket, task.snapshot, task.epoch, rows, schema)
    kept = (file.rows if file else 0) - squashed.upserts
    return FoldResult(
        task.bucket,
        touched=True,
        file=file,
        upserts=squashed.upserts,
        deletes=squashed.deletes,
        replaced=base_rows - kept,
        changes=changes.num_rows,
    )


@contextmanager
def _base_rows(store: Store, task: FoldTask, schema: pa.Schema) -> Iterator[pa.RecordBatchReader | None]:
    if not task.base:
        yield None
        return
    assert task.base_snapshot is not None
    folder = LogPaths(task.log).snapshot(task.base_snapshot)
    yield pa.RecordBatchReader.from_batches(schema, _batches(store, folder, task.base, schema))


def _batches(store: Store, folder: str, files: tuple[DataFile, ...], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for file in files:
        path = data_path(folder, file.name)
        with store.open(path) as stream:
            parquet = pq.ParquetFile(stream)
            if parquet.metadata.num_rows != file.rows:
                raise CorruptError(
                    "DATA_FILE_CORRUPT",
                    f"`{path}` has {parquet.metadata.num_rows} rows, its manifest says {file.rows}.",
                    hint="Restore the file from a copy.",
                )
            for batch in parquet.iter_batches(batch_size=65_536):
                yield from pa.Table.from_batches([batch]).cast(schema).to_batches()
