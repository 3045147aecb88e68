"""Plain JSON records: the value of each is a row, or contains a row and its operation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from tidefold.changelog.schema import BEFORE_INSERTS, CLEAR, DELETE, MERGE, UPSERT
from tidefold.domain.log_state import TableSpec
from tidefold.domain.table.table_spec import COLUMNS, Engine
from tidefold.sources.api import RecordReader
from tidefold.sources.debezium.envelope import Change
from tidefold.sources.debezium.json_source import KafkaLines, offset_in
from tidefold.sources.debezium.late_checks import UNREADABLE, LateKeys
from tidefold.sources.debezium.ordering import former_key
from tidefold.sources.feed import Feed
from tidefold.sources.json_lines.late_keys import follow_unwrapped, follows_unwrapped, read_marks
from tidefold.sources.json_lines.plain_rows import PlainRows
from tidefold.sources.landing.folders import read_folders
from tidefold.sources.landing.plan import FileTask
from tidefold.sources.profiles.decoder import ProfileDecoder, RowChange
from tidefold.sources.profiles.profile import Profile
from tidefold.sources.records.accounting import LateOffsetError, ReaderPosition, late_change, takes_delete
from tidefold.sources.records.columnar_changes import ANY, UPSERTS, OpColumn
from tidefold.sources.records.errors import (
    UNDECODABLE,
    RefusedRecordError,
    decode_plain,
    head_of,
    not_sent,
)
from tidefold.sources.records.extended_json import to_plain
from tidefold.sources.records.operation_names import check_beside
from tidefold.sources.records.record_types import RecordHead, has_aliases, resolve_aliases
from tidefold.typed_json import convert_value, make_decoder

# It also reads lines of JSON with their Kafka position: in each line, or by the name of the file and the line number.
NULL = msgspec.Raw(b"null")
_fields: Callable[[msgspec.Raw], dict[str, msgspec.Raw]] = make_decoder(dict[str, msgspec.Raw]).decode


class Record(RecordHead):
    """A record with its position in Kafka, its time there (milliseconds since 1970) and its headers."""

    timestamp: int | None = None
    headers: msgspec.Raw = NULL

    @property
    def time(self) -> int | None:
        """The time in microseconds; None: not known."""
        return self.timestamp * 1000 if self.timestamp is not None and 0 <= self.timestamp < 2**53 else None


class Lines:
    """Makes records from the lines of one file. `record`: `kafka`: a line has its position; `value`: it has none."""

    def __init__(self, record: str) -> None:
        self._alone = record == "value"
        self._records = make_decoder(Record)
        self._values = make_decoder(msgspec.Raw)

    def record(self, at: ReaderPosition, line: bytes) -> Record:
        """Raises RefusedRecordError."""
        try:
            if not self._alone:
                return self._records.decode(line)
            at.offset = None if at.place.alone else at.counted_offset
            value = self._values.decode(line)
        except UNDECODABLE as error:
            head_of(line)
            raise RefusedRecordError("NOT_A_RECORD", f"{error}.") from error
        return Record(at.place.topic, at.place.partition, at.counted_offset, value)


ReadLine = Callable[[ReaderPosition, bytes], Record]


class JsonOp(OpColumn, frozen=True):
    """The operation of a record.

    row: the field with the row; None: the operation is among its columns.
    """

    row: str | None = None


class JsonOptions(msgspec.Struct, frozen=True):
    """The configuration of `format: json` beside the folder. `row`: the field with all of the row.

    table: the table whose records count, if a profile says how each names its own.
    """

    record: str = "kafka"
    op: JsonOp | None = None
    row: str | None = None
    extended_json: bool = False
    time_zone: str | None = None
    folder_columns: tuple[str, ...] = ()
    profile: Profile | None = None
    table: str | None = None


class Json(KafkaLines):
    """`format: json`."""

    endings = tuple(f"{ending}{packed}" for ending in (".json", ".jsonl", ".ndjson") for packed in ("", ".gz", ".zst"))

    def __init__(self, feed: Feed) -> None:
        super().__init__(feed)
        self._options = convert_value(feed.options, JsonOptions)

    def find_offset(self, text: bytes) -> int | None:
        return None if self._options.record == "value" else offset_in(text)

    def takes_any_name(self, shape: TableSpec) -> bool:
        """Whether records need no offsets: columns or files order the rows, or each line is a row."""
        is_row = self._options.record == "value" and shape.merge.engine is Engine.APPEND
        return shape.order == COLUMNS or is_row

    def can_split(self, task: FileTask, shape: TableSpec) -> bool:
        """Whether no record of the file depends on those before it."""
        return self._options.record == "value" and not follows_unwrapped(shape)

    def reader(self, shape: TableSpec) -> RecordReader:
        return JsonReader(shape, self._options).take


class _Ops:
    """Reads the operation and the row of a value."""

    def __init__(self, op: JsonOp) -> None:
        self._op = op
        op_field: Any = ("op", msgspec.Raw, NULL) if op.delete == ANY else ("op", str | int | bool)
        if op.missing == UPSERTS and op.delete != ANY:
            op_field = ("op", str | int | bool | None, None)
        fields: list[Any] = [op_field, ("row", msgspec.Raw, NULL)]
        names = {"op": op.column, "row": op.row or op.column}
        kind = msgspec.defstruct("Value", fields if op.row else fields[:1], rename=names, gc=False)
        self._decode: Callable[[msgspec.Raw], Any] = make_decoder(kind).decode

    def read(self, value: msgspec.Raw) -> tuple[bool | None, msgspec.Raw]:
        """Returns whether it is a delete (None: it is ignored), and its row. Raises RefusedRecordError."""
        op = self._op
        try:
            decoded = self._decode(value)
        except UNDECODABLE as error:
            raise RefusedRecordError("OP_UNKNOWN", f"`{op.column}` does not contain an operation: {error}.") from error
        row = decoded.row if op.row else value
        if op.delete == ANY:
            return decoded.op != NULL, row
        if decoded.op is None:
            return False, row
        text = str(decoded.op).lower() if isinstance(decoded.op, bool) else str(decoded.op)
        if text in op.ignore:
            return None, row
        if op.upsert != ANY and text not in op.upsert and text not in op.delete:
            expected = ", ".join((*op.upsert, *op.delete))
            raise RefusedRecordError("OP_UNKNOWN", f"`{op.column}` is {text[:40]!r}, not one of {expected}.")
        return text in op.delete, row


class JsonReader:
    """Reads the lines of one log."""

    def __init__(self, shape: TableSpec, options: JsonOptions, record: ReadLine | None = None) -> None:
        """`record`: makes the record of a line; None: as `options` say."""
        self._shape = shape
        self._record = record or Lines(options.record).record
        beside = [options.op.column] if options.op and not options.op.row else []
        self._aliased = has_aliases(shape)
        fills = options.profile is not None and options.profile.absent == "null"
        has_op = options.op is not None or options.profile is not None
        self._make_rows = partial(PlainRows, beside=beside, time_zone=options.time_zone, fills=fills, has_op=has_op)
        # To look up a shape costs as much as to read a row.
        self._own: PlainRows = self._make_rows(shape)
        self._spelled = {shape: self._own}
        self._options = options
        self._keys = LateKeys(shape, lacks_before=True) if follows_unwrapped(shape) else None
        # The fields that the folders of the file before have.
        self._folders = ("", b"")
        self._ops = _Ops(options.op) if options.op else None
        self._profile = _decoder_of(shape, options)
        self._row_field = options.row or (options.op and options.op.row) or ""
        self._expected = {self._row_field, options.op.column if options.op else "", *shape.ignored}
        self._upsert = MERGE if shape.merge.engine is Engine.AGGREGATE else UPSERT

    def take(self, at: ReaderPosition, line: bytes) -> None:
        """Takes a line that is not blank. Raises RefusedRecordError or LateOffsetError."""
        record = self._record(at, to_plain(line) if self._options.extended_json else line)
        if not at.is_new(record.topic, record.partition, record.offset):
            return
        if record.value == NULL:
            self._delete(at, record, self._key_of(record), NULL)
            return
        value = self._unwrap(record.value)
        if self._profile:
            try:
                self._take_changes(at, record, [*self._profile.changes(value)])
            except RefusedRecordError as refused:
                raise self._profile.explain(refused) from refused
            return
        deletes, value = self._ops.read(value) if self._ops else (False, value)
        value = self._add_folders(at.place.name, value)
        if deletes is None:
            at.count("ignored")
        elif deletes:
            self._delete(at, record, self._key_of(record) if value == NULL else value, value)
        else:
            row, absent = self._read_row(at, value)
            if absent and self._shape.replaces_rows and (former := self._former_row(record)):
                if not at.is_alone:
                    raise not_sent(absent, moved=True)
                at.batch.add(DELETE, (), at.known_offset, record.time, former)
            self._append(at, record, value, self._change_of(at, self._upsert, row, absent))

    def _take_changes(self, at: ReaderPosition, record: Record, changes: Sequence[RowChange]) -> None:
        """Takes a record with any number of changes. It counts once, and the last change of each key counts."""
        taken: dict[Any, Change] = {}
        for one in changes:
            taken = {} if one.op == CLEAR else taken
            for change in self._read_change(at, one):
                key = self._own.key_of(change.row)
                taken.pop(key, None)
                taken[key] = change
        before = at.account.changes
        for change in taken.values():
            self._append(at, record, NULL, change)
        at.account.changes = before + bool(taken)
        at.account.ignored += not taken

    def _read_change(self, at: ReaderPosition, one: RowChange) -> Iterator[Change]:
        """Yields the changes of keys that one change of a row makes. Raises RefusedRecordError."""
        row = self._add_folders(at.place.name, one.row)
        rows, gone = self._rows(row), row if one.op == DELETE else None
        if one.former is not None:
            gone = self._add_folders(at.place.name, one.former)
        if one.op == CLEAR:
            if not self._shape.clears_by_columns:
                why = "It empties the table. Only a log with the default `merge` and `order: [columns]` can follow it."
                raise RefusedRecordError("CLEAR_UNORDERED", why)
            yield self._change_of(at, CLEAR, rows.place(row))
        elif gone is not None and takes_delete(self._shape):
            yield self._change_of(at, DELETE, rows.key(gone))
        if one.op == UPSERT:
            values, absent = rows.row(row, at.unsent)
            if absent and gone is not None:
                raise not_sent(absent, moved=True)
            yield self._change_of(at, self._upsert, values, absent)

    def _read_row(self, at: ReaderPosition, value: msgspec.Raw) -> tuple[Any, list[str] | None]:
        try:
            return self._rows(value).row(value, at.unsent)
        except RefusedRecordError as refused:
            if self._keys and not at.is_alone:
                with suppress(RefusedRecordError, *UNDECODABLE):
                    rows, marks = self._rows(value), read_marks(value)
                    order = at.place.partition, at.known_offset
                    key, recall, op = rows.key_of(rows.key(value)), partial(self._recall, at), marks.op or ""
                    was_sent = self._keys.was_sent(marks.transaction, recall, marks.lsn, op, key)
                    since = self._keys.hide(op, marks.transaction, key, order, None, None)
                    refused.since = order if was_sent else since
            raise

    def _follow(self, at: ReaderPosition, change: Change, value: msgspec.Raw) -> Change | None:
        """The change to append instead of this one; None: the record changes no row. Raises RefusedRecordError."""
        if self._keys is None or at.is_alone:
            return change
        key, image = self._own.key_of(change.row), partial(self._image, value)
        followed: Change | None = follow_unwrapped(
            self._keys, at, change, bytes(value), key, image, partial(self._recall, at)
        )
        return followed

    def _image(self, value: msgspec.Raw) -> Any:
        try:
            return self._rows(value).row(value, None)[0]
        except RefusedRecordError:
            return UNREADABLE

    def _recall(self, at: ReaderPosition, transaction: object) -> LateKeys | None:
        lines = at.place.before(str(transaction).encode())
        if lines is None:
            return None
        reader, keys = copy(self), LateKeys(self._shape, lacks_before=True)
        reader._keys, keys.asks = keys, False
        scratch = ReaderPosition(replace(at.place, start=0, next_offset=0, taken=()), self._shape)
        for offset, line in lines:
            scratch.account.records = offset  # As a record without an offset counts it.
            scratch.begin(line, 0)
            scratch.preview(line)
            with suppress(RefusedRecordError, LateOffsetError):
                reader.take(scratch, line)
        return keys

    def _former_row(self, record: Record) -> Any:
        """The row under the old key that the headers name, by which values are looked up; None: they name none."""
        key = former_key(msgspec.json.decode(record.headers)) if b"__debezium.oldkey" in bytes(record.headers) else None
        text = msgspec.Raw(msgspec.json.encode(key))
        return self._rows(text).key(text) if isinstance(key, dict) else None

    def _add_folders(self, name: str, value: msgspec.Raw) -> msgspec.Raw:
        """Returns the row with the columns that the names of the file's folders have."""
        if self._options.folder_columns and self._folders[0] != name:
            self._folders = name, _write_folders(self._shape, self._options.folder_columns, name)
        fields = self._folders[1]
        text = bytes(value) if fields else b""
        return msgspec.Raw(b"{" + fields + text[1:]) if text.startswith(b"{") else value

    def _unwrap(self, value: msgspec.Raw) -> msgspec.Raw:
        """Returns the row in a field of a value, if it is there."""
        if not self._row_field:
            return value
        try:
            fields = _fields(value)
        except UNDECODABLE as error:
            raise RefusedRecordError("NOT_A_RECORD", f"The record has no field with its row: {error}.") from error
        check_beside(fields, self._expected, self._row_field, has_op=self._ops is not None)
        if self._options.row is None:
            return value
        if self._options.row not in fields:
            raise RefusedRecordError("NOT_A_RECORD", f"The record has no field `{self._options.row}` with its row.")
        return fields[self._options.row]

    def _key_of(self, record: Record) -> msgspec.Raw:
        """Returns the key of a tombstone as an object. A single value is the key of one column."""
        if record.key == NULL:
            raise RefusedRecordError("KEY_NULL", "The value is null (a delete), and the record has no key.")
        if not bytes(record.key).startswith(b"{") and len(self._shape.key) == 1:
            return msgspec.Raw(b"{" + msgspec.json.encode(self._shape.key[0]) + b":" + bytes(record.key) + b"}")
        return record.key

    def _rows(self, data: msgspec.Raw) -> PlainRows:
        """Returns the decoder for rows with the column names of this one."""
        if not self._aliased:
            return self._own
        shape = self._shape
        if isinstance(names := decode_plain(data), dict):
            shape = resolve_aliases(shape, names)
        if shape not in self._spelled:
            self._spelled[shape] = self._make_rows(shape, configured=self._shape)
        return self._spelled[shape]

    def _delete(self, at: ReaderPosition, record: Record, row: msgspec.Raw, value: msgspec.Raw) -> None:
        if takes_delete(self._shape):
            self._append(at, record, value, self._change_of(at, DELETE, self._rows(row).key(row)))
        else:
            at.count("ignored")

    def _change_of(self, at: ReaderPosition, op: int, row: Any, absent: list[str] | None = None) -> Change:
        return Change(op, (at.place.partition, at.known_offset), None, row, absent)

    def _append(self, at: ReaderPosition, record: Record, value: msgspec.Raw, change: Change) -> None:
        told = self._follow(at, change, value)
        if told is None:
            at.count("ignored")
            return
        place, time, op, row, absent = at.place, record.time, told.op, told.row, told.absent
        order = self._own.order(row)
        if self._shape.orders_by_file:
            # Without a time in names, the ledger gives the file its order.
            order, time = (*order, place.time or 0), place.time or time
        if refused := late_change(order[0] if order else None, place.horizon):
            raise refused
        at.account.changes += 1
        if op == CLEAR:
            row, at.account.truncates = self._own.nothing(), at.account.truncates + 1
        number, pairs = at.number, self._options.op is not None and self._options.op.pairs
        number -= BEFORE_INSERTS if pairs and op == DELETE else 0
        at.batch.add(op, order, number if place.alone else record.offset, time, row, absent)


def _decoder_of(shape: TableSpec, options: JsonOptions) -> ProfileDecoder | None:
    if options.profile is None:
        return None
    spelled = {column.name: (column.name, *column.aliases) for column in shape.columns}
    key = [*shape.key, *(name for column in shape.key for name in spelled[column][1:])]
    return ProfileDecoder(options.profile, list(spelled), key, options.table)


def _write_folders(shape: TableSpec, names: Sequence[str], path: str) -> bytes:
    """Returns the fields that the names of a file's folders have, as JSON."""
    values, types = read_folders(path), {name: c.type for c in shape.columns for name in (c.name, *c.aliases)}
    fields = []
    for name in (name for name in names if name in values):
        text = values[name]
        is_number = text is not None and types.get(name) in ("int", "long") and re.fullmatch(r"-?\d+", text)
        fields.append(msgspec.json.encode({name: int(text) if is_number and text else text})[1:-1])
    return b"".join(field + b"," for field in fields)
