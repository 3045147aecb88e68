"""Segments: one immutable file with change sets of one or several logs (requirement C2).

Layout: header, one Arrow stream for each change set, footer, trailer. The footer is the index. It contains, for each
change set, the location of its stream and its record batches, the key groups of each batch, and the sha256 of each
piece. The ledger keeps as checksum of a change set the sha256 of its index entry. So a read of some batches verifies
exactly the bytes that it reads.

The last byte of the header says whether at least one change set is compressed.
"""

from __future__ import annotations

import hashlib
import io
import re
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidefold.changelog.arrow_message import is_compressed
from tidefold.changelog.schema import count_changes, sort_by_key_group
from tidefold.domain.commit_times import CommitTimeRange
from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import ChangeSet, ChangeSetLocation
from tidefold.errors import CorruptError, NotFoundError
from tidefold.storage import Store
from tidefold.stored_forms import require_form
from tidefold.typed_json import decode_json

_MAGIC, _END = b"TDFSEG", b"TDFEND"
_VERSION = 2
_TRAILER = struct.Struct("<II6s")  # footer length, crc32 of the footer, magic
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
# For a few changes, passing them to threads takes twice as long as reading them.
_ONE_THREAD = pa.ipc.IpcReadOptions(use_threads=False)
# Smaller tables (bytes) become larger by compression, and ten times as slow to read.
_COMPRESSIBLE = 8_192
# A task reads whole batches. More batches mean fewer bytes of other buckets, but worse compression.
_MOST_ROWS, _LEAST_ROWS, _BATCHES = 16_384, 4_096, 64
_SMALL = 1 << 20


def slice_key_groups(changes: pa.Table, wanted: KeyGroups) -> pa.Table:
    """Returns the changes of a range of key groups, from changes sorted by key group. The slice copies nothing."""
    groups = changes.column("_kg")
    first = pc.sum(pc.less(groups, wanted.first), min_count=0).as_py()
    return changes.slice(first, pc.sum(pc.less_equal(groups, wanted.last), min_count=0).as_py() - first)


def at_least(floor: tuple[int, ...], index: int = 0) -> pc.Expression:
    """Returns the condition that the order is not below `floor`, compared number by number."""
    column = pc.field(f"_o{index}")
    if index == len(floor) - 1:
        return column >= floor[index]
    return (column > floor[index]) | ((column == floor[index]) & at_least(floor, index + 1))


class Piece(msgspec.Struct, frozen=True):
    """Bytes within a change set's stream, with their sha256; for a record batch also its rows and key groups."""

    offset: int
    length: int
    sha256: str
    rows: int = 0
    first: int = 0
    last: int = 0


class IndexEntry(msgspec.Struct, frozen=True):
    """The index entry of one change set. The offsets of its pieces count from `offset`."""

    log: str
    ordinal: int
    offset: int
    length: int
    rows: int
    schema: Piece
    batches: list[Piece]

    def locate(self, segment: str) -> ChangeSetLocation:
        """Returns the location of the change set in the segment at this path."""
        checksum = hashlib.sha256(msgspec.json.encode(self)).hexdigest()
        return ChangeSetLocation(segment, self.ordinal, self.offset, self.length, checksum)


@dataclass(frozen=True, slots=True)
class SegmentIndex:
    """The footer of a segment, and what its header says about compression.

    entries: one for each change set.
    compressed: whether at least one of them is compressed.
    """

    entries: list[IndexEntry]
    compressed: bool


# Of one store, by the paths of segments.
Indexes = dict[str, SegmentIndex]


@dataclass(frozen=True, slots=True)
class WrittenChangeSet:
    """A change set in a segment, before it is in a log.

    location: where it is stored.
    rows: the number of its changes.
    key_groups: from the lowest to the highest one that has changes.
    top: the highest first number of its orders.
    times: when its changes were committed.
    rows_before: as in ChangeSet.
    """

    log: str
    location: ChangeSetLocation
    rows: int
    key_groups: KeyGroups
    top: int | None = None
    times: CommitTimeRange | None = None
    rows_before: int = 0

    def change_set(self, high: tuple[int, ...], floor: tuple[int, ...] | None = None) -> ChangeSet:
        """Returns the change set as a log appends it. The ledger gives it its number."""
        return ChangeSet(
            sqn=0,
            location=self.location,
            rows=self.rows,
            key_groups=self.key_groups,
            high=high,
            floor=floor,
            top=self.top,
            times=self.times,
            rows_before=self.rows_before,
        )


class Writable(Protocol):
    """A stream that accepts bytes: that of a Store, or one that writes to two of them."""

    def write(self, data: bytes | memoryview, /) -> int: ...


