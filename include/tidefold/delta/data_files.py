"""Writes Parquet data files, with checksum and Delta statistics in one pass."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import chain
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.paths import DataFileName, change_path, data_path
from tidefold.domain.snapshot.manifest import DataFile
from tidefold.errors import AlreadyExistsError
from tidefold.storage import Store
from tidefold.storage.cancellation import require_not_cancelled
from tidefold.storage.store import make_taken_error

# A wrong bound hides rows. So does a missing one: deltalake 1.6.6 reads it as null (decision 0006). So every column
# with a value gets both bounds, except floating point columns of a file with NaN or an infinity.
_TEXT = 32
_LAST_CHARACTER = "\U0010ffff"
_END_OF_TIME = datetime(9999, 12, 31, 23, 59, 59, 999000)
_ROW_GROUP_ROWS = 262_144
_SAMPLE_ROWS = 8_192
_CHUNK = 1 << 20
_PACKED = "DELTA_BINARY_PACKED"


@dataclass(slots=True)
class _Column:
    lower: Any = None
    upper: Any = None
    nulls: int = 0
    unbounded: bool = False


class FileStatistics:
    """Adds up tables of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._columns = {field.name: _Column() for field in schema}
        self._rows = 0

    def add(self, table: pa.Table) -> None:
        """Adds some rows of the file."""
        self._rows += table.num_rows
        for name, column in self._columns.items():
            _add(column, table.column(name))

    def document(self) -> str:
        """Returns the statistics as the JSON text of the file's `add` action."""
        bounded = {n: c for n, c in self._columns.items() if c.lower is not None and not c.unbounded}
        return _json(
            {
                "numRecords": self._rows,
                "minValues": {name: _lower(column.lower) for name, column in bounded.items()},
                "maxValues": {name: _upper(column.upper) for name, column in bounded.items()},
                "nullCount": {name: column.nulls for name, column in self._columns.items()},
            }
        )


def _json(value: Any) -> str:
    """Returns a value as `json.dumps` writes it, but decimals as numbers with all their digits."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_json(name)}: {_json(one)}" for name, one in value.items()) + "}"
    if isinstance(value, Decimal):
        return format(value, "f")
    # deltalake 1.6.6 reads the escaped pair of U+10FFFF as another, lower character.
    return json.dumps(value, ensure_ascii=False)


def _add(column: _Column, values: pa.ChunkedArray) -> None:
    column.nulls += values.null_count
    if pa.types.is_nested(values.type) or pa.types.is_binary(values.type):
        return
    bounds = pc.min_max(values)
    lower, upper = bounds["min"].as_py(), bounds["max"].as_py()
    if lower is None:
        return
    if pa.types.is_floating(values.type):
        # NaN sorts above every number to Spark and into no bound to Arrow; JSON has no word for the infinities.
        whole = math.isfinite(lower) and math.isfinite(upper)
        column.unbounded |= not whole or bool(pc.any(pc.is_nan(values)).as_py())
    column.lower = lower if column.lower is None else min(column.lower, lower)
    column.upper = upper if column.upper is None else max(column.upper, upper)


def _lower(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_TEXT]
    return _millis(value) if isinstance(value, datetime) else _plain(value)


def _upper(value: Any) -> Any:
    if isinstance(value, str):
        # No text with the same start sorts above the start followed by the highest character.
        shortened = len(value) > _TEXT and value[_TEXT] != _LAST_CHARACTER
        return value[:_TEXT] + _LAST_CHARACTER if shortened else value
    return _millis_above(value) if isinstance(value, datetime) else _plain(value)


def _millis_above(value: datetime) -> str:
    """Rounds up to milliseconds, which Delta stores. Readers allow for one millisecond more."""
    if value.replace(tzinfo=None) > _END_OF_TIME:
        return _millis(value)
    return _millis(value + timedelta(microseconds=-value.microsecond % 1000))


def _millis(value: datetime) -> str:
    # strftime does not pad years below 1000, and a bound that is not a timestamp hides rows.
    return f"{value.year:04d}-{value:%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value


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
    store: Store,
    table: str,
    name: DataFileName,
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    create: Callable[[str], AbstractContextManager[BinaryIO]] | None = None,
) -> DataFile | None:
    """Writes the rows into a new file under `<table>/_data/`; returns None (and writes no file) if there is no row.

    create: opens the stream to the file; None: the store does.
    """
    begin = partial(_writer, schema, "zstd", packs=True)
    return _write_file(store, data_path(table, str(name)), name.key_groups, batches, begin, create)


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
    begin = partial(_writer, schema, "zstd")
    empty = schema if may_be_empty else None
    return _write_file(store, change_path(table, str(name)), name.key_groups, batches, begin, empty=empty)


def require_same(store: Store, path: str, sha256: str) -> None:
    """Raises AlreadyExistsError unless the file has these bytes: then another try of the same task wrote it (I35)."""
    digest = hashlib.sha256()
    with store.open(path) as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    if digest.hexdigest() == sha256:
        return
    raise make_taken_error(path, "already exists, with other content")


def _writer(
    schema: pa.Schema, compression: str, sink: BinaryIO, first: pa.RecordBatch, packs: bool = False, **how: Any
) -> pq.ParquetWriter:
    # Arrow leaves NaN out of a footer's bounds and Spark would skip its row group by them (decision 0006).
    bounded = [field.name for field in schema if not pa.types.is_floating(field.type)]
    repeating = _repeating(first)
    if packs:  # Keys that are whole numbers rise: so they take less room, and a third of the time to read.
        keys = [f.name for f in schema if pa.types.is_integer(f.type) and not f.nullable and f.name not in repeating]
        how["column_encoding"] = dict.fromkeys(keys, _PACKED)
    return pq.ParquetWriter(
        sink, schema, compression=compression, write_statistics=bounded, use_dictionary=repeating, **how
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
    create: Callable[[str], AbstractContextManager[BinaryIO]] | None = None,
    empty: pa.Schema | None = None,
) -> DataFile | None:
    """Writes no file if there is no row, unless `empty` names the columns of a file without rows."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, pa.RecordBatch.from_pylist([], empty) if empty else None)
    if first is None:
        return None
    statistics = FileStatistics(first.schema)
    tally, rows = _Tally(), 0
    try:
        with (create or store.create)(path) as tally.stream, begin(cast(BinaryIO, tally), first) as writer:
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
