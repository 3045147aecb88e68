"""The findings of the doctor: one line for each checked item, and the report that is kept of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tidefold.operations.numbered_record import find_newest, read_record, write_record
from tidefold.storage import Store


class FindingLevel(StrEnum):
    """The severity of a finding. The words are part of the JSON output."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One result of a check.

    message: what was found, with the values.
    hint: the next step; empty if there is nothing to do.
    """

    check: str
    level: FindingLevel
    message: str
    hint: str = ""


def count_failed(findings: Sequence[DoctorFinding]) -> int:
    """Returns the number of failed findings."""
    return sum(finding.level is FindingLevel.FAIL for finding in findings)


def summarize(findings: Sequence[DoctorFinding]) -> str:
    """Sums up all findings in one sentence."""
    warned = sum(finding.level is FindingLevel.WARN for finding in findings)
    failed = count_failed(findings)
    return f"{failed} failed, {warned} warned, {len(findings) - failed - warned} ok"


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
