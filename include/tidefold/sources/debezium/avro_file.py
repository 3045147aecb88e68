"""Avro object container files: where their blocks are, and the records in them as plain values.

Values are decoded without their logical types, so that nothing is rounded or refused for what Python cannot hold: a
decimal is its bytes, a date its days. What they mean stands in the schema.
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import fastavro
import pyarrow as pa

from tidefold.sources.landing.streams import CutShortError, DamagedError

MAGIC = b"Obj\x01"
_SYNC = 16
_MOST = 1 << 31
_LOGICAL = ("logicalType", "precision", "scale")


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a file: the writer's schema, how blocks are compressed, and the mark that ends each of them."""

    schema: Any
    codec: str
    sync: bytes


def read_head(stream: BinaryIO) -> Head:
    """Raises CutShortError when the file ends within it, DamagedError when it is none."""
    if _exactly(stream, len(MAGIC)) != MAGIC:
        raise DamagedError("it does not begin like an Avro file")
    metadata: dict[str, bytes] = {}
    while count := _long(stream):
        if count < 0:
            _long(stream)  # The size of what follows, for those who skip it.
        for _ in range(abs(count)):
            name = _exactly(stream, _size(stream)).decode("utf-8", "replace")
            metadata[name] = _exactly(stream, _size(stream))
    try:
        schema = json.loads(metadata.get("avro.schema", b""))
    except ValueError as error:
        raise DamagedError(f"its schema cannot be read ({error})") from error
    return Head(schema, metadata.get("avro.codec", b"null").decode("ascii", "replace"), _exactly(stream, _SYNC))


def whole_blocks(stream: BinaryIO, size: int) -> int:
    """How many of the first `size` bytes are the head and whole blocks. Raises what `read_head` raises."""
    head = read_head(stream)
    end = stream.tell()
    while end < size:
        try:
            _long(stream)
            stream.seek(_size(stream), io.SEEK_CUR)
            if stream.tell() + _SYNC > size:
                return end
            if _exactly(stream, _SYNC) != head.sync:
                raise DamagedError(f"the block at byte {end} does not end with the file's mark")
        except CutShortError:
            return end
        end = stream.tell()
    return end


def records(stream: BinaryIO, head: Head, until: int) -> Iterator[Any]:
    """The records up to byte `until`, the stream standing behind the head. Raises DamagedError, CutShortError."""
    try:
        schema = fastavro.parse_schema(_plain(head.schema))
    except Exception as error:  # Whatever fastavro raises for what is no schema.
        raise DamagedError(f"its schema is none ({error})") from error
    while (begin := stream.tell()) < until:
        count, data = _long(stream), _exactly(stream, _size(stream))
        if _exactly(stream, _SYNC) != head.sync:
            raise DamagedError(f"the block at byte {begin} does not end with the file's mark")
        try:
            block = io.BytesIO(_unpacked(data, head.codec))
            yield from (fastavro.schemaless_reader(block, schema, None) for _ in range(count))
        except (DamagedError, CutShortError):
            raise
        except Exception as error:
            raise DamagedError(f"the block at byte {begin} cannot be read ({error})") from error


def _plain(schema: Any) -> Any:
    """The schema without logical types."""
    if isinstance(schema, dict):
        fixed = schema.get("type") == "fixed"
        kept = {n: _plain(v) for n, v in schema.items() if n not in _LOGICAL and n != "default"}
        return {**kept, "size": schema["size"]} if fixed else kept
    return [_plain(one) for one in schema] if isinstance(schema, list) else schema


def _unpacked(data: bytes, codec: str) -> bytes:
    if codec == "deflate":
        return zlib.decompress(data, wbits=-15)
    if codec == "snappy":  # Behind it stands a checksum of what is in it.
        found = pa.decompress(data[:-4], decompressed_size=_snappy_size(data), codec="snappy", asbytes=True)
        if zlib.crc32(found) != int.from_bytes(data[-4:], "big"):
            raise DamagedError("a checksum is wrong")
        return bytes(found)
    if codec == "bzip2":
        return bz2.decompress(data)
    if codec == "xz":
        return lzma.decompress(data)
    if codec == "zstandard":
        return bytes(pa.CompressedInputStream(pa.BufferReader(data), "zstd").read())
    if codec != "null":
        raise DamagedError(f"its codec {codec[:20]!r} is not known")
    return data


def _snappy_size(data: bytes) -> int:
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size
        shift += 7
    raise DamagedError("a block has no length")


def _long(stream: BinaryIO) -> int:
    """A number as Avro writes it: seven bits a byte, the lowest first, its sign in the last bit."""
    number = shift = 0
    while True:
        [byte] = _exactly(stream, 1)
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1)
        shift += 7
        if shift > 63:
            raise DamagedError("a length is too long")


def _size(stream: BinaryIO) -> int:
    size = _long(stream)
    if not 0 <= size < _MOST:
        raise DamagedError("a length is too long")
    return size


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise CutShortError
    return data
