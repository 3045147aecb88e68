"""Keeps the record of a log's failed runs and sent alarms in the store. It is not part of the ledger."""

from __future__ import annotations

from tidefold.domain.alarms import AlarmRecord
from tidefold.domain.paths import LogPaths
from tidefold.operations.numbered_record import find_newest, read_record, write_record
from tidefold.storage import Store


def find_alarm_record(store: Store, log: str) -> AlarmRecord | None:
    """Returns the newest record; None: no run was recorded. Raises StorageError."""
    folder = LogPaths(log).alarms
    number = find_newest(store, folder)
    return (read_record(store, folder, number, AlarmRecord) or AlarmRecord(number)) if number else None


def write_alarm_record(store: Store, log: str, record: AlarmRecord) -> None:
    """Writes the next record. Raises AlreadyExistsError if another process was faster, StorageError."""
    write_record(store, LogPaths(log).alarms, record)