def write_parts(
    stream: Writable, path: str, parts: Iterable[tuple[str, pa.Table]], *, compress: bool = True
) -> list[WrittenChangeSet]:
    """Writes the whole segment `path` into its open stream."""
    entries: list[IndexEntry] = []
    written: list[WrittenChangeSet] = []
    body = _BodyStream(stream, compress)
    position = len(_MAGIC) + 2
    for ordinal, (log, table) in enumerate(parts):
        compressed = compress and table.nbytes > _COMPRESSIBLE
        body.start(compressed)
        length, (schema, *batches) = _write_change_set(body, table, compressed)
        entry = IndexEntry(log, ordinal, position, length, table.num_rows, schema, batches)
        span = KeyGroups(batches[0].first, batches[-1].last)
        top = pc.max(table.column("_o0")).as_py() if "_o0" in table.column_names else None
        entries.append(entry)
        written.append(
            WrittenChangeSet(log, entry.locate(path), count_changes(table), span, top, _find_commit_times(table))
        )
        position += length
    body.finish()
    footer = msgspec.json.encode(entries)
    stream.write(footer + _TRAILER.pack(len(footer), zlib.crc32(footer), _END))
    return written


class _BodyStream:
    """Writes the header when it is known what it must say: before the first compressed change set, or at the end.

    Until then it keeps the change sets. They are not compressed because each is small.
    """

    def __init__(self, stream: Writable, compress: bool) -> None:
        self._stream = stream
        self._waiting: list[bytes] | None = []
        if not compress:
            self._begin(compressed=False)

    def start(self, compressed: bool) -> None:
        """Begins a change set."""
        if compressed:
            self._begin(compressed=True)

    def write(self, data: bytes | memoryview, /) -> int:
        if self._waiting is None:
            return self._stream.write(data)
        self._waiting.append(bytes(data))
        return len(data)

    def finish(self) -> None:
        self._begin(compressed=False)

    def _begin(self, compressed: bool) -> None:
        if self._waiting is None:
            return
        self._stream.write(_MAGIC + bytes([_VERSION, compressed]))
        for data in self._waiting:
            self._stream.write(data)
        self._waiting = None


def _find_commit_times(table: pa.Table) -> CommitTimeRange | None:
    if "_ts" not in table.column_names:
        return None
    column = table.column("_ts")
    span = pc.min_max(column)
    return CommitTimeRange(span["min"].as_py(), span["max"].as_py(), column.null_count)


class _PieceStream(io.RawIOBase):
    """Passes an Arrow stream on to the segment's stream, cuts it into pieces, and computes the sha256 of each."""

    def __init__(self, stream: Writable, schema: int) -> None:
        """`schema`: the length of the schema message, which the Arrow writer writes together with the first batch."""
        self.pieces: list[Piece] = []
        self.position = 0
        self._stream, self._schema = stream, schema
        self._begin, self._digest = 0, hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        view = memoryview(data)
        before = max(self._schema - self.position, 0)
        if 0 < before <= len(view):
            self._pass_on(view[:before])
            self.cut()
            view = view[before:]
        self._pass_on(view)
        return len(data)

    def _pass_on(self, view: memoryview) -> None:
        self._stream.write(view)
        self._digest.update(view)
        self.position += len(view)

    def cut(self, rows: int = 0, first: int = 0, last: int = 0) -> None:
        """Ends a piece here."""
        length = self.position - self._begin
        self.pieces.append(Piece(self._begin, length, self._digest.hexdigest(), rows, first, last))
        self._begin, self._digest = self.position, hashlib.sha256()


def _write_change_set(stream: Writable, table: pa.Table, compress: bool) -> tuple[int, list[Piece]]:
    """Writes a change set as an Arrow stream. Returns its length and its pieces: the schema's, then one a batch."""
    options = pa.ipc.IpcWriteOptions(compression="zstd" if compress else None)
    pieces = _PieceStream(stream, table.schema.serialize().size)
    with pa.ipc.new_stream(pieces, table.schema, options=options) as writer:
        for batch in sort_by_key_group(table, _batch_rows(table.num_rows)):
            writer.write_batch(batch)
            groups = batch.column("_kg")
            pieces.cut(batch.num_rows, groups[0].as_py(), groups[-1].as_py())
    return pieces.position, pieces.pieces


