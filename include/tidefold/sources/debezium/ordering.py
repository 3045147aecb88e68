"""The order of a connector's records, and which of them it sends again (facts: decision 0003)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tidefold.domain.source_progress import StreamPosition
from tidefold.domain.table.table_spec import MARIADB, MONGODB, MYSQL, ORACLE, SQLSERVER
from tidefold.sources.ingest.accounting import Order
from tidefold.sources.records.errors import RefusedRecordError
from tidefold.sources.records.record_types import SourceBlock

_SEQUENCE = re.compile(r'\[(?:null|"(\d{1,19})"),\s?"(\d{1,19})"\]', re.ASCII)
_BINLOG = re.compile(r".*\.(\d{1,18})", re.ASCII)
_LSN = re.compile(r"([0-9a-f]{8}):([0-9a-f]{8}):([0-9a-f]{4})", re.ASCII | re.IGNORECASE)
# How a header names the connector's start that sent a record: as a list of keys and values, or as a mapping.
_RUN = re.compile(rb'"__debezium\.context\.runId"\s*[,:]\s*(?:"value"\s*:\s*)?"([^"]{1,200})"')
_HIGHEST = 2**63 - 1
OrderOf = Callable[[SourceBlock], Order]


def order_of(kind: str) -> OrderOf:
    """Returns the function that computes the order of a record of this kind of log."""
    return _ORDERS[kind] if kind in _ORDERS else PostgresqlOrder()


class PostgresqlOrder:
    """`source.sequence`: the positions of the last commit and of the event.

    The first is null until the connector has seen a commit after a start without stored offsets. Such events come after
    everything before, so the event's own position is used for both. Otherwise a new snapshot would sort below all.
    """

    def __init__(self) -> None:
        self._last: tuple[str | None, Order] = (None, ())

    def __call__(self, source: SourceBlock) -> Order:
        """Returns the order. Raises RefusedRecordError if the sequence is missing or invalid."""
        # Adjacent records often have the same sequence; all rows of an initial snapshot do.
        if source.sequence is None or source.sequence != self._last[0]:
            self._last = (source.sequence, postgresql_order(source.sequence))
        return self._last[1]


def postgresql_order(sequence: str | None) -> Order:
    """Returns the two numbers of a `source.sequence`. Raises RefusedRecordError if it is missing or invalid."""
    found = _SEQUENCE.fullmatch(sequence) if sequence else None
    if found:
        event = int(found[2])
        commit = event if found[1] is None else int(found[1])
        if commit <= _HIGHEST and event <= _HIGHEST:
            return (commit, event)
    raise RefusedRecordError("ORDER_MISSING", f"source.sequence is {str(sequence)[:80]!r}, not two log positions.")


def mysql_order(source: SourceBlock) -> Order:
    """Number of the binlog file, position in it, row of the event. Raises RefusedRecordError."""
    found = _BINLOG.fullmatch(source.file) if source.file else None
    if found is None or source.pos is None:
        said = f"file {str(source.file)[:80]!r}, pos {source.pos}"
        raise RefusedRecordError("ORDER_MISSING", f"source has {said}, which is not a position in the binlog.")
    return (int(found[1]), source.pos, source.row or 0)


def sqlserver_order(source: SourceBlock) -> Order:
    """Position of the commit, position of the change, number of the event there. Raises RefusedRecordError.

    A row of a snapshot has the position of the snapshot alone.
    """
    commit = _lsn(source.commit_lsn, "commit_lsn")
    change = (0, 0) if source.change_lsn is None else _lsn(source.change_lsn, "change_lsn")
    serial = 0 if source.event_serial_no is None else _whole_number(source.event_serial_no, "event_serial_no")
    return (*commit, *change, serial)


def _lsn(text: str | None, name: str) -> Order:
    """A position in the log of SQL Server: ten bytes, as eight and two."""
    found = _LSN.fullmatch(text) if text else None
    high = int(found[1] + found[2], 16) if found else _HIGHEST + 1
    if found is None or high > _HIGHEST:
        raise RefusedRecordError("ORDER_MISSING", f"source.{name} is {str(text)[:80]!r}, not a position in the log.")
    return (high, int(found[3], 16))


def oracle_order(source: SourceBlock) -> Order:
    """The system change number of the commit; of a row of a snapshot that of the snapshot. Raises RefusedRecordError.

    Transactions arrive in the order of their commits. Numbers of single changes go back between them.
    """
    in_snapshot = source.snapshot not in (None, False, "false", "incremental")
    name = "scn" if in_snapshot and source.commit_scn is None else "commit_scn"
    return (_whole_number(source.scn if name == "scn" else source.commit_scn, name),)


def mongodb_order(source: SourceBlock) -> Order:
    """Cluster time in milliseconds, number of the operation in its second. Raises RefusedRecordError."""
    if source.ts_ms is None or not 0 <= (source.ord or 0) <= _HIGHEST:
        said = f"ts_ms {source.ts_ms}, ord {source.ord}"
        raise RefusedRecordError("ORDER_MISSING", f"source has {said}, which is not a position in the oplog.")
    return (source.ts_ms, source.ord or 0)


def _whole_number(value: int | str | None, name: str) -> int:
    text = str(value)
    if not (text.isascii() and text.isdecimal() and int(text) <= _HIGHEST):
        raise RefusedRecordError("ORDER_MISSING", f"source.{name} is {text[:80]!r}, not a whole number.")
    return int(text)


_ORDERS: dict[str, OrderOf] = {
    MYSQL: mysql_order,
    MARIADB: mysql_order,
    SQLSERVER: sqlserver_order,
    ORACLE: oracle_order,
    MONGODB: mongodb_order,
}


@dataclass(slots=True)
class StreamOrder:
    """Follows the order of one partition's records and finds those that the source sends again.

    counting: whether equal records are different changes, so that records of the highest order must be counted.
    max_order, records_at_max, replayed_at_max, max_commit_time, connector_run: as in StreamPosition.
    """

    counting: bool
    max_order: Order
    records_at_max: int
    replayed_at_max: int | None
    max_commit_time: int | None
    connector_run: str = ""

    @property
    def position(self) -> StreamPosition:
        at_max = self.records_at_max, self.replayed_at_max
        return StreamPosition(self.max_order, *at_max, self.max_commit_time, self.connector_run)

    def is_new(self, order: Order, time: int | None, begins: bool, unique: bool = False) -> bool:
        """Whether a record was not sent before; the position then includes it.

        begins: a snapshot begins with it, or the connector was started again before it.
        unique: no other record has its order.

        Raises RefusedRecordError for one that only looks as if it was sent before.
        """
        if order < self.max_order:
            self._check_time(order, time)
            self.replayed_at_max = 0 if self.counting else None
            return False
        if self.counting and ((unique and order == self.max_order) or not self._is_counted_new(order, begins)):
            return False
        self.max_order = order
        if time is not None and (self.max_commit_time is None or time > self.max_commit_time):
            self.max_commit_time = time
        return True

    def is_restarted(self, line: bytes) -> bool:
        """Whether the connector was restarted since the record before, as far as both records show it."""
        found = _RUN.search(line) if self.counting else None
        run = found[1].decode(errors="replace") if found else ""
        last, self.connector_run = self.connector_run, run or self.connector_run
        return bool(run and last and run != last)

    def _is_counted_new(self, order: Order, begins: bool) -> bool:
        if order > self.max_order:
            self.records_at_max, self.replayed_at_max = 1, None
            return True
        if begins:
            self.replayed_at_max = 0
        if self.replayed_at_max is not None:
            self.replayed_at_max += 1
            if self.replayed_at_max <= self.records_at_max:
                return False
        self.records_at_max += 1
        return True

    def _check_time(self, order: Order, time: int | None) -> None:
        """Checks the commit time of a record that seems sent again: such a record cannot be the latest."""
        if time is not None and self.max_commit_time is not None and time > self.max_commit_time:
            raise RefusedRecordError(
                "ORDER_RESTART",
                f"The record's position {order} is below {self.max_order}, but it was committed later than all records "
                "before: the source started its positions again.",
            )
