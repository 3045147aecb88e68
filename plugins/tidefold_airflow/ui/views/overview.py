"""Shows the logs of the pipeline, page by page, its sets, and the doctor's newest findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tidefold.errors import TidefoldError
from tidefold.operations.doctor.finding import DoctorFinding, FindingLevel, count_failed, find_report
from tidefold.operations.inspect.status import LogStatus, add_records, status, status_of, with_alarms
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.sets.status import SetStatus, read_set_status
from tidefold_airflow.ui.health import Lag, Note, Word, lag_of, status_of_error, to_do, word_of_log
from tidefold_airflow.ui.request import LogPage, LogQuery, read_page
from tidefold_airflow.ui.responses import hide_unexpected

# The tones of logs that a person should look at.
_OUT_OF_ORDER = ("bad", "warn")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One log: its status, in a word and in full, and what to do."""

    status: LogStatus
    word: Word
    lag: Lag
    to_do: list[Note]


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the logs of a page."""

    logs: int
    good: int
    bad: int
    changes: int
    quarantined: int
    alarms: int
    rows: int
    bytes: int


def overview(pipeline: Pipeline, query: LogQuery) -> LogPage[LogLine]:
    """Returns the lines of a page, in the order of the configuration. An unreadable log shows its error."""

    def is_wanted(line: LogLine) -> bool:
        return line.word.tone in _OUT_OF_ORDER if query.attention else True

    return read_page(list(pipeline.config.logs), query, pipeline.at_once, partial(_line, pipeline), is_wanted)


def totals(lines: list[LogLine]) -> Totals:
    """Computes the sums over the logs of a page."""
    latest = [line.status.latest for line in lines if line.status.latest]
    tones = [line.word.tone for line in lines]
    return Totals(
        logs=len(lines),
        good=tones.count("good"),
        bad=tones.count("bad"),
        changes=sum(line.lag.changes for line in lines),
        quarantined=sum(line.status.quarantined for line in lines),
        alarms=sum(len(line.status.alarms) for line in lines),
        rows=sum(s.rows for s in latest),
        bytes=sum(s.bytes_full for s in latest),
    )


def _line(pipeline: Pipeline, log: str) -> LogLine:
    lag, state = Lag(), None
    try:
        state = pipeline.ledger(log).find()
        status = add_records(pipeline, status_of(state) if state else LogStatus(log, begun=False))
        lag = lag_of(state) if state else lag
    except Exception as error:
        hidden = Outcome.of_error(log, hide_unexpected(error, "Reading the log"))
        status = with_alarms(pipeline, status_of_error(log, hidden))
    return LogLine(status, word_of_log(status), lag, to_do(status, state))


@dataclass(frozen=True, slots=True)
class SetLine:
    """One set: its status, in a word and in full."""

    status: SetStatus
    word: Word


def view_sets(pipeline: Pipeline, lines: Sequence[LogLine]) -> list[SetLine]:
    """Returns the sets whose logs the reader may all see. lines: logs that the page has read already."""
    statuses = {line.status.log: line.status for line in lines}
    shown = [one for one in pipeline.config.sets.values() if {*one.logs} <= pipeline.config.logs.keys()]
    states = [read_set_status(pipeline, one, _read_logs(pipeline, one.logs, statuses)) for one in shown]
    return [SetLine(one, _choose_word(one)) for one in states]


def _read_logs(pipeline: Pipeline, logs: Sequence[str], statuses: dict[str, LogStatus]) -> list[LogStatus]:
    missing = [log for log in logs if log not in statuses]
    return [*(statuses[log] for log in logs if log in statuses), *status(pipeline, missing)]


def _choose_word(state: SetStatus) -> Word:
    if state.error:
        return Word("unreadable", "bad")
    if state.waits:
        return Word("waits", "warn")
    if state.version is None:
        return Word("not published", "calm")
    return Word("up to date", "good") if state.position == state.point else Word("changes wait", "busy")


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