def _batch_rows(rows: int) -> int:
    return min(_MOST_ROWS, max(_LEAST_ROWS, -(-rows // _BATCHES)))


def read_index(store: Store, path: str) -> list[IndexEntry]:
    """Returns the footer of a segment. Raises CorruptError if the file is cut or altered there."""
    with store.open(path) as stream:
        return _read_index(stream, path).entries


def _read_index(stream: BinaryIO, path: str) -> SegmentIndex:
    size = stream.seek(0, io.SEEK_END)
    if size < _TRAILER.size + len(_MAGIC) + 2:
        raise _corrupt(path, "it is too short")
    stream.seek(0)
    head = stream.read(len(_MAGIC) + 2)
    if not head.startswith(_MAGIC):
        raise _corrupt(path, "it does not begin like a segment")
    version, compressed = head[len(_MAGIC) :]
    require_form(path, version, _VERSION, _VERSION)
    if compressed > 1:
        raise _corrupt(path, "its header is not one that this version writes")
    stream.seek(size - _TRAILER.size)
    length, crc, end = _TRAILER.unpack(stream.read(_TRAILER.size))
    if end != _END or length > size - _TRAILER.size:
        raise _corrupt(path, "its end is missing")
    stream.seek(size - _TRAILER.size - length)
    footer = stream.read(length)
    if zlib.crc32(footer) != crc:
        raise _corrupt(path, "its index was altered")
    return SegmentIndex(decode_json(footer, list[IndexEntry]), bool(compressed))


def check_pieces(store: Store, path: str, change_sets: Sequence[ChangeSet]) -> list[IndexEntry]:
    """Verifies all bytes of these change sets, and returns the footer. Without `change_sets` it verifies the whole
    segment.

    Raises CorruptError, NotFoundError.
    """
    with store.open(path) as stream:
        index = _read_index(stream, path)
        chosen = [_find(index.entries, one) for one in change_sets]
        compressed = [
            is_compressed(_read_piece(stream, path, index, entry, piece))
            for entry in chosen or index.entries
            for piece in (entry.schema, *entry.batches)
        ]
    if not chosen and index.compressed and not any(compressed):
        raise _corrupt(path, "its header says that it is compressed, and it is not")
    return index.entries


def ends_whole(store: Store, path: str) -> bool:
    """Whether a file has the end of a segment. A file without it was cut."""
    with store.open(path) as stream:
        size = stream.seek(0, io.SEEK_END)
        stream.seek(max(size - len(_END), 0))
        return stream.read() == _END


def read_change_set(
    store: Store, change_set: ChangeSet, wanted: KeyGroups | None = None, indexes: Indexes | None = None
) -> pa.Table:
    """Returns the changes of one change set, without those below its floor, and only of the wanted key groups.

    Raises CorruptError if the bytes are not those that the ledger recorded.

    indexes: indexes of this store's segments that the caller has already read. New ones are added, because one segment
    can have many change sets of small files.
    """
    segment = change_set.location.segment
    try:
        with store.open(segment) as opened:
            stream = _at_once(opened) if wanted is None else opened
            index = (indexes or {}).get(segment) or _read_index(stream, segment)
            entry = _find(index.entries, change_set)
            pieces = [b for b in entry.batches if wanted is None or wanted.meets(KeyGroups(b.first, b.last))]
            data = [_read_piece(stream, segment, index, entry, piece) for piece in (entry.schema, *pieces)]
    except NotFoundError:
        raise _corrupt(segment, "it is gone") from None
    if indexes is not None:
        indexes[segment] = index
    # A schema message, some of the batches and an end mark are again a complete Arrow stream.
    table = pa.ipc.open_stream(b"".join([*data, _END_OF_STREAM]), options=_ONE_THREAD).read_all()
    if wanted is not None:
        table = slice_key_groups(table, wanted)
    table = _with_places(table, change_set)
    return table if change_set.floor is None else table.filter(at_least(change_set.floor))


def _with_places(table: pa.Table, change_set: ChangeSet) -> pa.Table:
    """Returns the changes with the numbers of file and row that were not known when the segment was written."""
    orders = [name for name in table.column_names if re.fullmatch(r"_o\d+", name)]
    for name, number in (("_partition", change_set.file), (orders[-1] if orders else "", change_set.batch)):
        if number is not None:
            field = table.schema.field(name)
            index = table.schema.get_field_index(name)
            table = table.set_column(index, field, pa.repeat(pa.scalar(number, field.type), table.num_rows))
    if change_set.rows_before:
        field, index = table.schema.field("_offset"), table.schema.get_field_index("_offset")
        table = table.set_column(index, field, pc.add(table.column("_offset"), change_set.rows_before))
    return table


def _at_once(stream: BinaryIO) -> BinaryIO:
    """Reads a small file in one request: each range costs more than its bytes."""
    size = stream.seek(0, io.SEEK_END)
    if size > _SMALL:
        return stream
    stream.seek(0)
    return io.BytesIO(stream.read())


def _find(entries: list[IndexEntry], change_set: ChangeSet) -> IndexEntry:
    location = change_set.location
    entry = entries[location.ordinal] if location.ordinal < len(entries) else None
    if entry is None or entry.locate(location.segment).checksum != location.checksum:
        raise _corrupt(location.segment, f"change set {change_set.sqn} is not the one that was appended")
    return entry


def _read_piece(stream: BinaryIO, path: str, index: SegmentIndex, entry: IndexEntry, piece: Piece) -> bytes:
    stream.seek(entry.offset + piece.offset)
    data = stream.read(piece.length)
    if hashlib.sha256(data).hexdigest() != piece.sha256:
        raise _corrupt(path, f"bytes {entry.offset + piece.offset} to +{piece.length} were cut or altered")
    if not index.compressed and is_compressed(data):
        raise _corrupt(path, "its header says that it is not compressed, and it is")
    return data


def _corrupt(path: str, why: str) -> CorruptError:
    return CorruptError("SEGMENT_CORRUPT", f"Segment `{path}` cannot be used: {why}.")
