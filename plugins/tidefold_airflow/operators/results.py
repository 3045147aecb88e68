"""Converts the outcomes of a step to what Airflow shows: log lines, a small XCom, success or failure."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from tidefold.operations.outcome import Outcome
from tidefold.storage.s3.traffic import read_traffic
from tidefold.storage.safe_files import make_private_folder
from tidefold_airflow.observability.metrics import of_outcomes, send

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold_airflow.operators.run_context import TaskScope

_log = logging.getLogger(__name__)
Summary = dict[str, dict[str, Any]]


def result_path(scope: TaskScope, context: Context) -> Path:
    """Returns the file for the outcomes of a job: one for each run, task, copy and try, so that no job reads another's.

    A person may choose the id of a run. Two ids never share a file name, and no id is too long for one.
    """
    ti = context["ti"]
    name = hashlib.sha256(json.dumps([scope.run, ti.task_id, ti.map_index, ti.try_number]).encode()).hexdigest()
    path = scope.pipeline.config.path.parent / "var" / "results" / f"{name}.json"
    make_private_folder(path.parent)
    path.unlink(missing_ok=True)
    return path


def report(outcomes: Sequence[Outcome], context: Context) -> Summary:
    """Logs one line for each log and returns the XCom value. Raises an error that names the failed logs, if any."""
    send(of_outcomes(context["ti"].task_id.rpartition(".")[2], outcomes))
    summary = {outcome.log: _summarize(outcome) for outcome in outcomes}
    for outcome in outcomes:
        _log.log(logging.ERROR if outcome.error else logging.INFO, "%s: %s", outcome.log, outcome.message)
    if (traffic := read_traffic()).total:
        _log.info("This task: %s.", traffic)
    failed = [o for o in outcomes if o.error]
    if failed:
        # A failed task returns nothing, but its results for the other logs must be visible.
        context["ti"].xcom_push("return_value", summary)
        raise _failure(failed, len(outcomes))
    return summary


def _summarize(outcome: Outcome) -> dict[str, Any]:
    engine = outcome.details.engine
    summary = {"result": outcome.status.value, "snapshot": outcome.snapshot, "error": outcome.error_code}
    return {**summary, "engine": engine.value} if engine else summary


def _failure(failed: Sequence[Outcome], of: int) -> AirflowException:
    kind = AirflowException if any(o.error and o.error.transient for o in failed) else AirflowFailException
    return kind(f"{len(failed)} of {of} logs failed. " + " ".join(f"{o.log}: {o.message}" for o in failed))
