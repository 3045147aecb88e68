"""Shows what one run of a DAG did to each log."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from tidefold.operations.pipeline import Pipeline
from tidefold_airflow.ui.request import Run
from tidefold_airflow.ui.responses import hide_unexpected
from tidefold_airflow.ui.views.log import SnapshotLine, lines

_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class LogOfRun:
    """The snapshots that the run began in one log, newest first.

    error: its ledger cannot be read.
    """

    log: str
    snapshots: Sequence[SnapshotLine] = ()
    error: str = ""


def view_run(pipeline: Pipeline, run: Run) -> list[LogOfRun]:
    """Returns each configured log, those first that the run changed."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(partial(_of_log, pipeline, run), pipeline.config.logs))
    return sorted(found, key=lambda one: not (one.snapshots or one.error))


def _of_log(pipeline: Pipeline, run: Run, log: str) -> LogOfRun:
    try:
        state = pipeline.ledger(log).find()
    except Exception as error:
        return LogOfRun(log, error=str(hide_unexpected(error, "Reading the log")))
    mine = [s for s in reversed(state.snapshots) if s.run == run.id] if state else []
    return LogOfRun(log, lines(state, mine) if state else ())
