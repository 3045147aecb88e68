"""The order of one partition's records, and which of them the source sent again."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidefold.domain.source_progress import NO_COMMIT, SIGNALLED, StreamPosition, is_no_commit
from tidefold.sources.records.errors import RefusedRecordError
from tidefold.sources.records.record_types import SourceBlock

OrderPoint = tuple[int, ...]
_HIGHEST = 2**63 - 1
# How a header names the connector's start that sent a record: as a list of keys and values, or as a mapping.
_RUN = re.compile(rb'"__debezium\.context\.runId"\s*[,:]\s*(?:"value"\s*:\s*)?"([^"]{1,200})"')


@dataclass(slots=True)
class StreamOrder:
    """Follows the order of one partition's records and finds those that the source sends again.

    counting: whether equal records are different changes, so that records of the highest order must be counted.
    The other fields: as in StreamPosition.
    """

    counting: bool
    max_order: OrderPoint
    records_at_max: int
    replayed_at_max: int | None
    max_commit_time: int | None
    connector_run: str = ""
    columns: tuple[str, ...] = ()
    signalled: tuple[OrderPoint, ...] = ()
    begun: OrderPoint = ()
    ended: OrderPoint = ()
    early: OrderPoint = ()
    replaced: int = 0
    since: int = 0

    @property
    def position(self) -> StreamPosition:
        return StreamPosition(**{name: getattr(self, name) for name in StreamPosition._fields})

    def place(self, order: OrderPoint, is_initial: bool, is_row: bool) -> OrderPoint:
        """Returns the order of a record of PostgreSQL at its place, and remembers what later ones need: decision 0068.

        order: the commit and the event as the record says them. is_initial, is_row: of an initial, of any snapshot.
        Raises RefusedRecordError for an event that was not sent before and has no place among those that were.
        """
        commit, event = order
        early, high = self.early, self.max_order
        # Nearly all records: the commit is that of the record before, or behind it, and no first transaction is open.
        # `is_no_commit` would say so, too; without these lines a record costs 6 to 8 % more.
        is_plain = high and (commit == high[0] or commit >= high[1]) and high[0] not in early
        if is_plain and (not early or early[2:] > (0,)):
            return order
        if event < self.since:
            return max(commit, 0), event
        base, last, *more = early or (NO_COMMIT, NO_COMMIT)
        if not is_no_commit(commit, early, high):
            if self.early and more in ([], [0]):
                self.early = *self.early, commit
            return order
        in_first = more == [] and self.max_order[:1] == (base,)
        # Rows of a snapshot by signal are where the last event was.
        by_signal = in_first and 0 < last <= event < base
        begins = is_row and (last == NO_COMMIT or (event == base and more[:1] != [0]))
        if commit == NO_COMMIT and (begins or (is_initial and not by_signal)):
            order = event, 0
        elif self.early and more[:1] != [0] and (in_first or event <= last):
            order = base, event
        elif commit == NO_COMMIT or (more == [0] and self.max_order[0] == last):
            if NO_COMMIT < last < event and (event, event) < self.max_order:
                raise self._build_restart((event, event), "it was not sent before")
            if event > last:
                self.early = base if more == [0] else event, event, 0
            return event, event
        else:
            return self.max_order[0], event
        self.early = max(self.early, order)
        return order

    def see_snapshot(self, order: OrderPoint, source: SourceBlock) -> None:
        """Remembers a snapshot that a signal asked for. A connector that begins has seen no commit."""
        is_signalled = source.sequence is not None and not source.sequence.startswith("[null")
        if is_signalled and all(one[:-1] != order for one in self.signalled):
            read = _HIGHEST if source.committed is None else source.committed
            self.signalled = (*self.signalled, (*order, read))[-SIGNALLED:]

    def see_mark(self, order: OrderPoint, begins: bool, ends: bool, has_next: bool) -> None:
        """Remembers whether a snapshot of the source began and ended.

        has_next: the row is not the first one of all tables, which has no other mark if its table has one row.
        """
        if ends:
            self.ended = max(self.ended, order)
        elif begins or self.begun[:-1] == order:
            self.begun = max(self.begun, (*order, 2 if has_next else 1))

    def is_new(self, order: OrderPoint, time: int | None, begins: bool, unique: bool = False) -> bool:
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
        header = _RUN.search(line)
        run = header[1].decode(errors="replace") if header else ""
        last, self.connector_run = self.connector_run, run or self.connector_run
        return bool(run and last and run != last)

    def _is_counted_new(self, order: OrderPoint, begins: bool) -> bool:
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

    def _check_time(self, order: OrderPoint, time: int | None) -> None:
        """Checks the commit time of a record that seems sent again: such a record cannot be the latest."""
        if time is not None and self.max_commit_time is not None and time > self.max_commit_time:
            raise self._build_restart(order, "it was committed later than all records before")

    def _build_restart(self, order: OrderPoint, why: str) -> RefusedRecordError:
        return RefusedRecordError("ORDER_RESTART", f"Its position {order} is below {self.max_order}, but {why}.")
