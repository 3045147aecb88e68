"""Converts Debezium records from files with typed values to their JSON text.

So one reader judges all formats. The quarantine stores a refused record as text, with the part of its schema that a
retry needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tidefold.domain.log_state import TableSpec
from tidefold.sources.api import ParsedFile, SchemaStopError
from tidefold.sources.debezium.envelope import EnvelopeReader
from tidefold.sources.ingest.accounting import FilePosition
from tidefold.sources.ingest.change_batches import TableBuilder
from tidefold.sources.ingest.plan import FileTask
from tidefold.sources.quarantine.writer import QuarantineWriter
from tidefold.sources.records.errors import RefusedRecordError

_BATCH_ROWS = 16_384
_encode = msgspec.json.Encoder().encode


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
    """Gives every new record of the file to the reader."""
    taker = _Taker(typed.schema, task, place, shape, quarantine)
    builder = TableBuilder(shape, task.file.partition)
    for number, record in enumerate(typed.records, 1):
        if task.most is not None and number > task.records + task.most:
            break
        if number > task.records:
            taker.take(number, record)
            if len(taker.reader.batch.ops) >= _BATCH_ROWS:
                builder.add(taker.reader.drain_batch())
    builder.add(taker.reader.drain_batch())
    return ParsedFile(taker.reader.account, builder.to_table(), typed.checksum)


class _Taker:
    """Gives records to the reader and what it refuses to the quarantine."""

    def __init__(
        self,
        schema: Mapping[str, Any],
        task: FileTask,
        place: FilePosition,
        shape: TableSpec,
        quarantine: QuarantineWriter,
    ) -> None:
        after = _after_of(schema)
        self._schema = {"type": "struct", "fields": [_small(after)]}
        self._floats = _float_columns(after)
        self._wrapped = False
        try:
            self.reader = EnvelopeReader(shape, place, self._schema)
        except RefusedRecordError:
            # Then each record is refused, and says why: its schema goes with it.
            self.reader, self._wrapped = EnvelopeReader(shape, place), True
        self._file = task.file.name
        self._stops = task.stops
        self._quarantine = quarantine

    def take(self, number: int, record: Mapping[str, Any]) -> None:
        record = _with_named_numbers(record, self._floats)
        self.reader.begin()
        text = _encode(_beside_schema(record, self._schema) if self._wrapped else record)
        self.reader.preview_chunk(text)
        try:
            self.reader.take(text)
        except RefusedRecordError as refused:
            if refused.reason in self._stops:
                raise SchemaStopError(self.reader.account.records - 1, number, refused) from refused
            self.reader.refuse(refused.reason)
            text = _encode(_beside_schema(record, self._schema))
            self._quarantine.add(self._file, number, self.reader.offset, refused, text)


def _after_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of a row, in that of a record or of its value alone."""
    of_record = {f.get("field"): f for f in schema.get("fields", ())}
    envelope = of_record.get("value", schema)
    return next((f for f in envelope.get("fields", ()) if f.get("field") == "after"), {})


def _float_columns(after: Mapping[str, Any]) -> list[str]:
    return [str(f["field"]) for f in after.get("fields", ()) if _holds_floats(f)]


def _small(field: Mapping[str, Any]) -> dict[str, Any]:
    """A field with what says how its values are written."""
    kept = {name: field[name] for name in ("field", "type", "name", "parameters") if name in field}
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
    row = value.get("after") if isinstance(value, dict) else None
    if isinstance(row, dict):
        for name in floats:
            row[name] = _name_number(row.get(name))
    return record


def _name_number(value: Any) -> Any:
    if isinstance(value, list):
        return [_name_number(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value
