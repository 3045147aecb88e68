"""The order of a connector's records, also in transaction topics; which it sends again; whose key moved."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tidefold.domain.sets.progress import SourceRecord
from tidefold.domain.source_progress import NO_COMMIT, NO_POSITION, StreamPosition
from tidefold.domain.table.table_spec import MARIADB, MYSQL
from tidefold.sources.debezium import experimental
from tidefold.sources.records.errors import RefusedRecordError
from tidefold.sources.records.record_types import SourceBlock
from tidefold.sources.records.stream_order import OrderPoint, StreamOrder

_SEQUENCE = re.compile(r'\[(?:null|"(\d{1,19})"),\s?"(\d{1,19})"\]', re.ASCII)
# Facts, measured on captures (decision 0048 and 0051):
# PostgreSQL: the id of a record's transaction is `txid:lsn` with the position of the record, the id of an END is
# `txid:lsn` with the position of the commit. The first number of `source.sequence` is the position of the commit
# before.
# MySQL and MariaDB: the id is a GTID, or `file=FILE,pos=POSITION` of its beginning. The same id is in BEGIN, END and
# all records. `source.file` and `source.pos` are the place of each record in the binlog; those of a snapshot's row are
# the place at which the snapshot was read.
_BINLOG = re.compile(r".*\.(\d{1,18})", re.ASCII)
_HIGHEST = 2**63 - 1
OrderOf = Callable[[SourceBlock], OrderPoint]
BINLOG_CONNECTORS = (MYSQL, MARIADB)
STREAMED = frozenset((None, "false", False))
INITIAL = frozenset(("true", "first", "first_in_data_collection", "last_in_data_collection", "last", True))
_SNAPSHOT = (*INITIAL, "incremental")
FIRST = ("first", "first_in_data_collection")
LAST = ("last", "last_in_data_collection")
# From this version on, a connector that was killed in a transaction goes on with its numbers.
_GOES_ON = (3, 6, 1)
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})\.(\d{1,4})\b", re.ASCII)
_BINLOG_NUMBER = re.compile(r".*\.(\d{1,8})", re.ASCII | re.DOTALL)
_FILE_ID = re.compile(r"file=.*\.(\d{1,8}),pos=(\d{1,10})", re.ASCII | re.DOTALL)
_MARIADB_GTID = re.compile(r"(\d{1,10})-\d{1,10}-(\d{1,18})", re.ASCII)
_MYSQL_GTID = re.compile(r"([0-9a-f-]{36}(?::[a-z_][a-z0-9_]{0,31})?):(\d{1,18})", re.ASCII | re.IGNORECASE)
# Positions within a binlog file are lower than this.
_FILE_SIZE = 10**10


def order_of(kind: str) -> OrderOf:
    """Returns the function that computes the order of a record of this kind of log."""
    return _ORDERS.get(kind, lambda source: postgresql_order(source.sequence))


# Adjacent records often have the same sequence; all rows of an initial snapshot do.
@lru_cache(1)
def postgresql_order(sequence: str | None) -> OrderPoint:
    """Returns the positions of the last commit and of the event in `source.sequence`. Raises RefusedRecordError.

    The first is null until the connector has seen a commit after a start without stored offsets. It becomes NO_COMMIT,
    and the place of the record in its partition decides: see StreamOrder.place.
    """
    parts = _SEQUENCE.fullmatch(sequence) if sequence else None
    if parts:
        event = int(parts[2])
        commit = NO_COMMIT if parts[1] is None else int(parts[1])
        if commit <= _HIGHEST and event <= _HIGHEST:
            return (commit, event)
    raise RefusedRecordError("ORDER_MISSING", f"source.sequence is {str(sequence)[:80]!r}, not two log positions.")


def mysql_order(source: SourceBlock) -> OrderPoint:
    """Number of the binlog file, position in it, row of the event. Raises RefusedRecordError."""
    parts = _BINLOG.fullmatch(source.file) if source.file else None
    if parts is None or source.pos is None:
        place = f"file {str(source.file)[:80]!r}, pos {source.pos}"
        raise RefusedRecordError("ORDER_MISSING", f"source has {place}, which is not a position in the binlog.")
    return (int(parts[1]), source.pos, source.row or 0)


_ORDERS: dict[str, OrderOf] = {MYSQL: mysql_order, MARIADB: mysql_order, **experimental.ORDERS}


class TransactionBlock(msgspec.Struct):
    """The `transaction` of a record."""

    id: str = ""
    data_collection_order: int = 0


class PlaceBlock(msgspec.Struct):
    """What the `source` of a record says about its place."""

    sequence: str | None = None
    snapshot: str | bool | None = None
    file: str | None = None
    pos: Annotated[int, Meta(ge=0)] | None = None
    gtid: str | None = None
    version: str | None = None


class ChangeHead(msgspec.Struct):
    """The part of a change that shows its place."""

    op: str | None = None
    source: PlaceBlock | None = None
    transaction: TransactionBlock | None = None


@dataclass(frozen=True, slots=True)
class TransactionId:
    """The id of a transaction, taken apart.

    id: as the records of the transaction have it.
    position: the position of the commit, if the id says it.
    origin: what its rank counts in; ids of two origins have no order. rank: as in TransactionEnd.
    """

    id: str
    position: int | None
    origin: str = ""
    rank: int | None = None


def parse_end_id(text: str, connector: str) -> TransactionId | None:
    """Returns the id of an END, taken apart; None: it is no id of this connector."""
    if connector not in BINLOG_CONNECTORS:
        number, _, position = text.partition(":")
        return TransactionId(number, int(position)) if position.isdecimal() else None
    if parts := _FILE_ID.fullmatch(text):
        return TransactionId(text, None, "the binlog without GTIDs", int(parts[1]) * _FILE_SIZE + int(parts[2]))
    if connector == MARIADB and (parts := _MARIADB_GTID.fullmatch(text)):
        return TransactionId(text, None, f"domain {parts[1]}", int(parts[2]))
    if connector == MYSQL and (parts := _MYSQL_GTID.fullmatch(text)):
        return TransactionId(text, None, f"source {parts[1]}", int(parts[2]))
    return None


class RecordPlaces:
    """Finds the places of one log's records, in offset order, from a position of its partition on."""

    def __init__(self, connector: str, stream: StreamPosition = NO_POSITION) -> None:
        self._stream = StreamOrder(counting=False, **stream._asdict())
        self._is_binlog = connector in BINLOG_CONNECTORS
        # Of the transaction of the record before: its id, and the position before it.
        self._last: tuple[str, int] = ("", -1)
        self._version: tuple[str | None, bool] = (None, True)

    def find(self, change: ChangeHead | None, offset: int) -> SourceRecord:
        """Returns the place of a change. One that cannot be read has none: the count of its transaction stays short."""
        source = change.source if change else None
        position = self._find_position(source, change.op) if change and source else None
        if change is None or source is None or position is None:
            return SourceRecord(offset)
        after, place, is_early = position
        mark, block = source.snapshot, change.transaction
        if block and block.id:
            transaction = block.id if self._is_binlog else block.id.partition(":")[0]
            if self._is_binlog:
                after = self._find_before(transaction, after)
            number, renumbers = block.data_collection_order, self._renumbers(source.version)
            return SourceRecord(offset, transaction, number, after, place=place, renumbers=renumbers, is_early=is_early)
        if mark in _SNAPSHOT:
            # Rows of the initial snapshot have nothing of the stream: no commit before them, and no GTID.
            is_signalled = bool(source.gtid or not (source.sequence or "[null").startswith("[null"))
            is_snapshot, begins, ends = mark in INITIAL, mark in FIRST, mark in LAST
            return SourceRecord(offset, None, 0, after, is_snapshot, is_signalled, begins, ends)
        return SourceRecord(offset, is_untracked=mark in STREAMED and change.op is not None)

    def _find_position(self, source: PlaceBlock, op: str | None) -> tuple[int, int | None, bool] | None:
        """Returns `after` (of a record of a binlog: its position), `place` and `is_early`, as in SourceRecord."""
        if self._is_binlog:
            file = _BINLOG_NUMBER.fullmatch(source.file or "")
            if file is None or source.pos is None or source.pos >= _FILE_SIZE:
                return None
            position = int(file[1]) * _FILE_SIZE + source.pos
            return position, position, False
        stream = self._stream
        try:
            said, last, is_row = postgresql_order(source.sequence), stream.early[1:2], op == "r"
            order = stream.place(said, is_row and source.snapshot in INITIAL, is_row)
        except RefusedRecordError:
            return None
        stream.max_order = max(stream.max_order, order)
        return order[0], None, said[:1] != order[:1] and said[1:] > last

    def _find_before(self, transaction: str, position: int) -> int:
        """Returns a position before the transaction of a record. A binlog has no other transaction in it."""
        if self._last[0] != transaction:
            self._last = (transaction, position - 1)
        return self._last[1]

    def _renumbers(self, version: str | None) -> bool:
        if self._version[0] != version:
            match = _VERSION.match(version or "")
            self._version = (version, not match or tuple(map(int, match.groups())) < _GOES_ON)
        return self._version[1]


def former_key(headers: object) -> Any:
    """Returns the content of the header `__debezium.oldkey`, however headers are written; None: there is none."""
    if isinstance(headers, list):
        pairs = {one.get("key"): one.get("value") for one in headers if isinstance(one, dict)}
    else:
        pairs = headers if isinstance(headers, dict) else {}
    value = pairs.get("__debezium.oldkey")
    if isinstance(value, str):
        value = _decode(value)
    return value["payload"] if isinstance(value, dict) and isinstance(value.get("payload"), dict) else value


def _decode(text: str) -> Any:
    for plain in (lambda: text, lambda: base64.b64decode(text, validate=True)):
        try:
            return json.loads(plain())
        except ValueError:
            continue
    return None
