"""Keeps the newest findings of a scheduled doctor in the store, for the page: one small file below `doctor/`."""

from __future__ import annotations

from dataclasses import dataclass

from tidefold.operations.doctor.finding import DoctorFinding
from tidefold.operations.numbered_record import find_newest, read_record, write_record
from tidefold.storage import Store

FOLDER = "doctor"


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """What the doctor found.

    number: counts the reports of a store.
    instant: when it looked (ISO 8601, for people).
    findings: one for each thing that it looked at.
    """

    number: int
    instant: str
    findings: tuple[DoctorFinding, ...]


def find_report(store: Store) -> DoctorReport | None:
    """The newest report; None: there is none that can be read. Raises StorageError."""
    number = find_newest(store, FOLDER)
    return read_record(store, FOLDER, number, DoctorReport) if number else None


def write_report(store: Store, findings: list[DoctorFinding], instant: str) -> None:
    """Writes a report, and removes older ones. Raises AlreadyExistsError if another was faster, StorageError."""
    write_record(store, FOLDER, DoctorReport(find_newest(store, FOLDER) + 1, instant, tuple(findings)))
