"""The first start of a connector, while transactions are open: what they change is in no snapshot, and comes after it.

PostgreSQL makes a slot in steps: it waits for the transactions that were open at its start, then for those that were
open when these had ended. From the second wait on it decodes all changes, so those of a transaction that begins in it
lie before the position of the slot, and are sent if they are committed after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from torture.capture import Capture, CaptureError
from torture.plan import Plan
from torture.servers import Server, Session
from torture.workload import Workload


class Beginning:
    """Starts the capture of a seed for the first time, as its plan says."""

    def __init__(self, plan: Plan, server: Server, work: Workload, capture: Capture, slot: str) -> None:
        self.plan, self.server, self.work, self.capture = plan, server, work, capture
        self._slot = slot

    def start(self) -> None:
        kill = self.work.rnd.randint(3, 25) if self.plan.overlap == "killed" else 0
        if self.plan.overlap and self.server.connector == "postgresql":
            self._open_while_slot_is_made(kill)
        elif self.plan.overlap:
            self.work.begin_overlap()
            self.capture.start(kill)
        else:
            self.capture.start()
        if self.plan.overlap in ("killed", "restarted"):
            self._start_again()
        elif self.plan.overlap == "late":
            self._await_stream()
        self.work.end_spanning(commits=True)
        if not self.capture.running:
            self._start_in_transaction()
        if self.plan.unseen:
            self._await_stream()
            for table in self.work.tables:
                self.work.session.execute(*self.work.insert(table))

    def _open_while_slot_is_made(self, kill: int) -> None:
        first, second = (self.server.session(self.work.database) for _ in range(2))
        waits = "select 1 from pg_locks where locktype = 'transactionid' and not granted and transactionid::text = '{}'"
        number = self._begin(first, -1)
        self.capture.start(kill)
        self._await("the slot waits for the first transaction", lambda: self._found(waits.format(number)))
        number = self._begin(second, -2)
        first.execute("commit")
        self._await("the slot waits for the second transaction", lambda: self._found(waits.format(number)))
        self.work.begin_overlap()
        second.execute("commit")
        self._await(
            "the slot is made", lambda: self._found(f"select 1 {self._of_slot} and confirmed_flush_lsn is not null")
        )
        first.close()
        second.close()

    @staticmethod
    def _begin(session: Session, marker: int) -> str:
        session.execute("begin", f"insert into marker values ({marker})")
        return str(session.rows("select pg_current_xact_id()::xid::text")[0][0])

    def _start_again(self) -> None:
        if self.plan.overlap == "killed":
            self._await("the engine is killed", self.capture.is_killed)
            self._await("its connection is gone", self._is_alone)
            self.capture.start()
            self._await_stream()
        else:
            self._await_stream()
            self.capture.stop()

    def _start_in_transaction(self) -> None:
        """Kills the engine within the first transaction: what it says next of the last commit is an event."""
        if self.server.connector == "postgresql":
            self.capture.start(self.work.rnd.randint(3, 12))
            self._await("the engine is killed", self.capture.is_killed)
            self._await("its connection is gone", self._is_alone)
        self.capture.start()

    def _await_stream(self) -> None:
        """Until the connector has made its snapshot, if it makes one, and reads changes."""
        # While it makes the slot, the connector is connected to it, too.
        streams = (
            f"select 1 {self._of_slot} and active_pid in (select pid from pg_stat_replication where state <> 'startup')"
        )
        if self.server.connector == "mariadb":
            streams = "select 1 from information_schema.processlist where command like 'Binlog Dump%'"
        self._await("the connector reads changes", lambda: self._found(streams))

    def _is_alone(self) -> bool:
        """Ends what a killed engine left at the server, which would look like the next one. True: nothing is left."""
        query, end = f"select active_pid {self._of_slot} and active", "select pg_terminate_backend({})"
        if self.server.connector == "mariadb":
            query, end = "select id from information_schema.processlist where command like 'Binlog Dump%'", "kill {}"
        left = self.work.session.rows(query)
        for (number,) in left:
            self.work.session.rows(end.format(number))
        return not left

    @property
    def _of_slot(self) -> str:
        return f"from pg_replication_slots where slot_name = '{self._slot}'"

    def _found(self, query: str) -> bool:
        return bool(self.work.session.rows(query))

    @staticmethod
    def _await(what: str, happened: Callable[[], bool], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not happened():
            if time.monotonic() > deadline:
                raise CaptureError(f"not within {seconds:.0f} s: {what}")
            time.sleep(0.05)
