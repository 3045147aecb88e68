"""What the doctor finds: one line for each thing that it checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class FindingLevel(StrEnum):
    """How bad it is. The words are part of the JSON output."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One result of a check.

    check: the check that found it.
    message: what was found, with the values.
    hint: the next step; empty if there is nothing to do.
    """

    check: str
    level: FindingLevel
    message: str
    hint: str = ""


def count_failed(findings: Sequence[DoctorFinding]) -> int:
    """The number of findings that must be mended."""
    return sum(finding.level is FindingLevel.FAIL for finding in findings)


def summarize(findings: Sequence[DoctorFinding]) -> str:
    """One sentence about all findings."""
    warned = sum(finding.level is FindingLevel.WARN for finding in findings)
    failed = count_failed(findings)
    return f"{failed} failed, {warned} warned, {len(findings) - failed - warned} ok"
