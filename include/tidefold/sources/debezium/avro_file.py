"""Avro object container files: their schemas, where their blocks are, and the records in them as plain values.

Values are decoded without their logical types, so that nothing is rounded or refused because Python cannot hold it: a
decimal is its bytes, a date its days. The schema has their meaning.
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import fastavro
import pyarrow as pa

from tidefold.sources.debezium.connect_schema import PRECISION
from tidefold.sources.landing.streams import CutShortError, DamagedError

MAGIC = b"Obj\x01"
_LOGICAL = ("logicalType", "precision", "scale")
# The largest block, compressed or not. Writers begin a new one after some kilobytes.
MAX_BLOCK = 64 << 20
_XZ_MEMORY = 256 << 20
# The specification describes the container itself as Avro records.
_SYNC = {"type": "fixed", "name": "Sync", "size": 16}
_DEEPEST = 64
# Types of a record, named ones counted at each use; and those of them whose values take no bytes.
_MOST_TYPES, _MOST_FREE = 500_000, 16
_CONNECT, _TIME = "org.apache.kafka.connect.data.", "io.debezium.time."
_PRIMITIVE = {"int": "int32", "long": "int64", "enum": "string", "fixed": "bytes"}
# For who writes Avro by other means than Kafka Connect.
_CONNECT_NAMES = {
    "decimal": f"{_CONNECT}Decimal",
    "date": f"{_CONNECT}Date",
    "timestamp-millis": f"{_CONNECT}Timestamp",
    "timestamp-micros": f"{_TIME}MicroTimestamp",
    "timestamp-nanos": f"{_TIME}NanoTimestamp",
    "local-timestamp-millis": f"{_CONNECT}Timestamp",
    "local-timestamp-micros": f"{_TIME}MicroTimestamp",
}
_DEEPEST_SCHEMA = 32
AvroSchema = dict[str, Any]


def _record(name: str, **fields: Any) -> Any:
    kinds = [{"name": field, "type": kind} for field, kind in fields.items()]
    return fastavro.parse_schema({"type": "record", "name": name, "fields": kinds})


_HEADER = _record(
    "Header",
    magic={"type": "fixed", "name": "Magic", "size": len(MAGIC)},
    meta={"type": "map", "values": "bytes"},
    sync=_SYNC,
)
_BLOCK = _record("Block", count="long", length="long")


@dataclass(frozen=True, slots=True)
class AvroHeader:
    """The beginning of a file.

    schema: of the writer.
    parsed: the same without logical types, as fastavro parsed it.
    codec: how blocks are compressed.
    sync: the mark at the end of each block.
    """

    schema: Any
    parsed: Any
    codec: str
    sync: bytes


def read_header(stream: BinaryIO) -> AvroHeader:
    """Raises CutShortError when the file ends within it, DamagedError when the file does not begin with one."""
    begin = stream.read(len(MAGIC))
    if not MAGIC.startswith(begin):
        raise DamagedError("it does not begin like an Avro file")
    stream.seek(0)
    header = _read(stream, _HEADER, "its header")
    try:
        schema = json.loads(header["meta"].get("avro.schema", b""))
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"its schema cannot be read ({error})") from error
    codec = header["meta"].get("avro.codec", b"null").decode("ascii", "replace")
    return AvroHeader(schema, parse_bounded(schema), codec, header["sync"])


def parse_bounded(schema: Any) -> Any:
    """The schema without logical types, as fastavro parses it. Raises DamagedError if it is not valid and bounded."""
    try:
        parsed = fastavro.parse_schema(without_logical_types(schema))
        require_bounded(parsed)
    except Exception as error:  # Whatever fastavro raises for what is no schema.
        raise DamagedError(f"its schema is not valid ({error})") from error
    return parsed


def count_whole_bytes(stream: BinaryIO, size: int) -> int:
    """How many of the first `size` bytes are the header and whole blocks. Raises what `read_header` raises."""
    header = read_header(stream)
    end = stream.tell()
    try:
        while end < size:
            _read_block(stream, header)
            if stream.tell() > size:
                break
            end = stream.tell()
    except CutShortError:
        pass
    return end


def read_records(stream: BinaryIO, header: AvroHeader, until: int) -> Iterator[Any]:
    """The records up to byte `until`. The stream is behind the header. Raises DamagedError, CutShortError."""
    while (begin := stream.tell()) < until:
        count, packed = _read_block(stream, header)
        try:
            data = _decompress(packed, header.codec)
            if count > len(data):
                raise DamagedError(f"the block at byte {begin} has {len(data):,} bytes and claims {count:,} records")
            records = io.BytesIO(data)
            yield from (fastavro.schemaless_reader(records, header.parsed, None) for _ in range(count))
        except DamagedError:
            raise
        except Exception as error:
            raise DamagedError(f"the block at byte {begin} cannot be read ({error})") from error


def _read_block(stream: BinaryIO, header: AvroHeader) -> tuple[int, bytes]:
    """The number of records in the next block, and its bytes."""
    begin = stream.tell()
    block = _read(stream, _BLOCK, f"the block at byte {begin}")
    if not 0 <= block["length"] <= MAX_BLOCK:
        raise DamagedError(f"the block at byte {begin} is longer than {MAX_BLOCK >> 20} MiB")
    data, sync = stream.read(block["length"]), stream.read(len(header.sync))
    if len(data) < block["length"] or len(sync) < len(header.sync):
        raise CutShortError
    if sync != header.sync:
        raise DamagedError(f"the block at byte {begin} does not end with the file's mark")
    return block["count"], data


def _read(stream: BinaryIO, schema: Any, what: str) -> Any:
    try:
        return fastavro.schemaless_reader(stream, schema, None)
    except (EOFError, IndexError) as error:  # A number that is cut off is an IndexError.
        raise CutShortError from error
    except (ValueError, MemoryError, OverflowError) as error:
        raise DamagedError(f"{what} cannot be read ({error})") from error


def without_logical_types(schema: Any) -> Any:
    """The schema without logical types."""
    if isinstance(schema, dict):
        fixed = schema.get("type") == "fixed"
        kept = {n: without_logical_types(v) for n, v in schema.items() if n not in _LOGICAL and n != "default"}
        return {**kept, "size": schema["size"]} if fixed else kept
    return [without_logical_types(one) for one in schema] if isinstance(schema, list) else schema


def _decompress(data: bytes, codec: str) -> bytes:
    """The content of a block. Raises DamagedError if it is longer than MAX_BLOCK, before it is made."""
    if codec == "deflate":
        return _require_whole(zlib.decompressobj(wbits=-15), data)
    if codec == "snappy":  # A checksum of the content follows it.
        size = _snappy_size(data)
        if size > MAX_BLOCK:
            raise _too_long()
        decompressed = pa.decompress(data[:-4], decompressed_size=size, codec="snappy", asbytes=True)
        if zlib.crc32(decompressed) != int.from_bytes(data[-4:], "big"):
            raise DamagedError("a checksum is wrong")
        return bytes(decompressed)
    if codec == "bzip2":
        return _require_whole(bz2.BZ2Decompressor(), data)
    if codec == "xz":
        return _require_whole(lzma.LZMADecompressor(memlimit=_XZ_MEMORY), data)
    if codec == "zstandard":
        content = bytes(pa.CompressedInputStream(pa.BufferReader(data), "zstd").read(MAX_BLOCK + 1))
        if len(content) > MAX_BLOCK:
            raise _too_long()
        return content
    if codec != "null":
        raise DamagedError(f"its codec {codec[:20]!r} is unknown")
    return data


def _require_whole(machine: Any, data: bytes) -> bytes:
    """All that a decompressor of the standard library makes of a block."""
    content: bytes = machine.decompress(data, MAX_BLOCK + 1)
    if len(content) > MAX_BLOCK:
        raise _too_long()
    if not machine.eof:
        raise DamagedError("a block is not complete")
    return content


def _too_long() -> DamagedError:
    return DamagedError(f"a block has more than {MAX_BLOCK >> 20} MiB")


def _snappy_size(data: bytes) -> int:
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size
        shift += 7
    raise DamagedError("a block has no length")


def require_bounded(schema: Any) -> None:
    """Raises ValueError with the reason if the values of a schema, as fastavro parsed it, can outgrow their bytes."""
    _Measuring().measure(schema, 0)


@dataclass(frozen=True, slots=True)
class _Measure:
    """What a type consists of.

    free: the types whose values take no bytes.
    takes: each value takes at least one byte.
    """

    types: int
    free: int
    takes: bool


_NULL, _VALUE = _Measure(1, 1, takes=False), _Measure(1, 0, takes=True)


class _Measuring:
    def __init__(self) -> None:
        # By full name, which fastavro fills in everywhere. None: the type is still being defined.
        self._named: dict[str, _Measure | None] = {}

    def measure(self, schema: Any, depth: int) -> _Measure:
        if depth > _DEEPEST:
            raise ValueError(f"its types are nested deeper than {_DEEPEST} levels")
        if isinstance(schema, list):
            # The number of the branch takes a byte, also for null.
            return _join((self.measure(one, depth + 1) for one in schema if one != "null"), takes=True)
        if not isinstance(schema, Mapping):
            return self._find(str(schema))
        kind = schema.get("type")
        if not isinstance(kind, str):
            return self.measure(kind, depth + 1)
        if kind in ("record", "error"):
            return self._define(schema, depth)
        if kind in ("array", "map"):
            part = self.measure(schema.get("items" if kind == "array" else "values"), depth + 1)
            if kind == "array" and not part.takes:
                raise ValueError("the items of an array take no bytes")
            return _join([part], takes=True)
        if kind in ("fixed", "enum"):
            size = _NULL if kind == "fixed" and schema.get("size") == 0 else _VALUE
            self._named[str(schema.get("name"))] = size
            return size
        return self._find(kind)

    def _define(self, schema: Mapping[str, Any], depth: int) -> _Measure:
        name = str(schema.get("name"))
        self._named[name] = None
        fields = schema.get("fields", ())
        size = _join((self.measure(field.get("type"), depth + 1) for field in fields), takes=False) if fields else _NULL
        self._named[name] = size
        return size

    def _find(self, name: str) -> _Measure:
        size = self._named.get(name, _NULL if name == "null" else _VALUE)
        if size is None:
            raise ValueError(f"`{name[:100]}` contains itself")
        return size


def _join(parts: Iterable[_Measure], *, takes: bool) -> _Measure:
    types, free = 1, 0
    for part in parts:
        types, free, takes = types + part.types, free + part.free, takes or part.takes
        if types > _MOST_TYPES or free > _MOST_FREE:
            kind = f"{_MOST_TYPES:,} types" if types > _MOST_TYPES else f"{_MOST_FREE} types without bytes"
            raise ValueError(f"it has more than {kind}")
    return _Measure(types, free, takes)


def connect_words(schema: Any) -> AvroSchema:
    """The schema of records of a file."""
    return _Reading({}).words(schema, "", 0)


class _Reading:
    """Named types are defined where they first stand, and named from then on."""

    def __init__(self, named: dict[str, AvroSchema]) -> None:
        self._named = named

    def words(self, schema: Any, space: str, depth: int) -> AvroSchema:
        if depth > _DEEPEST_SCHEMA:
            return {"type": "nested too deep"}
        if isinstance(schema, list):
            kinds = [one for one in schema if one != "null"]
            return self.words(kinds[0], space, depth + 1) if len(kinds) == 1 else {"type": "union"}
        if isinstance(schema, dict):
            return self._read_type(schema, space, depth)
        text = str(schema)
        return self._named.get(_full(text, space)) or self._named.get(text) or {"type": _PRIMITIVE.get(text, text)}

    def _read_type(self, schema: Mapping[str, Any], space: str, depth: int) -> AvroSchema:
        kind = schema.get("type")
        if not isinstance(kind, str):
            return self.words(kind, space, depth + 1) | _name(schema)
        type_: AvroSchema = {"type": _PRIMITIVE.get(kind, kind)} | _name(schema)
        if kind in ("record", "enum", "fixed"):
            full = _full(str(schema.get("name")), str(schema.get("namespace", space)))
            space = full.rpartition(".")[0]
            self._named[full] = type_
        if kind == "record":
            type_["type"] = "struct"
            declared = schema.get("fields")
            fields = [f for f in declared if isinstance(f, dict)] if isinstance(declared, list) else []
            type_["fields"] = [self._read_field(one, space, depth + 1) for one in fields]
        elif kind == "array":
            type_["items"] = self.words(schema.get("items"), space, depth + 1)
        elif kind not in _PRIMITIVE and kind not in ("boolean", "float", "double", "string", "bytes", "map"):
            return self.words(kind, space, depth + 1) | _name(schema)
        return type_

    def _read_field(self, field: Mapping[str, Any], space: str, depth: int) -> AvroSchema:
        kind, default = field.get("type"), field.get("default")
        type_ = {**self.words(kind, space, depth), "field": field.get("name")}
        if default is not None and type_["type"] != "bytes":  # Its bytes are no base64.
            type_["default"] = default
        return type_ | ({"optional": True} if isinstance(kind, list) and "null" in kind else {})


def _name(schema: Mapping[str, Any]) -> AvroSchema:
    name = schema.get("connect.name") or _CONNECT_NAMES.get(str(schema.get("logicalType")))
    scale, parameters = schema.get("scale"), schema.get("connect.parameters")
    parameters = parameters if isinstance(parameters, dict) else {}
    scale = parameters.get("scale") if scale is None else scale
    named: AvroSchema = {"name": str(name)} if name else {}
    if name and str(name).endswith(".Decimal"):
        # A converter writes 64 where it does not know the precision.
        precision = parameters.get(PRECISION, "" if "connect.name" in schema else schema.get("precision", ""))
        digits = {PRECISION: str(precision)} if precision else {}
        named |= {"parameters": {"scale": str(scale or 0), **digits}}
    kind = schema.get("connect.type")
    return named | ({"type": str(kind)} if kind in ("int8", "int16") else {})


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"
