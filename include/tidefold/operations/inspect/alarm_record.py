"""Keeps the record of failed runs and sent alarms of a log in the store, beside the ledger and no part of it."""

from __future__ import annotations

from tidefold.domain.alarms import AlarmRecord
from tidefold.domain.paths import LogPaths
from tidefold.operations.numbered_record import find_newest, read_record, write_record
from tidefold.storage import Store


def find_alarm_record(store: Store, log: str) -> AlarmRecord | None:
    """The newest record; None: no run was recorded. Raises StorageError."""
    folder = LogPaths(log).alarms
    number = find_newest(store, folder)
    return (read_record(store, folder, number, AlarmRecord) or AlarmRecord(number)) if number else None


def write_alarm_record(store: Store, log: str, record: AlarmRecord) -> None:
    """Writes the next record. Raises AlreadyExistsError if another process was faster, StorageError."""
    write_record(store, LogPaths(log).alarms, record)
