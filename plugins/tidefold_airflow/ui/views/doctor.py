"""Shows what the newest scheduled doctor found around the pipeline."""

from __future__ import annotations

from dataclasses import dataclass

from tidefold.errors import TidefoldError
from tidefold.operations.doctor.finding import DoctorFinding, FindingLevel, count_failed
from tidefold.operations.doctor.report import find_report
from tidefold.operations.pipeline import Pipeline
from tidefold_airflow.ui.health import Word

_WORDS = {FindingLevel.FAIL: Word("fail", "bad"), FindingLevel.WARN: Word("warn", "warn")}


@dataclass(frozen=True, slots=True)
class DoctorView:
    """The findings of the doctor.

    word: all findings in a few words.
    listed: the failures, then the warnings.
    """

    instant: str
    word: str
    listed: tuple[tuple[DoctorFinding, Word], ...]


def view_doctor(pipeline: Pipeline) -> DoctorView | None:
    """Returns the newest findings; None if the doctor's DAG has not run yet, or the findings cannot be read."""
    try:
        report = find_report(pipeline.store)
    except TidefoldError:
        return None
    if report is None:
        return None
    bad = [finding for finding in report.findings if finding.level is not FindingLevel.OK]
    ordered = sorted(bad, key=lambda finding: finding.level is not FindingLevel.FAIL)
    failed = count_failed(bad)
    word = f"{failed} failed" if failed else f"{len(bad)} warned" if bad else "all ok"
    return DoctorView(report.instant, word, tuple((finding, _WORDS[finding.level]) for finding in ordered))
