"""Debezium records with typed values, in Avro and Parquet files: converts them to their JSON text.

So one reader judges all formats. The quarantine stores a refused record as text, with the part of its schema that a
retry needs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tidefold.domain.log_state import TableSpec
from tidefold.sources.api import ParsedFile
from tidefold.sources.debezium.avro_file import MAGIC as AVRO_MAGIC
from tidefold.sources.debezium.avro_file import connect_words, count_whole_bytes, read_header, read_records
from tidefold.sources.debezium.connect_schema import PRECISION
from tidefold.sources.debezium.envelope import envelope_reader
from tidefold.sources.debezium.json_source import DebeziumJson
from tidefold.sources.files.parquet import MAGIC, open_parquet, parquet_ending, plain_schema, read_batches
from tidefold.sources.landing.completeness import Ending, inspect_file
from tidefold.sources.landing.listing import LandedFile
from tidefold.sources.landing.plan import FileTask, TakenFile
from tidefold.sources.landing.problems import report_damaged, report_wrong_content
from tidefold.sources.landing.streams import CutShortError, DamagedError
from tidefold.sources.quarantine.writer import QuarantineWriter
from tidefold.sources.records.accounting import FilePosition, ReaderPosition
from tidefold.sources.records.errors import RefusedRecordError
from tidefold.sources.records.parse_file import RecordText, parse_file, read_whole, take_records
from tidefold.typed_json import make_decoder

_KEPT = ("field", "type", "name", "parameters", "optional", "default")
_encode = msgspec.json.Encoder().encode
_raw_fields = make_decoder(dict[str, msgspec.Raw]).decode
_ROWS = 4_096
_TIME = "io.debezium.time."
# Where writers keep the Avro schema that the file's own was made from: it has the names of Debezium's types.
_AVRO = (b"parquet.avro.schema", b"avro.schema")
_INSTANTS = {"s": "seconds", "ms": "Timestamp", "us": "MicroTimestamp", "ns": "NanoTimestamp"}


@dataclass(frozen=True, slots=True)
class Typed:
    """What a file holds: records as plain values, their schema in Kafka Connect's words, the sha256 of its bytes."""

    records: Iterable[Mapping[str, Any]]
    schema: Mapping[str, Any]
    checksum: str


