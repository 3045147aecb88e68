"""The findings of the doctor: one line for each checked item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


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
