"""Shows what one run of a DAG did to each log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from tidefold.operations.pipeline import Pipeline
from tidefold_airflow.ui.log_pages import LINES, LogPage, LogQuery, read_page
from tidefold_airflow.ui.request import Run
from tidefold_airflow.ui.responses import hide_unexpected
from tidefold_airflow.ui.views.log import SnapshotLine, lines


@dataclass(frozen=True, slots=True)
class LogOfRun:
    """The snapshots that the run began in one log, newest first.

    error: its ledger cannot be read.
    """

    log: str
    snapshots: Sequence[SnapshotLine] = ()
    error: str = ""


def view_run(pipeline: Pipeline, run: Run, query: LogQuery) -> LogPage[LogOfRun]:
    """Returns logs of one page, those first that the run changed. Of many logs, only those that it changed."""
    logs = list(pipeline.config.logs)
    few = len(logs) <= LINES

    def is_wanted(one: LogOfRun) -> bool:
        return few or bool(one.snapshots or one.error)

    page = read_page(logs, query, pipeline.at_once, partial(_of_log, pipeline, run), is_wanted)
    return replace(page, lines=sorted(page.lines, key=lambda one: not (one.snapshots or one.error)))


def _of_log(pipeline: Pipeline, run: Run, log: str) -> LogOfRun:
    try:
        state = pipeline.ledger(log).find()
    except Exception as error:
        return LogOfRun(log, error=str(hide_unexpected(error, "Reading the log")))
    mine = [s for s in reversed(state.snapshots) if s.run == run.id] if state else []
    return LogOfRun(log, lines(state, mine) if state else ())
