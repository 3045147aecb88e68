"""Shows the sets of the pipeline: the point of each, its lag, and why it waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidefold.operations.inspect.status import LogStatus, status
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.sets.status import SetStatus, read_set_status
from tidefold_airflow.ui.health import Word
from tidefold_airflow.ui.views.overview import LogLine


@dataclass(frozen=True, slots=True)
class SetLine:
    """One set: its status, in a word and in full."""

    status: SetStatus
    word: Word


def view_sets(pipeline: Pipeline, lines: Sequence[LogLine]) -> list[SetLine]:
    """Returns the sets whose logs the reader may all see. lines: logs that the page has read already."""
    known = {line.status.log: line.status for line in lines}
    shown = [one for one in pipeline.config.sets.values() if {*one.logs} <= pipeline.config.logs.keys()]
    found = [read_set_status(pipeline, one, _read_logs(pipeline, one.logs, known)) for one in shown]
    return [SetLine(one, _choose_word(one)) for one in found]


def _read_logs(pipeline: Pipeline, logs: Sequence[str], known: dict[str, LogStatus]) -> list[LogStatus]:
    missing = [log for log in logs if log not in known]
    return [*(known[log] for log in logs if log in known), *status(pipeline, missing)]


def _choose_word(found: SetStatus) -> Word:
    if found.error:
        return Word("unreadable", "bad")
    if found.waits:
        return Word("waits", "warn")
    if found.version is None:
        return Word("not published", "calm")
    return Word("up to date", "good") if found.position == found.point else Word("changes wait", "busy")
