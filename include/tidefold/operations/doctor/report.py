"""Keeps the newest findings of a scheduled doctor in the store for the page, as one small file below `doctor/`."""

from __future__ import annotations

from dataclasses import dataclass

from tidefold.operations.doctor.finding import DoctorFinding
from tidefold.operations.numbered_record import find_newest, read_record, write_record
from tidefold.storage import Store

FOLDER = "doctor"


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """The findings of one run of the doctor.

    number: counts the reports of a store.
    instant: when it ran (ISO 8601, for people).
    findings: at least one for each check.
    """

    number: int
    instant: str
    findings: tuple[DoctorFinding, ...]


def find_report(store: Store) -> DoctorReport | None:
    """Returns the newest report; None: there is none, or it cannot be read. Raises StorageError."""
    number = find_newest(store, FOLDER)
    return read_record(store, FOLDER, number, DoctorReport) if number else None


def write_report(store: Store, findings: list[DoctorFinding], instant: str) -> None:
    """Writes a report and deletes older ones. Raises AlreadyExistsError if another process was faster, StorageError."""
    write_record(store, FOLDER, DoctorReport(find_newest(store, FOLDER) + 1, instant, tuple(findings)))
