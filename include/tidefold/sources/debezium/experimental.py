"""What only the experimental connectors need: orders of SQL Server, Oracle and MongoDB, and documents of MongoDB."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from tidefold.domain.log_state import TableSpec
from tidefold.domain.table.table_spec import MONGODB, ORACLE, SQLSERVER
from tidefold.sources.records.errors import RefusedRecordError
from tidefold.sources.records.extended_json import BROKEN, plain_value
from tidefold.sources.records.record_types import SourceBlock
from tidefold.sources.records.stream_order import OrderPoint

KEY, DOCUMENT = "id", "document"
_LSN = re.compile(r"([0-9a-f]{8}):([0-9a-f]{8}):([0-9a-f]{4})", re.ASCII | re.IGNORECASE)
_HIGHEST = 2**63 - 1


def with_row(line: bytes, shape: TableSpec) -> bytes:
    """Returns a record of MongoDB with its document as a row. A line that is no such record stays as it is.

    The connector writes a document as a text of extended JSON. Its `_id` becomes the column `id`, its other fields the
    columns of the same name, all of it the column `document`.
    """
    try:
        record = msgspec.json.decode(line)
        if not isinstance(record, dict):
            return line
        whole = "value" in record
        value, key = _payload(record.get("value") if whole else record), _payload(record.get("key"))
        if isinstance(value, dict):
            value = {**value, "before": None, "after": _row_of(value.get("after"), shape)}
        if isinstance(key, dict) and isinstance(key.get(KEY), str):
            key = {KEY: plain_value(json.loads(key[KEY]))}
        changed = {**record, "value": value, "key": key} if whole else value
        return msgspec.json.encode(changed)
    except (msgspec.DecodeError, *BROKEN):
        return line


def _payload(part: Any) -> Any:
    """A value or key without the schema around it: the schema of a document is that of a text."""
    return part["payload"] if isinstance(part, dict) and set(part) == {"schema", "payload"} else part


def _row_of(after: Any, shape: TableSpec) -> Any:
    if not isinstance(after, str):
        return after
    document = json.loads(after)
    if not isinstance(document, dict):
        return after
    row: dict[str, Any] = {column.name: None for column in shape.columns}
    fields = {KEY if name == "_id" else name: plain_value(value) for name, value in document.items()}
    if DOCUMENT in row:
        # The whole document has what has no column of its own.
        fields = {name: value for name, value in fields.items() if name in row} | {DOCUMENT: after}
    return row | fields


def sqlserver_order(source: SourceBlock) -> OrderPoint:
    """Position of the commit, position of the change, number of the event there. Raises RefusedRecordError.

    A row of a snapshot has the position of the snapshot alone.
    """
    commit = _lsn(source.commit_lsn, "commit_lsn")
    change = (0, 0) if source.change_lsn is None else _lsn(source.change_lsn, "change_lsn")
    serial = 0 if source.event_serial_no is None else _whole_number(source.event_serial_no, "event_serial_no")
    return (*commit, *change, serial)


def _lsn(text: str | None, name: str) -> OrderPoint:
    """A position in the log of SQL Server: ten bytes, as eight and two."""
    parts = _LSN.fullmatch(text) if text else None
    high = int(parts[1] + parts[2], 16) if parts else _HIGHEST + 1
    if parts is None or high > _HIGHEST:
        raise RefusedRecordError("ORDER_MISSING", f"source.{name} is {str(text)[:80]!r}, not a position in the log.")
    return (high, int(parts[3], 16))


def oracle_order(source: SourceBlock) -> OrderPoint:
    """The system change number of the commit; of a row of a snapshot that of the snapshot. Raises RefusedRecordError.

    Transactions arrive in the order of their commits. Numbers of single changes go back between them.
    """
    in_snapshot = source.snapshot not in (None, False, "false", "incremental")
    name = "scn" if in_snapshot and source.commit_scn is None else "commit_scn"
    return (_whole_number(source.scn if name == "scn" else source.commit_scn, name),)


def mongodb_order(source: SourceBlock) -> OrderPoint:
    """Cluster time in milliseconds, number of the operation in its second. Raises RefusedRecordError."""
    if source.ts_ms is None or not 0 <= (source.ord or 0) <= _HIGHEST:
        place = f"ts_ms {source.ts_ms}, ord {source.ord}"
        raise RefusedRecordError("ORDER_MISSING", f"source has {place}, which is not a position in the oplog.")
    return (source.ts_ms, source.ord or 0)


def _whole_number(value: int | str | None, name: str) -> int:
    text = str(value)
    if not (text.isascii() and text.isdecimal() and int(text) <= _HIGHEST):
        raise RefusedRecordError("ORDER_MISSING", f"source.{name} is {text[:80]!r}, not a whole number.")
    return int(text)


# The functions that compute the order of a record.
ORDERS = {SQLSERVER: sqlserver_order, ORACLE: oracle_order, MONGODB: mongodb_order}
