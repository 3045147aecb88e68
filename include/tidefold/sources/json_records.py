"""Plain JSON records: the value of each is a row, or says with its row what is to be done with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tidefold.changelog.columns import DELETE, MERGE, UPSERT
from tidefold.lifecycle.shape import Engine
from tidefold.lifecycle.values import Shape
from tidefold.sources.account import Accounting, Place
from tidefold.sources.feed import Feed
from tidefold.sources.kafka_lines import KafkaLines
from tidefold.sources.plain_rows import PlainRows
from tidefold.sources.records import Head
from tidefold.sources.refusal import RefusedRecordError, head_of
from tidefold.sources.source import Reader

_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_NULL = msgspec.Raw(b"null")


class Op(msgspec.Struct, frozen=True):
    """Where a record says what it does, and how."""

    column: str
    upsert: tuple[str, ...]
    delete: tuple[str, ...]
    row: str | None = None


class Options(msgspec.Struct, frozen=True):
    """What the configuration of `format: json` says beside the folder."""

    record: str = "kafka"
    op: Op | None = None


class Json(KafkaLines):
    """`format: json`."""

    def __init__(self, feed: Feed) -> None:
        super().__init__(feed)
        self._options = msgspec.convert(feed.options, Options)

    def reader(self, shape: Shape, place: Place) -> Reader:
        return JsonReader(shape, place, self._options)


class _Record(Head):
    """A record with its place in Kafka, and its time there (milliseconds since 1970)."""

    timestamp: int | None = None


class _Ops:
    """Reads of a value what is to be done, and with which row."""

    def __init__(self, op: Op) -> None:
        self._op = op
        fields: list[Any] = [("op", str | int), ("row", msgspec.Raw, _NULL)]
        names = {"op": op.column, "row": op.row or op.column}
        kind = msgspec.defstruct("Value", fields if op.row else fields[:1], rename=names, gc=False)
        self._decode: Callable[[msgspec.Raw], Any] = msgspec.json.Decoder(kind).decode

    def read(self, value: msgspec.Raw) -> tuple[bool, msgspec.Raw]:
        """Whether it is a delete, and its row. Raises RefusedRecordError."""
        op = self._op
        try:
            found = self._decode(value)
        except _UNDECODABLE as error:
            raise RefusedRecordError("OP_UNKNOWN", f"`{op.column}` does not say what to do: {error}.") from error
        said = str(found.op)
        if said not in op.upsert and said not in op.delete:
            known = ", ".join((*op.upsert, *op.delete))
            raise RefusedRecordError("OP_UNKNOWN", f"`{op.column}` is {said[:40]!r}, none of {known}.")
        return said in op.delete, found.row if op.row else value


class JsonReader(Accounting):
    """Takes the lines of one file one after the other."""

    def __init__(self, shape: Shape, place: Place, options: Options) -> None:
        super().__init__(place)
        self._shape = shape
        self._own_place = options.record == "value"
        beside = [options.op.column] if options.op and not options.op.row else []
        self._rows = PlainRows(shape, beside)
        self._records = msgspec.json.Decoder(_Record)
        self._values = msgspec.json.Decoder(msgspec.Raw)
        self._ops = _Ops(options.op) if options.op else None
        self._upsert = MERGE if shape.merge.engine is Engine.AGGREGATE else UPSERT

    def near(self, data: bytes) -> None:
        """Nothing is searched for in lines."""

    def take(self, line: bytes) -> None:
        """Takes a line that is not blank. Raises RefusedRecordError or LateOffsetError."""
        self.line = line
        record = self._record(line)
        if not self.is_new(record.topic, record.partition, record.offset):
            return
        time = record.timestamp * 1000 if record.timestamp is not None and 0 <= record.timestamp < 2**53 else None
        if record.value == _NULL:
            self._delete(record.offset, time, self._key_of(record))
            return
        deletes, value = self._ops.read(record.value) if self._ops else (False, record.value)
        if deletes:
            self._delete(record.offset, time, self._key_of(record) if value == _NULL else value)
            return
        row, absent = self._rows.row(value)
        self._keep(self._upsert, record.offset, time, row, absent)

    def _record(self, line: bytes) -> _Record:
        try:
            if not self._own_place:
                return self._records.decode(line)
            self.offset = self.counted_offset
            value = self._values.decode(line)
        except _UNDECODABLE as error:
            head_of(line)
            raise RefusedRecordError("NOT_A_RECORD", f"{error}.") from error
        return _Record(self._place.topic, self._place.partition, self.counted_offset, value)

    def _key_of(self, record: _Record) -> msgspec.Raw:
        """The key of a tombstone as an object; one that is a single value belongs to a key of one column."""
        if record.key == _NULL:
            raise RefusedRecordError("KEY_NULL", "The value is null, and no key says what is deleted.")
        if not bytes(record.key).startswith(b"{") and len(self._shape.key) == 1:
            return msgspec.Raw(b"{" + msgspec.json.encode(self._shape.key[0]) + b":" + bytes(record.key) + b"}")
        return record.key

    def _delete(self, offset: int, time: int | None, row: msgspec.Raw) -> None:
        if not self.takes_delete(self._shape):
            return
        self._keep(DELETE, offset, time, self._rows.key(row), None)

    def _keep(self, op: int, offset: int, time: int | None, row: Any, absent: list[str] | None) -> None:
        order = self._rows.order(row)
        self.check_late(order)
        self.account.changes += 1
        self.batch.add(op, order, offset, time, row, absent)
