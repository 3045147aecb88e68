"""Debezium records in Parquet files that a Kafka sink landed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from tidefold.domain.log_state import TableSpec
from tidefold.sources.api import ParsedFile
from tidefold.sources.debezium.avro_schema import connect_words
from tidefold.sources.debezium.connect_schema import PRECISION
from tidefold.sources.debezium.json_source import DebeziumJson
from tidefold.sources.debezium.typed_records import Typed, encode_texts, parse_typed, with_schemas
from tidefold.sources.files.parquet import MAGIC, parquet_ending
from tidefold.sources.ingest.accounting import FilePosition
from tidefold.sources.ingest.parse_file import parse_file, read_whole
from tidefold.sources.ingest.plan import FileTask
from tidefold.sources.ingest.taken_records import TakenFile
from tidefold.sources.landing.completeness import Ending
from tidefold.sources.landing.listing import LandedFile
from tidefold.sources.landing.streams import DamagedError
from tidefold.sources.quarantine.writer import QuarantineWriter

_ROWS = 4_096
_TIME = "io.debezium.time."
# Where writers keep the Avro schema that the file's own was made from: it has the names of Debezium's types.
_AVRO = (b"parquet.avro.schema", b"avro.schema")
_INSTANTS = {"s": "seconds", "ms": "Timestamp", "us": "MicroTimestamp", "ns": "NanoTimestamp"}


class DebeziumParquet(DebeziumJson):
    """`format: debezium-parquet`."""

    extensions = ("parquet", "snappy.parquet", "gz.parquet", "zstd.parquet")

    def ending(self, file: LandedFile, taken: int) -> Ending:
        return parquet_ending(file, taken)

    def parse(self, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        return parse_file(task, lambda stream: _parse(stream, task, self.place_of(task), shape, quarantine))

    def texts(self, stream: BinaryIO, file: TakenFile) -> Iterator[bytes]:
        with pq.ParquetFile(stream) as parquet:
            yield from encode_texts(Typed(_rows(parquet), _words(parquet), file.checksum))

    def sample(self, stream: BinaryIO, size: int) -> Iterator[Mapping[str, Any]]:
        """The records of a file, each with its schema beside its value."""
        del size
        with pq.ParquetFile(stream) as parquet:
            yield from with_schemas(Typed(_rows(parquet), _words(parquet), ""))


def _parse(
    stream: BinaryIO, task: FileTask, place: FilePosition, shape: TableSpec, quarantine: QuarantineWriter
) -> ParsedFile:
    checksum = read_whole(stream, task, MAGIC)
    try:
        with pq.ParquetFile(stream) as file:
            typed = Typed(_rows(file), _words(file), checksum)
            return parse_typed(typed, task, place, shape, quarantine)
    except (pa.ArrowException, OSError) as error:
        raise DamagedError(str(error).splitlines()[0]) from error


def _rows(file: pq.ParquetFile) -> Iterator[dict[str, Any]]:
    """Rows as plain values: times as the numbers that they are kept as, so that nothing of them is lost."""
    schema = pa.schema([field.with_type(_as_kept(field.type)) for field in file.schema_arrow])
    for batch in file.iter_batches(_ROWS):
        yield from batch.cast(schema).to_pylist()


def _as_kept(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_as_kept(field.type)) for field in type_])
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(_as_kept(type_.value_type))
    if pa.types.is_date32(type_) or pa.types.is_time32(type_):
        return pa.int32()
    if pa.types.is_timestamp(type_) or pa.types.is_time64(type_):
        return pa.int64()
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _words(file: pq.ParquetFile) -> dict[str, Any]:
    metadata = file.schema_arrow.metadata or {}
    metadata = {**metadata, **(file.metadata.metadata or {})}
    text = next((metadata[name] for name in _AVRO if name in metadata), None)
    try:
        hint = connect_words(json.loads(text)) if text else {}
    except (ValueError, RecursionError, TypeError, AttributeError):  # It is from outside, and only a hint.
        hint = {}
    return _word(pa.struct(list(file.schema_arrow)), hint)


def _word(type_: pa.DataType, hint: Mapping[str, Any]) -> dict[str, Any]:
    """A type in Kafka Connect's words; `hint` names it where its values are the same."""
    if pa.types.is_struct(type_):
        hints = {str(f.get("field")): f for f in hint.get("fields", ())}
        fields = [{**_word(field.type, hints.get(field.name, {})), "field": field.name} for field in type_]
        return {"type": "struct", "fields": fields}
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return {"type": "array", "items": _word(type_.value_type, hint.get("items", {}))}
    if pa.types.is_date32(type_):
        return {"type": "int32", "name": f"{_TIME}Date"}
    if pa.types.is_timestamp(type_):
        return {"type": "int64", "name": f"{_TIME}{_INSTANTS[type_.unit]}"}
    if pa.types.is_decimal(type_):
        # As a text of its digits.
        return {"type": "string", "parameters": {"scale": str(type_.scale), PRECISION: str(type_.precision)}}
    kind = _kind(type_)
    return {"type": kind} | ({"name": hint["name"]} if "name" in hint and hint.get("type") == kind else {})


def _kind(type_: pa.DataType) -> str:
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    if pa.types.is_time(type_):
        return "int32" if pa.types.is_time32(type_) else "int64"
    known = {
        pa.bool_(): "boolean", pa.int8(): "int8", pa.int16(): "int16", pa.int32(): "int32", pa.int64(): "int64",
        pa.float32(): "float", pa.float64(): "double", pa.string(): "string", pa.large_string(): "string",
        pa.binary(): "bytes", pa.large_binary(): "bytes",
    }  # fmt: skip
    return known.get(type_, str(type_))
