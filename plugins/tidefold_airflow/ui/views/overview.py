"""Shows the logs of the pipeline, page by page."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tidefold.operations.inspect.status import LogStatus, add_records, status_of, with_alarms
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold_airflow.ui.health import Lag, Note, Word, lag_of, status_of_error, to_do, word_of_log
from tidefold_airflow.ui.log_pages import LogPage, LogQuery, read_page
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