@dataclass(frozen=True, slots=True)
class RowSchema:
    """The schema of rows, as records have it beside them.

    schema: a schema with `after` alone.
    floats: the columns with floating point numbers.
    """

    schema: Mapping[str, Any]
    floats: Sequence[str]

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> RowSchema:
        """`schema`: of a record or of its value, in the words of Kafka Connect."""
        after = _after_of(schema)
        return cls({"type": "struct", "fields": [_small(after)]}, _float_columns(after))

    def wrap(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        """A record, or a value, with its schema beside it."""
        return _beside_schema(_with_named_numbers(record, self.floats), self.schema)


def encode_texts(typed: Typed) -> Iterator[bytes]:
    """The text of every record of a file, as the reader is given it."""
    floats = _float_columns(_after_of(typed.schema))
    return (_encode(_with_named_numbers(record, floats)) for record in typed.records)


def with_schemas(typed: Typed) -> Iterator[Mapping[str, Any]]:
    """Every record of a file with the schema of its row, as a record of JSON has it."""
    return map(RowSchema.of(typed.schema).wrap, typed.records)


def _beside_schema(record: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if "value" in record:
        return {**record, "value": {"schema": schema, "payload": record["value"]}}
    return {"schema": schema, "payload": record}


def parse_typed(
    typed: Typed, task: FileTask, place: FilePosition, shape: TableSpec, quarantine: QuarantineWriter
) -> ParsedFile:
    """Gives every new record of the file to the reader. A refused one is stored with its schema."""
    rows, at = RowSchema.of(typed.schema), ReaderPosition(place, shape)
    try:
        reader, wraps = envelope_reader(shape, rows.schema), False
    except RefusedRecordError:
        # Then each record is refused, and says why: its schema goes with it.
        reader, wraps = envelope_reader(shape), True

    def texts() -> Iterator[RecordText]:
        for number, record in enumerate(typed.records, 1):
            text = _encode(rows.wrap(record) if wraps else _with_named_numbers(record, rows.floats))
            at.preview(text)
            yield number, text, None, False

    def encode_stored(text: bytes) -> bytes:
        return text if wraps else _encode(_beside_schema(_raw_fields(text), rows.schema))

    table = take_records(texts(), task, shape, at, reader, quarantine, task.records, encode_stored)
    return ParsedFile(at.account, table, typed.checksum)


def shorten_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of an envelope or a row, with what says how the values of a row are written."""
    is_envelope = {"op", "after", "source"} <= {f.get("field") for f in schema.get("fields", ())}
    return RowSchema.of(schema).schema if is_envelope else _small(schema)


def _after_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of a row, in that of a record or of its value alone."""
    of_record = {f.get("field"): f for f in schema.get("fields", ())}
    envelope = of_record.get("value", schema)
    return next((f for f in envelope.get("fields", ()) if f.get("field") == "after"), {})


def _float_columns(after: Mapping[str, Any]) -> list[str]:
    return [str(f["field"]) for f in after.get("fields", ()) if _holds_floats(f)]


def _small(field: Mapping[str, Any]) -> dict[str, Any]:
    """A field with what says how its values are written."""
    kept = {name: field[name] for name in _KEPT if name in field}
    if field.get("type") == "struct" and "fields" in field:
        kept["fields"] = [_small(one) for one in field["fields"]]
    if "items" in field:
        kept["items"] = _small(field["items"])
    return kept


def _holds_floats(field: Mapping[str, Any]) -> bool:
    return field.get("type") in ("float", "double") or (
        field.get("type") == "array" and _holds_floats(field.get("items", {}))
    )


def _with_named_numbers(record: Mapping[str, Any], floats: Iterable[str]) -> Mapping[str, Any]:
    """JSON has no number for NaN and the infinities: Debezium writes them as texts, an encoder as null."""
    value = record.get("value", record)
    for row in (value.get("after"), value.get("before")) if isinstance(value, dict) else ():
        if not isinstance(row, dict):
            continue
        for name in floats:
            row[name] = name_number(row.get(name))
    return record


def name_number(value: Any) -> Any:
    """A value with a name in place of each number that JSON does not have."""
    if isinstance(value, list):
        return [name_number(one) for one in value]
    if isinstance(value, dict):
        return {name: name_number(one) for name, one in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


class DebeziumParquet(DebeziumJson):
    """`format: debezium-parquet`."""

    extensions = ("parquet", "snappy.parquet", "gz.parquet", "zstd.parquet")

    def find_ending(self, file: LandedFile, taken: int) -> Ending:
        return parquet_ending(file, taken)

    def parse_landed(self, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        return parse_file(task, lambda stream: _parse(stream, task, self.place_of(task), shape, quarantine))

    def texts(self, stream: BinaryIO, file: TakenFile) -> Iterator[bytes]:
        with open_parquet(stream) as parquet:
            yield from encode_texts(Typed(_rows(parquet), _words(parquet), file.checksum))

    def sample(self, stream: BinaryIO, size: int) -> Iterator[Mapping[str, Any]]:
        """The records of a file, each with its schema beside its value."""
        del size
        with open_parquet(stream) as parquet:
            yield from with_schemas(Typed(_rows(parquet), _words(parquet), ""))


def _parse(
    stream: BinaryIO, task: FileTask, place: FilePosition, shape: TableSpec, quarantine: QuarantineWriter
) -> ParsedFile:
    checksum = read_whole(stream, task, MAGIC)
    try:
        with open_parquet(stream) as file:
            typed = Typed(_rows(file), _words(file), checksum)
            return parse_typed(typed, task, place, shape, quarantine)
    except (pa.ArrowException, OSError) as error:
        raise DamagedError(str(error).splitlines()[0]) from error


def _rows(file: pq.ParquetFile) -> Iterator[dict[str, Any]]:
    """Rows as plain values: times as the numbers that they are kept as, so that nothing of them is lost."""
    schema = pa.schema([field.with_type(_as_kept(field.type)) for field in file.schema_arrow])
    for batch in read_batches(file, schema, _ROWS):
        yield from batch.to_pylist()


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
    return _word(pa.struct(list(plain_schema(file))), hint)


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
    kinds = {
        pa.bool_(): "boolean", pa.int8(): "int8", pa.int16(): "int16", pa.int32(): "int32", pa.int64(): "int64",
        pa.float32(): "float", pa.float64(): "double", pa.string(): "string", pa.large_string(): "string",
        pa.binary(): "bytes", pa.large_binary(): "bytes",
    }  # fmt: skip
    return kinds.get(type_, str(type_))


class DebeziumAvro(DebeziumJson):
    """`format: debezium-avro`."""

    extensions = ("avro",)

    def find_ending(self, file: LandedFile, taken: int) -> Ending:
        """Whole blocks can be taken; the block in which a file ends is still being written."""
        return inspect_file(file, lambda stream: _ending(stream, file))

    def parse_landed(self, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        return parse_file(task, lambda stream: _parse_avro(stream, task, self.place_of(task), shape, quarantine))

    def texts(self, stream: BinaryIO, file: TakenFile) -> Iterator[bytes]:
        header = read_header(stream)
        records = read_records(stream, header, file.length)
        return encode_texts(Typed(records, connect_words(header.schema), file.checksum))

    def sample(self, stream: BinaryIO, size: int) -> Iterator[Mapping[str, Any]]:
        """The records of a file, each with its schema beside its value."""
        header = read_header(stream)
        return with_schemas(Typed(read_records(stream, header, size), connect_words(header.schema), ""))


def _ending(stream: BinaryIO, file: LandedFile) -> Ending:
    if not AVRO_MAGIC.startswith(stream.read(len(AVRO_MAGIC))):
        return Ending(0, problem=report_wrong_content(file.name))
    stream.seek(0)
    try:
        complete = count_whole_bytes(stream, file.size)
    except CutShortError:
        return Ending(0, torn=True)
    except DamagedError as error:
        return Ending(0, problem=report_damaged(file.name, str(error)))
    return Ending(complete, torn=complete < file.size)


def _parse_avro(
    stream: BinaryIO, task: FileTask, place: FilePosition, shape: TableSpec, quarantine: QuarantineWriter
) -> ParsedFile:
    checksum = read_whole(stream, task, AVRO_MAGIC)
    header = read_header(stream)
    typed = Typed(read_records(stream, header, task.until), connect_words(header.schema), checksum)
    return parse_typed(typed, task, place, shape, quarantine)
