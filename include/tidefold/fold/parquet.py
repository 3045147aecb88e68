"""Writes one Parquet data file through the store, with its checksum and its Delta statistics from the same pass."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from tidefold.lifecycle.key_groups import KeyGroups
from tidefold.lifecycle.names import DataFileName, data_path
from tidefold.lifecycle.values import DataFile
from tidefold.storage import Store

_ROW_GROUP_ROWS = 262_144
_STATS_TEXT = 32
_LAST_CHARACTER = "\U0010ffff"


class _Tally:
    """A writable stream that hashes and counts what goes through it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.sha256 = hashlib.sha256()
        self.bytes = 0
        self.closed = False

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self.sha256.update(view)
        self.bytes += view.nbytes
        return self._stream.write(view)

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        self._stream.flush()

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
    bucket: KeyGroups,
    snapshot: int,
    epoch: int,
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
) -> DataFile | None:
    """Writes the rows into a new file under `<table>/_data/`; None (and no file) when there is no row."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return None
    name = str(DataFileName(bucket, snapshot, epoch, uuid.uuid4().hex))
    found: list[pq.FileMetaData] = []
    with store.create(data_path(table, name)) as stream:
        tally = _Tally(stream)
        _write(cast(BinaryIO, tally), first, filled, schema, found)
    metadata = found[0]
    return DataFile(
        name,
        tally.bytes,
        metadata.num_rows,
        tally.sha256.hexdigest(),
        bucket,
        json.dumps(delta_stats(metadata, schema)),
    )


def _write(
    sink: BinaryIO,
    first: pa.RecordBatch,
    rest: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    found: list[pq.FileMetaData],
) -> None:
    bounded = [field.name for field in schema if _bounds_hold(field.type)]
    with pq.ParquetWriter(
        sink, schema, compression="zstd", write_statistics=bounded, metadata_collector=found
    ) as writer:
        waiting, rows = [first], first.num_rows
        for batch in rest:
            waiting.append(batch)
            rows += batch.num_rows
            if rows >= _ROW_GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(waiting).cast(schema))
                waiting, rows = [], 0
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting).cast(schema))


def delta_stats(metadata: pq.FileMetaData, schema: pa.Schema) -> dict[str, Any]:
    """The statistics document of a Delta `add` action, from a Parquet footer.

    Left out where a bound would be wrong or useless: floating point, booleans, and a lower bound without an upper one
    or the reverse, for which deltalake hides every row (seen with 1.6.6).
    """
    stats: dict[str, Any] = {"numRecords": metadata.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for index, field in enumerate(schema):
        columns = [metadata.row_group(g).column(index).statistics for g in range(metadata.num_row_groups)]
        if not _bounds_hold(field.type):
            continue
        stats["nullCount"][field.name] = sum(c.null_count for c in columns)
        bounded = [c for c in columns if c.has_min_max]
        if not bounded or any(c.num_values and not c.has_min_max for c in columns):
            continue
        lower, upper = _lower(min(c.min for c in bounded)), _upper(max(c.max for c in bounded))
        if lower is not None and upper is not None:
            stats["minValues"][field.name], stats["maxValues"][field.name] = lower, upper
    return stats


def _bounds_hold(kind: pa.DataType) -> bool:
    # NaN is in no bound that Arrow writes, but to Spark it is larger than every number: `d > 1` would lose its row,
    # by the bounds in the Delta log and by those in the Parquet footer.
    return not pa.types.is_floating(kind)


def _lower(value: Any) -> Any:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return value[:_STATS_TEXT]
    return _millis(value) if isinstance(value, datetime) else _plain(value)


def _upper(value: Any) -> Any:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return _text_above(value)
    return _millis_above(value) if isinstance(value, datetime) else _plain(value)


def _text_above(value: str) -> str | None:
    """The beginning of a long text, and the last of all characters: no text that begins so sorts above it."""
    if len(value) <= _STATS_TEXT:
        return value
    return None if value[_STATS_TEXT] == _LAST_CHARACTER else value[:_STATS_TEXT] + _LAST_CHARACTER


def _millis_above(value: datetime) -> str | None:
    """Delta keeps milliseconds: rounded up, or the bound would cut rows off; none at the end of time."""
    try:
        return _millis(value + timedelta(microseconds=-value.microsecond % 1000))
    except OverflowError:
        return None


def _millis(value: datetime) -> str:
    # strftime does not pad years below 1000, and a bound that is not a timestamp hides rows.
    return f"{value.year:04d}-{value:%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value
