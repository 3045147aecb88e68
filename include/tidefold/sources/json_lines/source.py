"""Plain JSON records: the value of each is a row, or contains a row and its operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa

from tidefold.changelog.duckdb_connection import connect
from tidefold.changelog.schema import DELETE, MERGE, UPSERT
from tidefold.domain.log_state import TableSpec
from tidefold.domain.table.table_spec import COLUMNS, Engine
from tidefold.sources.api import Feed, ParsedFile, RecordReader
from tidefold.sources.debezium.json_source import KafkaLines, offset_in
from tidefold.sources.ingest.accounting import COUNTING, FilePosition, RecordAccounting
from tidefold.sources.ingest.plan import FileTask
from tidefold.sources.json_lines.rows import NULL, UNDECODABLE, Lines, PlainRows, Record
from tidefold.sources.quarantine.writer import QuarantineWriter
from tidefold.sources.records.column_aliases import has_aliases, resolve_aliases
from tidefold.sources.records.columnar_changes import ANY, OpColumn, content_places
from tidefold.sources.records.errors import RefusedRecordError, decode_plain
from tidefold.typed_json import convert_value, make_decoder


class JsonOp(OpColumn, frozen=True):
    """The operation of a record. `row`: the field with the row; None: the operation is among its columns."""

    row: str | None = None


class JsonOptions(msgspec.Struct, frozen=True):
    """The configuration of `format: json` beside the folder. `row`: the field with all of the row."""

    record: str = "kafka"
    op: JsonOp | None = None
    row: str | None = None


class Json(KafkaLines):
    """`format: json`."""

    endings = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")

    def __init__(self, feed: Feed) -> None:
        super().__init__(feed)
        self._options = convert_value(feed.options, JsonOptions)

    def find_offset(self, text: bytes) -> int | None:
        return None if self._options.record == "value" else offset_in(text)

    def takes_any_name(self, shape: TableSpec) -> bool:
        """Whether columns order the rows and equal rows count once, as for CSV and Parquet."""
        return shape.order == COLUMNS and shape.merge.engine not in COUNTING

    def parse(self, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        parsed = super().parse(task, shape, quarantine)
        if not task.file.alone or parsed.table is None:
            return parsed
        return replace(parsed, table=_place_by_content(parsed.table, shape))

    def reader(self, shape: TableSpec, place: FilePosition) -> RecordReader:
        return JsonReader(shape, place, self._options)


def _place_by_content(table: pa.Table, shape: TableSpec) -> pa.Table:
    """Computes the offsets of changes from their content alone, so that they do not depend on the files."""
    content = table.select(["_op", "_absent", *(column.name for column in shape.columns)])
    with connect() as connection:
        places = content_places(content, (), connection)
    index = table.schema.get_field_index("_offset")
    return table.set_column(index, table.schema.field(index), places)


class _Ops:
    """Reads the operation and the row of a value."""

    def __init__(self, op: JsonOp) -> None:
        self._op = op
        said = ("op", msgspec.Raw, NULL) if op.delete == ANY else ("op", str | int | bool)
        fields: list[Any] = [said, ("row", msgspec.Raw, NULL)]
        names = {"op": op.column, "row": op.row or op.column}
        kind = msgspec.defstruct("Value", fields if op.row else fields[:1], rename=names, gc=False)
        self._decode: Callable[[msgspec.Raw], Any] = make_decoder(kind).decode

    def read(self, value: msgspec.Raw) -> tuple[bool | None, msgspec.Raw]:
        """Returns whether it is a delete (None: it is ignored), and its row. Raises RefusedRecordError."""
        op = self._op
        try:
            found = self._decode(value)
        except UNDECODABLE as error:
            raise RefusedRecordError("OP_UNKNOWN", f"`{op.column}` does not contain an operation: {error}.") from error
        row = found.row if op.row else value
        if op.delete == ANY:
            return found.op != NULL, row
        said = str(found.op).lower() if isinstance(found.op, bool) else str(found.op)
        if said in op.ignore:
            return None, row
        if said not in op.upsert and said not in op.delete:
            known = ", ".join((*op.upsert, *op.delete))
            raise RefusedRecordError("OP_UNKNOWN", f"`{op.column}` is {said[:40]!r}, not one of {known}.")
        return said in op.delete, row


class JsonReader(RecordAccounting):
    """Reads the lines of one file in order."""

    def __init__(self, shape: TableSpec, place: FilePosition, options: JsonOptions) -> None:
        super().__init__(place)
        self._shape = shape
        self._lines = Lines(self, place, options.record)
        beside = [options.op.column] if options.op and not options.op.row else []
        self._beside, self._aliased = beside, has_aliases(shape)
        self._spelled = {shape: PlainRows(shape, beside)}
        self._ops = _Ops(options.op) if options.op else None
        wrapper = msgspec.defstruct("Wrapper", [("row", msgspec.Raw)], rename={"row": options.row or "row"}, gc=False)
        self._row_in = make_decoder(wrapper).decode if options.row else None
        self._upsert = MERGE if shape.merge.engine is Engine.AGGREGATE else UPSERT

    def take(self, line: bytes) -> None:
        """Takes a line that is not blank. Raises RefusedRecordError or LateOffsetError."""
        self.line = line
        record = self._lines.record(line)
        if not self.is_new(record.topic, record.partition, record.offset):
            return
        time = record.time
        if record.value == NULL:
            self._delete(record.offset, time, self._key_of(record))
            return
        value = self._unwrap(record.value)
        deletes, value = self._ops.read(value) if self._ops else (False, value)
        if deletes is None:
            self.account.ignored += 1
            return
        if deletes:
            self._delete(record.offset, time, self._key_of(record) if value == NULL else value)
            return
        row, absent = self._rows(value).row(value)
        self._keep(self._upsert, record.offset, time, row, absent)

    def _unwrap(self, value: msgspec.Raw) -> msgspec.Raw:
        """Returns the row in a field of a value."""
        if self._row_in is None:
            return value
        try:
            found: Any = self._row_in(value)
        except UNDECODABLE as error:
            raise RefusedRecordError("NOT_A_RECORD", f"The record has no field with its row: {error}.") from error
        row: msgspec.Raw = found.row
        return row

    def _key_of(self, record: Record) -> msgspec.Raw:
        """Returns the key of a tombstone as an object. A single value is the key of one column."""
        if record.key == NULL:
            raise RefusedRecordError("KEY_NULL", "The value is null (a delete), and the record has no key.")
        if not bytes(record.key).startswith(b"{") and len(self._shape.key) == 1:
            return msgspec.Raw(b"{" + msgspec.json.encode(self._shape.key[0]) + b":" + bytes(record.key) + b"}")
        return record.key

    def _rows(self, data: msgspec.Raw) -> PlainRows:
        """Returns the decoder for rows with the column names of this one."""
        shape = self._shape
        if self._aliased and isinstance(names := decode_plain(data), dict):
            shape = resolve_aliases(shape, names)
        if shape not in self._spelled:
            self._spelled[shape] = PlainRows(shape, self._beside, self._shape)
        return self._spelled[shape]

    def _delete(self, offset: int, time: int | None, row: msgspec.Raw) -> None:
        if not self.takes_delete(self._shape):
            return
        self._keep(DELETE, offset, time, self._rows(row).key(row), None)

    def _keep(self, op: int, offset: int, time: int | None, row: Any, absent: list[str] | None) -> None:
        order = self._spelled[self._shape].order(row)
        self.check_late(order)
        self.account.changes += 1
        self.batch.add(op, order, offset, time, row, absent)
