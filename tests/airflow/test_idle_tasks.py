"""Tasks that would do nothing are skipped by the task before them, and start no process."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import DownstreamTasksSkipped

from support.pipelines import judge_all, make_pipeline, put
from tidefold.compute.runners import in_process
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.snapshot.request import Fold
from tidefold_airflow.dags.factory import Options, tidefold_dag, tidefold_group
from tidefold_airflow.dags.params import AS_CONFIGURED

STEPS = ["materialize", "quality", ("confirm", -1), ("confirm", 0), ("confirm", 1), "abort"]
KEEPING = ["clean", "local_retention", "subsume", "truncate"]


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Snapshot 1 of `accounts` is published, and `tellers` is empty."""
    made = make_pipeline(tmp_path)
    put(made, [{"id": i, "text": "a"} for i in range(20)])
    fold(made, "run-1")
    confirm(made, "accounts")
    return made


def fold(pipeline: Pipeline, run: str) -> None:
    materialize(pipeline, ["accounts"], Fold(run), in_process)
    judge_all(pipeline)


def skipped_by(pipeline: Pipeline, task_id: str, kind: str = AS_CONFIGURED) -> list[Any]:
    """The tasks that a task skips; none if it only returns its result."""
    task = tidefold_dag(f"dag_{task_id}", schedule=None, config=str(pipeline.config.path)).get_task(task_id)
    return skipped_by_task(task, kind)


def skipped_by_task(task: Any, kind: str = AS_CONFIGURED) -> list[Any]:
    task.logs = ["accounts", "tellers"]
    pushed: list[Any] = []
    instance = SimpleNamespace(
        xcom_push=lambda key, value: pushed.append(value), task_id=task.task_id, task=SimpleNamespace(upstream_list=[])
    )
    context = {
        "dag_run": SimpleNamespace(dag_id="dag", run_id="r"), "ti": instance, "params": SimpleNamespace(kind=kind),
    }  # fmt: skip
    try:
        type(task).execute.__wrapped__(task, context)
    except DownstreamTasksSkipped as skip:
        assert {what["result"] for what in pushed[0].values()} == {"nothing"}
        return list(skip.tasks)
    return []


def retention_of(skipped: list[Any]) -> list[str]:
    return sorted(task for task in skipped if task in KEEPING)


def test_without_news_a_run_ends_after_its_ingest(pipeline: Pipeline) -> None:
    skipped = skipped_by(pipeline, "ingest")
    assert [task for task in skipped if task not in KEEPING] == STEPS
    assert "subsume" in skipped


def test_changes_that_wait_are_work(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 1, "text": "b"}])
    assert skipped_by(pipeline, "ingest") == []


def test_an_open_attempt_is_work(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 1, "text": "b"}])
    fold(pipeline, "run-2")
    assert skipped_by(pipeline, "ingest") == []


def test_subsume_skips_what_would_delete_nothing(pipeline: Pipeline) -> None:
    assert set(retention_of(skipped_by(pipeline, "subsume"))) <= {"truncate", "local_retention", "clean"}
    assert "clean" in skipped_by(pipeline, "subsume")


def test_a_group_skips_its_own_tasks(pipeline: Pipeline) -> None:
    options = Options(config=str(pipeline.config.path))
    with DAG("two_groups", schedule=None) as dag:
        tidefold_group("one", options=options) >> tidefold_group("two", options=options)
    names = [one if isinstance(one, str) else one[0] for one in skipped_by_task(dag.get_task("one.ingest"))]
    assert {name.partition(".")[0] for name in names} == {"one"}
