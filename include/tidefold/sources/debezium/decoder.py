"""Decodes the lines of Debezium's records, with or without a schema beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from tidefold.domain.log_state import TableSpec
from tidefold.sources.debezium.connect_schema import column_names, columns_by, forms_of, schema_beside
from tidefold.sources.records import errors, record_types
from tidefold.sources.records.accounting import FilePosition
from tidefold.sources.records.errors import UNDECODABLE
from tidefold.sources.records.record_types import has_aliases, resolve_aliases
from tidefold.sources.records.row_decoder import Rows, rows_of
from tidefold.sources.records.unavailable_values import placeholder_of

# Topics with messages of the connector itself.
_OWN_TOPIC = re.compile(r"__debezium-heartbeat\..*|.*\.transaction")


class DecodedRecord(msgspec.Struct, gc=False):
    """A record of Debezium, decoded.

    place: topic, partition and offset of the record; None: it is a message of the connector in a topic of its own.
    rows: the decoder of its rows.
    value, key, headers: of a change. A value that is None is a tombstone.
    outcome: why it is no change: the name of its count, or its refusal; None: its value decides.
    """

    place: Any
    rows: Rows
    value: Any = None
    key: Any = None
    headers: bytes | msgspec.Raw = b""
    outcome: str | errors.RefusedRecordError | None = None


class EnvelopeDecoder:
    """Decodes the lines of one log. It keeps the column names of the line before: most lines have the same."""

    def __init__(self, shape: TableSpec, schema: Mapping[str, Any] | None = None) -> None:
        """`schema`: of records without a schema of their own; None: as configured.

        Raises RefusedRecordError if a column does not fit the schema.
        """
        self.shape = shape
        self._schema = schema
        self._names = resolve_aliases(shape, column_names(schema)) if schema else shape
        self._forms = tuple(forms_of(schema, self._names) if schema else record_types.usual_forms(shape))
        self.rows = rows_of(self._names, self._forms, shape)
        self._spells_keys = has_aliases(shape, of_key=True)
        self._by_schema: dict[bytes, Rows] = {}

    def decode(self, line: bytes, place: FilePosition) -> DecodedRecord:
        """Raises RefusedRecordError if not even the place of the record can be read."""
        if self._spells_keys:
            self._spell(line)
        rows = self.rows
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
        except UNDECODABLE as error:
            return self._decode_odd(line, place, str(error))
        except errors.RefusedRecordError as refused:
            return DecodedRecord(record, rows, outcome=refused)
        if value is not None and value.op is None:
            return self._decode_odd(line, place, "The value has no op")
        return DecodedRecord(record, rows, value, key, record.headers)

    def _decode_odd(self, line: bytes, place: FilePosition, why: str) -> DecodedRecord:
        """A record that the strict decoder does not accept, or whose names differ from those of the line before."""
        if self._spell(line):
            return self.decode(line, place)
        head = errors.any_head_of(line)
        if head.topic != place.topic and head.topic is not None and _OWN_TOPIC.fullmatch(head.topic):
            return DecodedRecord(None, self.rows, outcome="ignored")
        if errors.is_tombstone(head):
            return DecodedRecord(head, self.rows)
        if errors.is_ignored(head):
            return DecodedRecord(head, self.rows, outcome="ignored")
        told = columns_by(self._schema or schema_beside(head.value))
        refused = errors.refusal_of(head, self._names, why, told, placeholder_of(place.placeholder))
        return DecodedRecord(head, self.rows, outcome=refused)

    def spell(self, line: bytes) -> Rows:
        """Returns the decoder with the column names of a line."""
        self._spell(line)
        return self.rows

    def _spell(self, line: bytes) -> bool:
        """Adapts to the column names of a line. Returns whether they differ from those of the line before."""
        if not has_aliases(self.shape):
            return False
        names = resolve_aliases(self.shape, errors.names_in(line))
        if names == self._names:
            return False
        self.rows, self._names = rows_of(names, self._forms, self.shape), names
        return True

    def _rows_by(self, schema: Any) -> Rows:
        """The decoder of rows with this schema beside them; there are few schemas."""
        text = bytes(schema)
        rows = self._by_schema.get(text)
        if rows is None:
            schema = msgspec.json.decode(text) if text else None
            shape = resolve_aliases(self.shape, column_names(schema))
            rows = self._by_schema[text] = rows_of(shape, forms_of(schema, shape), self.shape)
        return rows
