"""The operators when Airflow's connection asks for a driver on the cluster. `make test-yarn` has a real YARN."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from support.pipelines import CONFIG, make_pipeline, put
from tidefold.compute import runners
from tidefold.operations.pipeline import Pipeline
from tidefold.spark import job_main
from tidefold.spark.job_main import run_job
from tidefold.spark.steps import load_job
from tidefold_airflow.operators import TidefoldMaterializeOperator


def open_pipeline_with(folder: Path, store: str) -> Pipeline:
    """One change of `accounts` waits, and each step uses Spark."""
    made = make_pipeline(folder, CONFIG.replace("store: store", f"store: {store}") + "spark: {above: 0B}\n")
    put(made, [{"id": 1, "text": "a"}])
    return made


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    connect(monkeypatch, "yarn")
    return open_pipeline_with(tmp_path, f"{tmp_path}/store")


def connect(monkeypatch: pytest.MonkeyPatch, master: str) -> None:
    connection = {"conn_type": "spark", "host": master, "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))


def make_task(pipeline: Pipeline) -> TidefoldMaterializeOperator:
    return TidefoldMaterializeOperator(task_id="task", config=str(pipeline.config.path), logs=["accounts"])


def execute(task: TidefoldMaterializeOperator) -> Any:
    instance = SimpleNamespace(
        xcom_push=lambda key, value: None, task_id="task", task=SimpleNamespace(upstream_list=[])
    )
    context = {"dag_run": SimpleNamespace(dag_id="dag", run_id="manual-1"), "ti": instance}
    # Airflow wraps `execute`, so that only its task runner calls it.
    return type(task).execute.__wrapped__(task, context)  # type: ignore[attr-defined]


@pytest.mark.parametrize("master", ["spark://a:7077", "local[2]"])
def test_a_master_that_runs_no_driver_in_python_is_refused(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    connect(monkeypatch, master)
    with pytest.raises(AirflowFailException, match=r"DEPLOY_MODE.*Remove `deploy-mode` from the connection"):
        execute(make_task(pipeline))


def test_a_store_beside_the_configuration_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not on the driver's machine."""
    connect(monkeypatch, "yarn")
    with pytest.raises(AirflowFailException, match=r"DEPLOY_MODE.*`store`"):
        execute(make_task(open_pipeline_with(tmp_path, "store")))


def test_request_and_outcomes_travel_through_the_store(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def submit(hook: SparkSubmitHook, application: str) -> None:
        """As spark-submit, without a cluster: the driver's own program, whose tasks run in this process."""
        seen.append(hook._build_spark_submit_command(application))
        monkeypatch.setattr(runners, "on_spark", lambda session: runners.in_process)
        monkeypatch.setattr(job_main, "spark_session", lambda name: None)
        monkeypatch.setattr(job_main, "name_jobs", lambda session, step, logs: None)
        assert run_job(seen[0][seen[0].index(application) :], load_job("materialize")) == 0

    monkeypatch.setattr(SparkSubmitHook, "submit", submit)
    assert execute(make_task(pipeline))["accounts"]["result"] == "staged"
    [command] = seen
    assert command[command.index("--master") + 1] == "yarn"
    assert command[command.index("--deploy-mode") + 1] == "cluster"
    assert "spark.driver.host=127.0.0.1" not in command
    assert pipeline.store.list("jobs") == []


def test_a_driver_that_died_is_named_with_its_log(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def submit(hook: SparkSubmitHook, application: str) -> None:
        hook._yarn_application_id = "application_17_0001"
        raise AirflowException("Error code is: 1.")

    monkeypatch.setattr(SparkSubmitHook, "submit", submit)
    # Airflow tries it again.
    with pytest.raises(AirflowException, match=r"JOB_DIED.*yarn logs -applicationId application_17_0001") as raised:
        execute(make_task(pipeline))
    assert not isinstance(raised.value, AirflowFailException)
    assert pipeline.store.list("jobs") == []


def test_a_killed_task_ends_its_driver(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver sees within seconds that its request is gone."""
    task, left = make_task(pipeline), []

    def submit(hook: SparkSubmitHook, application: str) -> None:
        assert pipeline.store.list("jobs")
        task.on_kill()
        left.append(pipeline.store.list("jobs"))
        raise AirflowException("killed")

    monkeypatch.setattr(SparkSubmitHook, "submit", submit)
    with pytest.raises(AirflowException, match="JOB_DIED"):
        execute(task)
    assert left == [[]]
