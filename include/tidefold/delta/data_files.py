"""Writes one Parquet data file through the store, and computes its checksum and Delta statistics in the same pass."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidefold.delta.file_statistics import FileStatistics
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.paths import DataFileName, change_path, data_path
from tidefold.domain.snapshot.manifest import DataFile
from tidefold.errors import AlreadyExistsError
from tidefold.storage import Store
from tidefold.storage.cancellation import require_not_cancelled
from tidefold.storage.store import make_taken_error

_ROW_GROUP_ROWS = 262_144
_SAMPLE_ROWS = 8_192
_CHUNK = 1 << 20


class _Tally:
    """A writable stream that hashes and counts its bytes."""

    stream: BinaryIO

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()
        self.bytes = 0
        self.closed = False

    def write(self, data: Any) -> int:
        require_not_cancelled()
        view = memoryview(data)
        self.sha256.update(view)
        self.bytes += view.nbytes
        return self.stream.write(view)

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        self.stream.flush()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True  # The store closes the real stream, and only then is the file complete.


def write_data_file(
    store: Store, table: str, name: DataFileName, batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> DataFile | None:
    """Writes the rows into a new file under `<table>/_data/`; returns None (and writes no file) if there is no row."""
    return _write_file(store, data_path(table, str(name)), name.key_groups, batches, partial(_writer, schema, "zstd"))


def write_part(
    store: Store, path: str, bucket: KeyGroups, batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> DataFile | None:
    """Writes the rows for any engine: without an Arrow schema, and with the oldest compression."""
    return _write_file(store, path, bucket, batches, partial(_writer, schema, "snappy", store_schema=False))


def write_change_file(
    store: Store,
    table: str,
    name: DataFileName,
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    may_be_empty: bool = False,
) -> DataFile | None:
    """Writes a file of a table's change data feed; with `may_be_empty` also if there is no row."""
    path = change_path(table, str(name))
    begin = partial(_writer, schema, "zstd")
    file = _write_file(store, path, name.key_groups, batches, begin)
    if file or not may_be_empty:
        return file
    tally = _Tally()
    empty = schema.empty_table()
    with store.create(path) as tally.stream, begin(cast(BinaryIO, tally), empty) as writer:
        writer.write_table(empty)
    return DataFile(str(name), tally.bytes, 0, tally.sha256.hexdigest(), name.key_groups, "{}")


def require_same(store: Store, path: str, sha256: str) -> None:
    """Raises AlreadyExistsError unless the file has these bytes: then another try of the same task wrote it (I35)."""
    found = hashlib.sha256()
    with store.open(path) as stream:
        while chunk := stream.read(_CHUNK):
            found.update(chunk)
    if found.hexdigest() == sha256:
        return
    raise make_taken_error(path, "already exists, with other content")


def _writer(schema: pa.Schema, compression: str, sink: BinaryIO, first: pa.RecordBatch, **how: Any) -> pq.ParquetWriter:
    # Arrow leaves NaN out of a footer's bounds and Spark would skip its row group by them (decision 0006).
    bounded = [field.name for field in schema if not pa.types.is_floating(field.type)]
    return pq.ParquetWriter(
        sink, schema, compression=compression, write_statistics=bounded, use_dictionary=_repeating(first), **how
    )


def _repeating(batch: pa.RecordBatch) -> list[str]:
    """Returns the columns with repeated values, by the first rows. A dictionary of other columns is useless."""
    sample = batch.slice(0, _SAMPLE_ROWS)
    countable = [field.name for field in sample.schema if not pa.types.is_nested(field.type)]
    return [name for name in countable if pc.count_distinct(sample.column(name)).as_py() * 2 <= sample.num_rows]


def _write_file(
    store: Store,
    path: str,
    bucket: KeyGroups,
    batches: Iterable[pa.RecordBatch],
    begin: Callable[[BinaryIO, pa.RecordBatch], pq.ParquetWriter],
) -> DataFile | None:
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return None
    statistics = FileStatistics(first.schema)
    tally, rows = _Tally(), 0
    try:
        with store.create(path) as tally.stream, begin(cast(BinaryIO, tally), first) as writer:
            rows = _write(writer, chain([first], filled), statistics)
    except AlreadyExistsError:
        require_same(store, path, tally.sha256.hexdigest())
    name = path.rsplit("/", 1)[1]
    return DataFile(name, tally.bytes, rows, tally.sha256.hexdigest(), bucket, statistics.document())


def _write(writer: pq.ParquetWriter, batches: Iterable[pa.RecordBatch], statistics: FileStatistics) -> int:
    """Writes and counts the rows, in row groups of about equal size."""
    count = 0
    for group in _row_groups(batches, writer.schema):
        statistics.add(group)
        writer.write_table(group)
        count += group.num_rows
    return count


def _row_groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(b.num_rows for b in waiting) >= _ROW_GROUP_ROWS:
            yield pa.Table.from_batches(waiting).cast(schema)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting).cast(schema)
