"""A plan by Airflow's operators: real store and rows, and a fake answer of a person."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskAwaitingInput
from airflow.sdk.execution_time import hitl

from support.planned import configure, land, published, random_file, run
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.quality.run.duckdb_rows import DuckDBEngine, open_engines
from tidefold_airflow import operators
from tidefold_airflow.observability import assets
from tidefold_airflow.operators import run_context

APPROVED = {"chosen_options": ["Approve"], "params_input": {}, "responded_by_user": {"name": "ann"}}
REJECTED = {"chosen_options": ["Reject"], "params_input": {"why": "not now"}, "responded_by_user": {"name": "ann"}}


class Tasks:
    """The two tasks of the DAG over one pipeline. `asked`: the questions; `events`: what was announced."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.of: dict[str, Any] = {"logs": ["orders"], "config": str(pipeline.config.path)}
        self.asked: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.context: Any = {
            "dag_run": SimpleNamespace(dag_id="tidefold_plan", run_id="manual"),
            "ti": SimpleNamespace(id="id", task_id="task", xcom_push=lambda key, value: None),
            "outlet_events": {assets.TABLES: SimpleNamespace(add=lambda asset, extra: self.events.append(extra))},
        }

    def plan(self) -> Any:
        return operators.TidefoldPlanOperator(task_id="plan", **self.of).execute(self.context)

    def ask(self) -> str:
        """Returns the checksum that the question is bound to."""
        with pytest.raises(TaskAwaitingInput) as raised:
            self._apply().execute(self.context)
        return str(raised.value.kwargs["checksum"])

    def answer(self, event: dict[str, Any], checksum: str) -> Any:
        return self._apply().execute_complete(self.context, event, checksum=checksum)

    def _apply(self) -> operators.TidefoldApplyPlanOperator:
        return operators.TidefoldApplyPlanOperator(task_id="apply", patience=timedelta(hours=1), **self.of)


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """A log with rows of two files. Its configuration can be edited."""
    made, chance = configure(tmp_path), random.Random(7)
    with open_engines(1) as lend, lend() as engine:
        _land(made, chance, engine, 1)
        _land(made, chance, engine, 2)
        yield made


def _land(pipeline: Pipeline, chance: random.Random, engine: DuckDBEngine, number: int) -> None:
    land(pipeline.config.path.parent, f"{'bca'[number - 1]}.csv", *random_file(chance, whole=True))
    run(pipeline, f"r{number}", engine)


@pytest.fixture
def tasks(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> Tasks:
    made = Tasks(pipeline)
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **question: made.asked.append(question))
    monkeypatch.setattr(assets, "_newest", lambda context, asset: None)
    monkeypatch.setattr(run_context, "find_server", lambda connection: "")
    monkeypatch.setattr("tidefold_airflow.operators.spark.run_context.find_server", lambda connection: "")
    return made


def test_a_log_with_this_configuration_is_skipped(tasks: Tasks) -> None:
    with pytest.raises(AirflowSkipException, match="has this configuration"):
        tasks.plan()


def test_exactly_the_approved_plan_is_applied_and_announced(pipeline: Pipeline, tasks: Tasks) -> None:
    configure(pipeline.config.path.parent, order="[changed]")
    before = published(pipeline)
    planned = tasks.plan()
    assert planned["counts"]["changed"] > 0
    checksum = tasks.ask()
    assert checksum == planned["checksum"]
    assert "Apply the edited configuration of orders?" in tasks.asked[0]["subject"]
    assert f"{planned['counts']['changed']} changed" in tasks.asked[0]["body"]
    with pytest.raises(AirflowSkipException, match="Rejected by ann: not now"):
        tasks.answer(REJECTED, checksum)
    with pytest.raises(AirflowFailException, match="nothing was applied"):
        tasks.answer({"error": "no answer", "error_type": "timeout"}, checksum)
    with pytest.raises(AirflowFailException, match="PLAN_CHANGED"):
        tasks.answer(APPROVED, "0" * 64)
    assert (published(pipeline), tasks.events) == (before, [])
    done = tasks.answer(APPROVED, checksum)
    assert done["orders"]["result"] == "published"
    assert published(pipeline) != before
    assert [one["snapshot"] for one in tasks.events] == [done["orders"]["snapshot"]]


def test_a_table_that_changed_since_the_plan_is_refused(pipeline: Pipeline, tasks: Tasks) -> None:
    configure(pipeline.config.path.parent, order="[changed]")
    tasks.plan()
    checksum = tasks.ask()
    configure(pipeline.config.path.parent)
    with open_engines(1) as lend, lend() as engine:
        _land(pipeline, random.Random(8), engine, 3)
    configure(pipeline.config.path.parent, order="[changed]")
    with pytest.raises(AirflowFailException, match="PLAN_CHANGED"):
        tasks.answer(APPROVED, checksum)
