"""A replication slot of a connector, made so that its position is that of a snapshot which other transactions read.

The only user of psycopg: ADBC has no replication protocol.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tidefold.domain.wording import in_units
from tidefold.errors import RefusedError, StorageError
from tidefold.sources.connections import make_package_error
from tidefold.sources.database.connection import Database, Reader, quote_name

_LOOK = 2.0
# The server must not end a transaction that only holds what others read.
_PATIENT = "-c idle_in_transaction_session_timeout=0 -c statement_timeout=0"
_BLOCKERS = """
select a.pid, coalesce(a.usename, '')::text as who, extract(epoch from now() - a.xact_start)::bigint as seconds,
       coalesce(a.state, '')::text as state
from pg_locks w join pg_locks h on h.locktype = 'transactionid' and h.transactionid = w.transactionid and h.granted
join pg_stat_activity a on a.pid = h.pid where w.locktype = 'transactionid' and not w.granted and w.pid = $1::int
"""
_SLOT = """
select active, coalesce(wal_status, 'lost')::text as status,
       pg_wal_lsn_diff(case when pg_is_in_recovery() then pg_last_wal_receive_lsn() else pg_current_wal_lsn() end,
       restart_lsn)::bigint as held, (restart_lsn - '0/0'::pg_lsn)::bigint as begins
from pg_replication_slots where slot_name = $1
"""


@dataclass(frozen=True, slots=True)
class SlotSnapshot:
    """A new slot. position: where it begins. snapshot: what others read; it lives as long as its connection."""

    position: str
    snapshot: str


@dataclass(frozen=True, slots=True)
class SlotState:
    """A slot as the server shows it. held: how many bytes of WAL the server keeps for it, which begin there."""

    active: bool
    status: str
    held: int | None
    begins: int | None

    @property
    def told(self) -> str:
        return f"holds {in_units(self.held or 0)} of WAL"


def find_slot(reader: Reader, name: str) -> SlotState | None:
    """Returns a slot, or None if the database has no slot of that name."""
    return next((SlotState(**row) for row in reader.list(_SLOT, name)), None)


@contextmanager
def create_slot(database: Database, name: str, tell: Callable[[str], None]) -> Iterator[SlotSnapshot]:
    """Makes a slot and keeps its snapshot alive. The slot stays, also after an error.

    tell: is told whom the server waits for. Raises RefusedError, StorageError.
    """
    with _replicate(database) as connection:
        command = f"CREATE_REPLICATION_SLOT {quote_name(name)} LOGICAL pgoutput (SNAPSHOT 'export')"
        row = _execute(connection, command, lambda: _tell_blockers(database, connection.info.backend_pid, tell))
        yield SlotSnapshot(row[1], row[2])


def drop_slot(database: Database, name: str) -> None:
    """Drops a slot that nobody reads. Raises RefusedError, StorageError."""
    with _replicate(database) as connection:
        _execute(connection, f"DROP_REPLICATION_SLOT {quote_name(name)}", lambda: None)


@contextmanager
def _replicate(database: Database) -> Iterator[Any]:
    try:
        import psycopg
    except ModuleNotFoundError as error:
        raise make_package_error("POSTGRES_EXTRA", "A replication slot", "psycopg", "postgres") from error
    try:
        with psycopg.connect(database.address, replication="database", autocommit=True, options=_PATIENT) as connection:
            yield connection
    except psycopg.Error as error:
        words = " ".join(str(error).replace(database.address, "***").split())[:300].rstrip(".")
        raise _explain(database, getattr(error, "sqlstate", None) or "", words) from None


def _explain(database: Database, state: str, words: str) -> RefusedError | StorageError:
    place = f"The database of `{database.name}` ({database.told})"
    if state == "42710":
        return RefusedError(
            "SLOT_EXISTS",
            f"{place} has this slot already: {words}.",
            hint="If a load broke off, call it with `--drop-slot`, then again. If a connector has it, name another.",
        )
    if state in ("42501", "28000", "55000", "53400"):
        hint = "The user needs REPLICATION, the server `wal_level=logical` and a free slot (`max_replication_slots`)."
        return RefusedError("SLOT_REFUSED", f"{place} refuses a replication slot: {words}.", hint=hint)
    return StorageError("DATABASE_UNREADABLE", f"{place} cannot be used: {words}.")


def _execute(connection: Any, command: str, look: Callable[[], None]) -> list[str]:
    """Runs a command of the replication protocol, which no parameters fit, and looks round while it waits."""
    import psycopg

    wire = connection.pgconn
    wire.send_query(command.encode())
    try:
        while wire.is_busy():
            if select.select([wire.socket], [], [], _LOOK)[0]:
                wire.consume_input()
            else:
                look()
    except BaseException:
        connection.cancel()  # Else the server would make the slot when nobody waits for it any more.
        raise
    result = wire.get_result()
    wire.get_result()
    if result.status not in (psycopg.pq.ExecStatus.TUPLES_OK, psycopg.pq.ExecStatus.COMMAND_OK):
        raise psycopg.errors.error_from_result(result)
    return [(result.get_value(0, at) or b"").decode() for at in range(result.nfields)] if result.ntuples else []


def _tell_blockers(database: Database, pid: int, tell: Callable[[str], None]) -> None:
    with database.begin() as reader:
        for one in reader.list(_BLOCKERS, str(pid)):
            told = f"process {one['pid']} of {one['who']} ({one['state']}, for {one['seconds'] or 0:,} s)"
            tell(f"waiting for a transaction that was open before: {told}")
