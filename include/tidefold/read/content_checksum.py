"""A checksum of rows that does not depend on their order, files or batches: the same for every reader of a table.

Each value is hashed in its Arrow form, each row from its values, and the hashes of all rows are added. A checksum for
each column names the columns that differ. It finds damage and foreign changes; it is no protection against forgery
(decision 0029).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]

_NULL = np.uint64(0x6E756C6C)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
# Bounds the memory of a hash, not the size of a value.
_ROWS, _BYTES = 8_192, 1 << 22
_ALL = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class ContentChecksum:
    """The content of a table.

    content: the sum of the hashes of all rows.
    columns: the sum of the hashes of the values of each column, in the order of the schema.
    """

    rows: int
    content: int
    columns: tuple[int, ...]

    def __add__(self, other: ContentChecksum) -> ContentChecksum:
        columns = tuple((a + b) & _ALL for a, b in zip(self.columns, other.columns, strict=True))
        return ContentChecksum(self.rows + other.rows, (self.content + other.content) & _ALL, columns)

    def __str__(self) -> str:
        return f"{self.rows}:{self.content:016x}"


def compute_checksum(batches: Iterable[pa.RecordBatch], columns: int) -> ContentChecksum:
    """Returns the checksum of the rows of all batches, which have this number of columns."""
    nothing = ContentChecksum(0, 0, (0,) * columns)
    parts = (_checksum(part) for batch in batches for part in _slices(batch))
    return reduce(ContentChecksum.__add__, parts, nothing)


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, _ROWS):
        yield batch.slice(start, _ROWS)


def _checksum(batch: pa.RecordBatch) -> ContentChecksum:
    rows = np.zeros(batch.num_rows, np.uint64)
    sums = []
    for number, column in enumerate(batch.columns):
        hashes = _mix(_hash_array(column) + np.uint64(number + 1))
        sums.append(_sum(hashes))
        rows += hashes
    return ContentChecksum(batch.num_rows, _sum(_mix(rows)), tuple(sums))


def _sum(hashes: Hashes) -> int:
    return int(np.add.reduce(hashes, dtype=np.uint64))


def _mix(values: Hashes) -> Hashes:
    """The finalizer of SplitMix64: each bit of the input changes half of the output."""
    mixed = values + _STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return mixed ^ (mixed >> np.uint64(31))


def _hash_array(array: pa.Array) -> Hashes:
    """Returns one hash for each value; null has its own."""
    hashes = _hash_values(array)
    if array.null_count:
        hashes[array.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _hash_values(array: pa.Array) -> Hashes:
    kind = array.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _hash_lists(array.cast(pa.large_list(kind.value_type)))
    if _is_text(kind):
        return _hash_bytes(array.cast(pa.large_binary()))
    if pa.types.is_decimal(kind):
        return _hash_decimals(array.cast(pa.decimal128(38, kind.scale)))
    if pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    if pa.types.is_date(kind):
        array = array.cast(pa.date32()).cast(pa.int32())
    if pa.types.is_floating(kind):
        return _mix(_float_bits(array))
    if not pa.types.is_integer(array.type):
        raise TypeError(f"no checksum of {kind} is defined")
    return _mix(array.cast(pa.int64()).fill_null(0).to_numpy().astype(np.uint64))


def _is_text(kind: pa.DataType) -> bool:
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(is_one(kind) for is_one in texts)


def _float_bits(array: pa.Array) -> Hashes:
    """Returns the bits, so -0.0 is not 0.0; all bit patterns of NaN are equal."""
    wide = array.type == pa.float64()
    values = array.fill_null(0).to_numpy(zero_copy_only=False)
    values = np.where(np.isnan(values), values.dtype.type("nan"), values)
    bits: Hashes = values.view(np.uint64 if wide else np.uint32).astype(np.uint64)
    return bits


def _hash_decimals(array: pa.Array) -> Hashes:
    """Hashes the 128 bits of the unscaled value."""
    halves = np.frombuffer(array.buffers()[1], np.uint64)[2 * array.offset : 2 * (array.offset + len(array))]
    return _mix(_mix(halves[::2]) + halves[1::2])


def _hash_bytes(array: pa.Array) -> Hashes:
    """Adds up a hash of each byte with its position, and the length."""
    offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    parts = []
    start = 0
    while start < len(array):
        stop = max(int(np.searchsorted(offsets, offsets[start] + _BYTES, "right")) - 1, start + 1)
        stop = min(stop, len(array))
        parts.append(_hash_some_bytes(offsets[start : stop + 1], data))
        start = stop
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def _hash_some_bytes(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> Hashes:
    lengths = np.diff(offsets)
    places = np.arange(offsets[0], offsets[-1]) - np.repeat(offsets[:-1], lengths)
    found = data[offsets[0] : offsets[-1]].astype(np.uint64)
    return _sum_runs(_mix((places.astype(np.uint64) << np.uint64(8)) | found), offsets - offsets[0], lengths)


def _hash_lists(array: pa.Array) -> Hashes:
    """Adds up a hash of each element with its position, and the length."""
    offsets = array.offsets.to_numpy()
    if not len(array):
        return np.zeros(0, np.uint64)
    lengths = np.diff(offsets)
    elements = _hash_array(array.values.slice(offsets[0], offsets[-1] - offsets[0]))
    places = np.arange(len(elements)) - np.repeat(offsets[:-1] - offsets[0], lengths)
    return _sum_runs(_mix(elements + _mix(places.astype(np.uint64))), offsets - offsets[0], lengths)


def _sum_runs(hashes: Hashes, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> Hashes:
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes, dtype=np.uint64)])
    totals: Hashes = sums[offsets[1:]] - sums[offsets[:-1]]
    return _mix(totals + _mix(lengths.astype(np.uint64)))
