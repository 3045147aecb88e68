"""A fake Airflow that remembers the runs that ask a person, and the execution of one task without a scheduler."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from airflow.sdk.exceptions import AirflowRuntimeError, AirflowSkipException, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse, GetDagRun, TriggerDagRun

import tidefold_airflow.operators  # noqa: F401 (before the assets, which import one of them)
from tidefold.operations.ground.pipeline import Pipeline
from tidefold_airflow.observability import assets

ASKS = "dag_approval"
NOW = datetime(2026, 11, 22, 9, 30, 59, tzinfo=UTC)


@dataclass
class FakeAirflow:
    """The runs of one DAG, by id; `missing`: it has no such DAG."""

    runs: dict[str, str] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    missing: bool = False

    def send(self, message: Any) -> Any:
        assert message.dag_id == ASKS
        if isinstance(message, TriggerDagRun):
            if self.missing:
                raise _not_found()
            if message.run_id in self.runs:
                return ErrorResponse(error=ErrorType.DAGRUN_ALREADY_EXISTS)
            self.asked.append(dict(message.conf or {}))
            self.runs[message.run_id] = "queued"
            return None
        assert isinstance(message, GetDagRun)
        if message.run_id not in self.runs:
            raise _not_found()
        return SimpleNamespace(state=self.runs[message.run_id], run_after=NOW)


def _not_found() -> AirflowRuntimeError:
    return AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 404}))


def execute(kind: type[Any], pipeline: Pipeline, run: str, upstream: Any = None, **given: Any) -> Any:
    """What a task of that operator returns, also if it is skipped; `upstream`: what the step before it returned."""
    pushed: list[Any] = []
    task = kind(task_id="task", config=str(pipeline.config.path), **given)
    before = (
        [SimpleNamespace(task_id="before", task_type="TidefoldMaterializeOperator")] if upstream is not None else []
    )
    instance = SimpleNamespace(
        id="id",
        task_id="task",
        xcom_push=lambda key, value: pushed.append(value),
        xcom_pull=lambda task_ids, map_indexes: upstream,
        get_task_states=lambda dag_id, task_ids, run_ids: {},
        dag_id="dag",
        run_id=run,
        task=SimpleNamespace(upstream_list=before),
    )
    events: Any = SimpleNamespace(add=lambda asset, extra: None)
    context = {
        "dag_run": SimpleNamespace(dag_id="dag", run_id=run),
        "ti": instance,
        "outlet_events": {assets.TABLES: events},
    }
    try:
        return kind.execute.__wrapped__(task, context), task, context
    except AirflowSkipException:
        return pushed[-1] if pushed else None, task, context
