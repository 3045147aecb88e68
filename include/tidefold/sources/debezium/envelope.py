"""Reads the lines of one landed file of Debezium records, in order, into a batch of changes (facts: decision 0003).

docs/debezium.md lists how each kind of record is handled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from tidefold.changelog.schema import CLEAR, DELETE, MERGE, UPSERT
from tidefold.domain.log_state import TableSpec
from tidefold.domain.table.table_spec import MARIADB, MONGODB, ORACLE, SQLSERVER, Engine
from tidefold.sources.debezium.connect_schema import column_names, forms_of, schema_beside, types_by
from tidefold.sources.debezium.mongodb import with_row
from tidefold.sources.debezium.moved_keys import former_key
from tidefold.sources.debezium.ordering import StreamOrder, order_of
from tidefold.sources.ingest.accounting import COUNTING, Account, FilePosition, Order, RecordAccounting
from tidefold.sources.records import record_types
from tidefold.sources.records.column_aliases import has_aliases, resolve_aliases
from tidefold.sources.records.errors import (
    RefusedRecordError,
    any_head_of,
    find_source,
    is_ignored,
    is_tombstone,
    names_in,
    not_sent,
    refusal_of,
    unknown_op,
)
from tidefold.sources.records.record_types import AnyHead, SourceBlock
from tidefold.sources.records.row_decoder import Rows, rows_of
from tidefold.sources.records.unavailable_values import marks

# The marks of an initial snapshot's rows; those of an incremental one are ordinary changes.
_INITIAL = frozenset(("true", "first", "first_in_data_collection", "last_in_data_collection", "last", True))
_STREAMED = frozenset((None, "false", False))
_BEGINS = frozenset(("first", "first_in_data_collection"))
_BY_FORMAT = (SQLSERVER, ORACLE, MONGODB)
# Topics with messages of the connector itself.
_OWN_TOPIC = re.compile(r"__debezium-heartbeat\..*|.*\.transaction")
# Reasons of refused records whose order is unknown, or was checked already.
_OF_ITS_ORDER = frozenset(("ORDER_MISSING", "ORDER_RESTART"))
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class EnvelopeReader(RecordAccounting):
    """Reads the lines of one file in order."""

    def __init__(self, shape: TableSpec, place: FilePosition, schema: Mapping[str, Any] | None = None) -> None:
        """`schema`: of records without a schema of their own; None: as configured.

        Raises RefusedRecordError if a column does not fit the schema.
        """
        super().__init__(place)
        self._shape = shape
        self._marks = marks(shape)
        self._searched = False
        self._schema = schema
        self._names = resolve_aliases(shape, column_names(schema)) if schema else shape
        self._forms = tuple(forms_of(schema, self._names) if schema else record_types.usual_forms(shape))
        self._rows = rows_of(self._names, self._forms, shape)
        self._spells_keys = has_aliases(shape, of_key=True)
        self._by_schema: dict[bytes, Rows] = {}
        self._order_of = order_of(shape.order)
        self._has_documents = shape.order == MONGODB
        # The current record, as it was landed.
        self._text = b""
        engine = shape.merge.engine
        self._stream = StreamOrder(counting=engine in COUNTING, **place.stream._asdict())
        self._upsert_op = MERGE if engine is Engine.AGGREGATE else UPSERT
        # Whether the offset of the current record is new.
        self._has_place = False
        # The order of the delete right before the current record.
        self._deleted: Order | None = None

    @property
    def account(self) -> Account:
        self._account.stream = self._stream.position
        return self._account

    def preview_chunk(self, data: bytes) -> None:
        """Lines are searched for placeholders only if their chunk contains one."""
        self._searched = any(mark in data for mark in self._marks)

    def take(self, line: bytes) -> None:
        """Reads a line that is not blank.

        Raises RefusedRecordError (the caller quarantines it) or LateOffsetError (the file is not taken).
        """
        self._has_place = False
        self._text = line
        text = self.to_debezium(line)
        try:
            self._take(text)
        except RefusedRecordError as refused:
            if not self._is_sent_again(text, refused):
                raise
            self._account.resent += 1

    def to_debezium(self, line: bytes) -> bytes:
        """The line as a record of Debezium's JSON with rows. Raises RefusedRecordError."""
        return with_row(line, self._shape) if self._has_documents else line

    def _is_sent_again(self, line: bytes, refused: RefusedRecordError) -> bool:
        """Whether a refused record was sent before, by its order. If not, the position includes it (I32).

        Raises RefusedRecordError for one that only looks as if it was sent before.
        """
        if self.is_alone or not self._has_place or refused.reason in _OF_ITS_ORDER:
            return False
        op, source = find_source(line)
        if source is None:
            return False
        try:
            order = self._order_of(source)
        except RefusedRecordError:
            return False
        if not self._advances(order, source, op):
            return True
        refused.order = order
        if self._account.refused_low is None:
            self._account.refused_low = order
        return False

    def _take(self, line: bytes) -> None:
        if self._spells_keys:
            self._spell(line)
        rows, self.line = self._rows, self._text
        try:
            record = rows.record(line)
            value, key = record.value, record.key
            if value is msgspec.UNSET:
                value = record  # The value alone, or nothing that is known.
            if value is not None and value.payload != record_types.NOTHING:
                rows = self._rows_by(value.schema)
                value = rows.envelope(value.payload)
            if key is not None and getattr(key, "payload", record_types.NOTHING) != record_types.NOTHING:
                key = rows.key(key.payload)
        except _UNDECODABLE as error:
            self._take_odd(line, str(error))
            return
        except RefusedRecordError:
            if self._is_new(record):
                raise
            return
        if value is not None and value.op is None:
            self._take_odd(line, "The value has no op")
        elif self._is_new(record):
            self._take_value(rows, record, value, key)

    def _take_value(self, rows: Rows, record: Any, value: Any, key: Any) -> None:
        if value is None:
            self._account.tombstones += 1
        elif value.op in ("u", "c", "r"):
            self._upsert(rows, record, value, key)
        elif value.op == "d":
            if self.takes_delete(self._shape):
                self._keep(DELETE, value, rows.of_key(key, value.before))
        elif value.op == "t":
            self._keep(CLEAR, value, rows.nothing())
        elif value.op == "m":
            self._account.ignored += 1
        else:
            raise unknown_op(value.op)

    def _spell(self, line: bytes) -> bool:
        """Adapts to the column names of a line. Returns whether they differ from those of the line before."""
        if not has_aliases(self._shape):
            return False
        names = resolve_aliases(self._shape, names_in(line))
        if names == self._names:
            return False
        self._rows, self._names = rows_of(names, self._forms, self._shape), names
        return True

    def _rows_by(self, schema: Any) -> Rows:
        """The decoder of rows with this schema beside them; there are few schemas."""
        text = bytes(schema)
        found = self._by_schema.get(text)
        if found is None:
            schema = msgspec.json.decode(text) if text else None
            shape = resolve_aliases(self._shape, column_names(schema))
            found = rows_of(shape, forms_of(schema, shape), self._shape)
            self._by_schema[text] = found
        return found

    def _take_odd(self, line: bytes, why: str) -> None:
        if self._spell(line):
            self._take(line)
            return
        head = any_head_of(line)
        if head.topic != self._place.topic and head.topic is not None and _OWN_TOPIC.fullmatch(head.topic):
            self._account.ignored += 1
        elif self._is_new(head):
            if is_tombstone(head):
                self._account.tombstones += 1
            elif is_ignored(head):
                self._account.ignored += 1
            else:
                raise refusal_of(head, self._names, why, types_by(self._schema or schema_beside(head.value)))

    def _is_new(self, record: Any | AnyHead) -> bool:
        place = self._place
        topic = place.topic if record.topic is None else record.topic
        partition = place.partition if record.partition is None else record.partition
        self._has_place = self.is_new(topic, partition, self.own_offset(record.offset))
        return self._has_place

    def _upsert(self, rows: Rows, record: Any, value: Any, key: Any) -> None:
        row = value.after
        if row is None:
            raise RefusedRecordError("AFTER_MISSING", "An insert or update has no `after`.")
        absent = former = None
        if self._searched:
            absent = rows.without_unavailable(row)
            if absent and value.op != "u":
                former = self._former_key(rows, record, value, absent)
        rows.check_key(row, key)
        if value.op == "u":
            if not self._shape.key:
                raise RefusedRecordError(
                    "KEYLESS_CHANGE", f"op {value.op!r} changes an existing row, which a log without a key cannot find."
                )
            rows.check_key(row, value.before)
        row = rows.convert(row)
        if former is not None and value.source is not None:
            self.batch.add(DELETE, self._order_of(value.source), self._known_offset, value.source.committed, former)
        self._keep(self._upsert_op, value, row, absent)

    def _former_key(self, rows: Rows, record: Any, value: Any, absent: list[str]) -> Any:
        """For a record that is read alone: the row under its old key, empty if the record does not name the key.

        The row becomes a delete before the change, by which the values are looked up. Raises RefusedRecordError for
        every other record.
        """
        headers = bytes(record.headers)
        if not (self.is_alone and value.op == "c" and self._shape.merge.engine is Engine.LAST):
            order = self._order_of(value.source) if value.source else None
            # All changes of a transaction of Oracle have one order, so the delete may be that of another row.
            is_beside = order is not None and order == self._deleted and self._shape.order != ORACLE
            raise not_sent(absent, moved=b'"__debezium.oldkey"' in headers or is_beside)
        named = former_key(msgspec.json.decode(headers)) if headers else None
        try:
            return rows.of_key(rows.key(msgspec.Raw(msgspec.json.encode(named))), None) if named else rows.nothing()
        except (*_UNDECODABLE, RefusedRecordError):
            return rows.nothing()

    def _keep(self, op: int, value: Any, row: Any, absent: list[str] | None = None) -> None:
        source: SourceBlock | None = value.source
        if source is None:
            raise RefusedRecordError("ORDER_MISSING", "The record has no source block.")
        account, order = self._account, self._order_of(source)
        if not (self.is_alone or self._advances(order, source, value.op)):
            account.resent += 1
            return
        self._deleted = order if op == DELETE else None
        if account.low is None:
            account.low = order
        if op == CLEAR:
            account.cleared = max(order, account.cleared)
        account.truncates += op == CLEAR
        account.changes += 1
        self.batch.add(op, order, self._known_offset, source.committed, row, absent)

    @property
    def _known_offset(self) -> int:
        return self.offset if self.offset is not None else -1

    def _advances(self, order: Order, source: SourceBlock, op: str | None) -> bool:
        """Whether a record was not sent before. A clear precedes the first row of a new snapshot, even a refused one.

        Raises RefusedRecordError.
        """
        # Only `r` is a row of a snapshot. Connectors (PostgreSQL 3.6.1, MariaDB 3.5.0) that are killed during or soon
        # after a snapshot mark the changes after their restart as rows of an initial one.
        mark = source.snapshot if op == "r" else None
        begins_snapshot = False
        if mark in _INITIAL:
            # All rows of an initial snapshot have one order, the highest so far. They replace what the log had before.
            self._account.snapshot = order
            high = self._stream.max_order
            # Only for connectors whose snapshots were captured in tests: all rows of a snapshot have one order.
            may_begin = self._shape.order not in _BY_FORMAT or mark in _BEGINS
            begins_snapshot = bool(high) and order > high and may_begin
        restarted = self._stream.is_restarted(self._text) and mark != "incremental"
        begins = restarted or mark in _BEGINS
        unique = self._shape.order == MARIADB and mark in _STREAMED
        is_new = self._stream.is_new(order, source.committed, begins, unique)
        if is_new and begins_snapshot:
            # The clear is part of the row's record and does not count as a change.
            self.batch.add(CLEAR, order, self._known_offset, source.committed, self._rows.nothing())
            self._account.cleared = max(order, self._account.cleared)
        return is_new
