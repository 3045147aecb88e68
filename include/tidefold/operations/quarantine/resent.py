"""Decides whether the source sent refused records before. Only for records of older versions, which have no order.

In a log that counts every record, a record without proof stays in quarantine, so that it is not counted twice.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tidefold.changelog.schema import CLEAR, order_columns
from tidefold.changelog.segment import read_change_set
from tidefold.domain.ingest.quarantine_retry import high_before, since
from tidefold.domain.log_state import LogState, TableSpec
from tidefold.domain.source_progress import LandedFileRecord
from tidefold.domain.table.table_spec import MARIADB, MONGODB, MYSQL, ORACLE, POSTGRESQL, SQLSERVER
from tidefold.operations.ingest.schema_update import aligner_to_newest
from tidefold.sources.ingest.accounting import COUNTING
from tidefold.sources.quarantine.reparse import Refused
from tidefold.storage import Store

Row = dict[str, Any]
Order = tuple[int, ...]
# With these orders, a source that restarts sends earlier records again.
_GOES_BACK = (POSTGRESQL, MYSQL, MARIADB, SQLSERVER, ORACLE, MONGODB)
_PLACE = ("_partition", "_offset", "_ts", "_kg")


class ResentProof:
    """Judges the records of one partition in the order of arrival."""

    def __init__(self, store: Store, state: LogState) -> None:
        self._store, self._state = store, state
        self._counts = state.shape.merge.engine in COUNTING
        self._former: list[tuple[Order, str]] = []

    def judge(self, row: Row, one: Refused) -> str | None:
        """Returns `repeated`: it was sent before; `unproved`: that cannot be decided; None: it is new."""
        if one.entry.order is not None or self._state.shape.order not in _GOES_BACK:
            return None
        order, before = order_of_row(row, self._state.shape), high_before(self._state, one.landed)
        if order < before:
            return "repeated"
        return self._judge_counted(row, order, before, one.landed) if self._counts else None

    def _judge_counted(self, row: Row, order: Order, before: Order, landed: LandedFileRecord) -> str | None:
        """Judges a record of a log that counts every record.

        Only their number distinguishes rows with the same order. A record is new if its order is higher than all
        before, or if its content is new and the source has not sent anything again so far.
        """
        taken = self._read_taken(landed, row["_offset"])
        reached = max([before, *(at for at, _ in (*taken, *self._former))], default=())
        if order < reached:
            return "repeated"
        content = _content(row)
        same = Counter((*taken, *self._former))[order, content]
        self._former.append((order, content))
        if order > reached or (order > before and not same and not self._was_resent(landed)):
            return None
        return "unproved"

    def _read_taken(self, landed: LandedFileRecord, offset: int) -> list[tuple[Order, str]]:
        """Returns orders and contents of the partition's changes before an offset, since the file landed."""
        found, shape = [], self._state.shape
        for change_set in self._state.change_sets:
            if change_set.sqn >= since(self._state, landed):
                read = read_change_set(self._store, change_set)
                for row in aligner_to_newest(self._state).changes(read, change_set.schema).to_pylist():
                    if row["_partition"] == landed.partition and row["_offset"] < offset and row["_op"] != CLEAR:
                        found.append((order_of_row(row, shape), _content(row)))
        return found

    def _was_resent(self, landed: LandedFileRecord) -> bool:
        """Whether the source had gone back before the end of this file."""
        place = (landed.topic, landed.partition)
        return any(
            e.repeated or e.resent for e in self._state.landed[: landed.number] if (e.topic, e.partition) == place
        )


def order_of_row(row: Row, shape: TableSpec) -> Order:
    """Returns the order of a change."""
    return tuple(row[name] for name in order_columns(shape))


def _content(row: Row) -> str:
    return repr({name: value for name, value in row.items() if name not in _PLACE})
