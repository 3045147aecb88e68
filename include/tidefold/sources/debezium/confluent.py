"""Debezium records in Confluent's Avro: bytes that name a schema of a registry by its id.

Sinks write keys and values without decoding them, as base64 in lines of JSON. The schemas are files in a folder, so no
registry is asked: `17.avsc`, or the answer of a registry with its `id` and `schema` under any name.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import struct
from dataclasses import dataclass
from typing import Any

import fastavro
import msgspec

from tidefold.errors import InvalidInputError
from tidefold.sources.debezium.avro_file import connect_words, parse_bounded
from tidefold.sources.debezium.typed_records import RowSchema
from tidefold.sources.landing.folders import folder_at
from tidefold.sources.landing.streams import DamagedError
from tidefold.sources.records.accounting import ReaderPosition
from tidefold.sources.records.errors import RefusedRecordError

_HEAD = struct.Struct(">bI")  # magic, id of the schema
_ENDINGS = (".avsc", ".json")
_DIGITS = 10  # of the largest id


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema, as fastavro and as the decoder of rows need it."""

    parsed: Any
    rows: RowSchema


class SchemaFolder:
    """The schemas of a folder, read when the first one is asked for."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._texts: dict[int, str] | None = None
        self._known: dict[int, RegisteredSchema] = {}

    def find(self, number: int) -> RegisteredSchema:
        """Raises RefusedRecordError if the folder does not have it, InvalidInputError for a file that is no schema."""
        if number not in self._known:
            self._texts = self._read() if self._texts is None else self._texts
            if number not in self._texts:
                raise RefusedRecordError(
                    "SCHEMA_UNKNOWN", f"The folder `schemas` has no Avro schema with the id {number}."
                )
            self._known[number] = _parse(self._address, number, self._texts[number])
        return self._known[number]

    def _read(self) -> dict[int, str]:
        """The text of each schema by its id."""
        folder, schemas = folder_at(self._address), dict[int, str]()
        for one in folder.list_files():
            own = one.name.rpartition("/")[2]
            stem, dot, ending = own.rpartition(".")
            if one.unsafe or f"{dot}{ending}" not in _ENDINGS:
                continue
            with folder.open(one.name) as stream:
                number, text = _identify(self._address, one.name, stem, stream.read())
            schemas[number] = text
        return schemas


def _identify(address: str, name: str, stem: str, data: bytes) -> tuple[int, str]:
    """The id and the text of the schema in a file."""
    try:
        text = data.decode()
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unusable(address, name, str(error)) from error
    answer = content if isinstance(content, dict) and isinstance(content.get("schema"), str) else {}
    number = answer.get("id", stem)
    if not str(number).isdecimal() or len(str(number)) > _DIGITS:
        raise _unusable(address, name, "neither its name nor its content has the id of a schema")
    return int(number), str(answer.get("schema", text))


def _parse(address: str, number: int, text: str) -> RegisteredSchema:
    try:
        schema = json.loads(text)
        parsed = parse_bounded(schema)
    except (ValueError, RecursionError, DamagedError) as error:
        raise _unusable(address, str(number), str(error)) from error
    return RegisteredSchema(parsed, RowSchema.of(connect_words(schema)))


def _unusable(address: str, name: str, why: str) -> InvalidInputError:
    message = f"`{name}` in `{address}` is not an Avro schema of a registry: {why}."
    hint = "Name it `17.avsc` after the id of the schema, or store the registry's answer with `id` and `schema`."
    return InvalidInputError("SCHEMA_FILE", message, hint=hint)


def to_debezium(schemas: SchemaFolder, at: ReaderPosition, line: bytes) -> bytes:
    """A line whose key and value are Confluent's Avro as base64 as a record of JSON. Raises RefusedRecordError."""
    record = _decode_line(line)
    if record is None:
        return line
    for name in ("key", "value"):
        if isinstance(record.get(name), str):
            record[name] = _decode(schemas, name, record[name])
    text = msgspec.json.encode(record)
    at.preview(text)  # Placeholders are searched for in each record: base64 hides them.
    return text


def _decode(schemas: SchemaFolder, name: str, text: str) -> Any:
    """The key or value, with its schema beside it. Raises RefusedRecordError."""
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise RefusedRecordError("NOT_A_RECORD", f"The {name} is not base64: {error}.") from error
    if len(data) < _HEAD.size or data[0]:
        raise RefusedRecordError("NOT_A_RECORD", f"The {name} does not begin like Confluent's Avro.")
    schema = schemas.find(_HEAD.unpack_from(data)[1])
    stream = io.BytesIO(data[_HEAD.size :])
    try:
        value = fastavro.schemaless_reader(stream, schema.parsed, None)
    except Exception as error:  # Whatever fastavro raises for bytes of another schema.
        raise RefusedRecordError("NOT_A_RECORD", f"The {name} does not fit its Avro schema: {error}.") from error
    if stream.read(1):
        raise RefusedRecordError("NOT_A_RECORD", f"The {name} has more bytes than its Avro schema describes.")
    return schema.rows.wrap(value) if name == "value" and isinstance(value, dict) else value


def _decode_line(line: bytes) -> dict[str, Any] | None:
    """The record of a line; None if it is no object."""
    try:
        document = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
