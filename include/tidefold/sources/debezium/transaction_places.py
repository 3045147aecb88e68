"""Where the records and transactions of a connector stand in the source's log. Pure.

Facts, measured on captures (decision 0048 and 0051):
PostgreSQL: the id of a record's transaction is `txid:lsn` with the position of the record, the id of an END is
`txid:lsn` with the position of the commit. The first number of `source.sequence` is the position of the commit before.
MySQL and MariaDB: the id is a GTID, or `file=FILE,pos=POSITION` of its beginning. The same id is in BEGIN, END and all
records. `source.file` and `source.pos` are the place of each record in the binlog; those of a snapshot's row are the
place at which the snapshot was read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from tidefold.domain.sets.progress import SourceRecord
from tidefold.domain.table.table_spec import MARIADB, MYSQL
from tidefold.sources.debezium.ordering import postgresql_order
from tidefold.sources.records.errors import RefusedRecordError

BINLOG_CONNECTORS = (MYSQL, MARIADB)
_STREAMED = (None, "false", False)
_INITIAL = ("true", "first", "first_in_data_collection", "last_in_data_collection", "last", True)
_FIRST = ("first", "first_in_data_collection")
_LAST = ("last", "last_in_data_collection")
# From this version on, a connector that was killed in a transaction goes on with its numbers.
_GOES_ON = (3, 6, 1)
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})\.(\d{1,4})\b", re.ASCII)
_BINLOG = re.compile(r".*\.(\d{1,8})", re.ASCII | re.DOTALL)
_FILE_ID = re.compile(r"file=.*\.(\d{1,8}),pos=(\d{1,10})", re.ASCII | re.DOTALL)
_MARIADB_GTID = re.compile(r"(\d{1,10})-\d{1,10}-(\d{1,18})", re.ASCII)
_MYSQL_GTID = re.compile(r"([0-9a-f-]{36}(?::[a-z_][a-z0-9_]{0,31})?):(\d{1,18})", re.ASCII | re.IGNORECASE)
# Positions within a binlog file are lower than this.
_FILE_SIZE = 10**10


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
    if found := _FILE_ID.fullmatch(text):
        return TransactionId(text, None, "the binlog without GTIDs", int(found[1]) * _FILE_SIZE + int(found[2]))
    if connector == MARIADB and (found := _MARIADB_GTID.fullmatch(text)):
        return TransactionId(text, None, f"domain {found[1]}", int(found[2]))
    if connector == MYSQL and (found := _MYSQL_GTID.fullmatch(text)):
        return TransactionId(text, None, f"source {found[1]}", int(found[2]))
    return None


class RecordPlaces:
    """Finds the places of one log's records, in offset order."""

    def __init__(self, connector: str) -> None:
        self._is_binlog = connector in BINLOG_CONNECTORS
        # Of the transaction of the record before: its id, and the position before it.
        self._last: tuple[str, int] = ("", -1)
        self._version: tuple[str | None, bool] = (None, True)

    def find(self, change: ChangeHead | None, offset: int) -> SourceRecord:
        """Returns the place of a change. One that cannot be read has none: the count of its transaction stays short."""
        source = change.source if change else None
        position = self._find_position(source) if source else None
        if change is None or source is None or position is None:
            return SourceRecord(offset)
        after, place = position
        mark, block = source.snapshot, change.transaction
        if block and block.id:
            transaction = block.id if self._is_binlog else block.id.partition(":")[0]
            if self._is_binlog:
                after = self._find_before(transaction, after)
            return SourceRecord(
                offset,
                transaction,
                block.data_collection_order,
                after,
                place=place,
                renumbers=self._renumbers(source.version),
            )
        if mark in _INITIAL:
            return SourceRecord(offset, None, 0, after, is_snapshot=True, begins=mark in _FIRST, ends=mark in _LAST)
        return SourceRecord(offset, is_untracked=mark in _STREAMED and change.op is not None)

    def _find_position(self, source: PlaceBlock) -> tuple[int, int | None] | None:
        """Returns the position of the commit before (of a binlog: of the record) and the place of the record."""
        if self._is_binlog:
            file = _BINLOG.fullmatch(source.file or "")
            if file is None or source.pos is None or source.pos >= _FILE_SIZE:
                return None
            position = int(file[1]) * _FILE_SIZE + source.pos
            return position, position
        try:
            return postgresql_order(source.sequence)[0], None
        except RefusedRecordError:
            return None

    def _find_before(self, transaction: str, position: int) -> int:
        """Returns a position before the transaction of a record. A binlog has no other transaction in it."""
        if self._last[0] != transaction:
            self._last = (transaction, position - 1)
        return self._last[1]

    def _renumbers(self, version: str | None) -> bool:
        if self._version[0] != version:
            found = _VERSION.match(version or "")
            self._version = (version, not found or tuple(map(int, found.groups())) < _GOES_ON)
        return self._version[1]
