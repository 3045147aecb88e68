"""The work of one Spark task: folds one bucket (requirement A1: this is what the PySpark job runs)."""

from __future__ import annotations

import hashlib
import io
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tidefold.changelog.columns import table_schema
from tidefold.changelog.segment import read_change_set
from tidefold.fold.kernel import merged
from tidefold.fold.parquet import write_data_file
from tidefold.fold.plan import FoldResult, FoldTask
from tidefold.lifecycle.errors import CorruptError
from tidefold.lifecycle.manifest import DataFile
from tidefold.lifecycle.names import LogPaths, data_path
from tidefold.storage import Store, open_store

# What DuckDB may take for one merge before it spills.
MERGE_MEMORY = "1GB"


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
        open_base(store, task.log, task.base_snapshot, task.base, schema) as base,
        merged(base, changes, task.shape, memory=MERGE_MEMORY, scratch=scratch) as (squashed, rows),
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
def open_base(
    store: Store, log: str, snapshot: int | None, base: Sequence[DataFile], schema: pa.Schema
) -> Iterator[pa.RecordBatchReader | None]:
    """The rows of some files of a snapshot as one stream; None when there is no file. Raises CorruptError."""
    if snapshot is None or not base:
        yield None
        return
    folder = LogPaths(log).snapshot(snapshot)
    with ExitStack() as opened:
        # Opened and checked before the merge begins: inside it DuckDB would wrap the error.
        files = [_open(store, data_path(folder, f.name), f, opened) for f in base]
        batches = (batch for file in files for batch in file.iter_batches(batch_size=65_536))
        yield pa.RecordBatchReader.from_batches(schema, with_schema(batches, schema))


def _open(store: Store, path: str, file: DataFile, opened: ExitStack) -> pq.ParquetFile:
    """A base file whose bytes are those of its manifest (I6): silent damage must not live on in new files."""
    stream = opened.enter_context(store.open(path))
    if hashlib.file_digest(cast(io.BufferedReader, stream), "sha256").hexdigest() != file.sha256:
        raise CorruptError(
            "DATA_FILE_CORRUPT", f"`{path}` is not the file that was confirmed.", hint="Restore it from a copy."
        )
    stream.seek(0)
    return pq.ParquetFile(stream)


def with_schema(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The same rows with exactly these types and nullability."""
    for batch in batches:
        yield from pa.Table.from_batches([batch]).cast(schema).to_batches()
