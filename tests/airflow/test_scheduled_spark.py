"""Where the operators run a step, by `spark.scheduled` and Airflow's connections. tests/connect has a real server."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from support.pipelines import CONFIG, make_pipeline, put
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.spark.local_server import free_port
from tidefold_airflow.operators import TidefoldMaterializeOperator
from tidefold_airflow.operators.run_context import CONNECT_CONNECTION, find_server


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a server that is not there, as the connection has it."""
    connection = {"conn_type": "spark_connect", "host": "localhost", "port": free_port(), "password": "hunter2"}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CONNECT_DEFAULT", json.dumps(connection))
    return f"sc://localhost:{connection['port']}"


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs of spark-submit, none of which is run."""
    found: list[str] = []

    def submit(hook: SparkSubmitHook, application: str) -> None:
        found.append(Path(application).stem)
        raise AirflowException("not run")

    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    monkeypatch.setattr(SparkSubmitHook, "submit", submit)
    return found


def waiting(folder: Path, spark: str) -> Pipeline:
    """One change of `accounts` waits to be folded."""
    made = make_pipeline(folder, f"{CONFIG}spark: {spark}\n")
    put(made, [{"id": 1, "text": "a"}])
    return made


def fold(pipeline: Pipeline) -> Any:
    task = TidefoldMaterializeOperator(
        task_id="task", config=str(pipeline.config.path), logs=["accounts"], execution_timeout=timedelta(seconds=16)
    )
    ti = SimpleNamespace(
        xcom_push=lambda key, value: None,
        task_id="task",
        map_index=-1,
        try_number=1,
        task=SimpleNamespace(upstream_list=[]),
    )
    context = {"dag_run": SimpleNamespace(dag_id="dag", run_id="manual-1"), "ti": ti}
    # Airflow wraps `execute`, so that only its task runner calls it.
    return type(task).execute.__wrapped__(task, context)["accounts"]  # type: ignore[attr-defined]


def test_the_address_is_that_of_the_connection_with_its_token(away: str) -> None:
    assert find_server(CONNECT_CONNECTION) == f"{away}/;token=hunter2"
    assert find_server("no_such_connection") == ""


def test_a_connection_sends_small_work_to_the_server(tmp_path: Path, away: str) -> None:
    """It is away until the task's time-out: nothing is folded, the token is not shown, and Airflow tries again."""
    pipeline = waiting(tmp_path, "{above: 64MB}")
    with pytest.raises(AirflowException, match=r"CONNECT_UNREACHABLE.*tidefold spark start") as raised:
        fold(pipeline)
    assert not isinstance(raised.value, AirflowFailException)
    assert away in str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert not pipeline.ledger("accounts").read().snapshots


def test_a_setting_lets_the_task_do_it_alone(tmp_path: Path, away: str) -> None:
    done = fold(waiting(tmp_path, "{unreachable: in_process}"))
    assert (done["result"], done["engine"].partition(" (")[0]) == ("staged", "in process")


def test_submit_starts_a_job_for_small_work(tmp_path: Path, away: str, submitted: list[str]) -> None:
    with pytest.raises(AirflowException, match="not run"):
        fold(waiting(tmp_path, "{scheduled: submit}"))
    assert submitted == ["materialize"]


@pytest.mark.parametrize("spark", ["{}", "{scheduled: by_size}"])
def test_small_work_stays_in_the_task_by_size(tmp_path: Path, submitted: list[str], spark: str) -> None:
    assert fold(waiting(tmp_path, spark))["result"] == "staged"
    assert submitted == []


def test_a_server_that_nothing_names_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AirflowFailException, match=f"CONNECT_NO_ADDRESS.*{CONNECT_CONNECTION}"):
        fold(waiting(tmp_path, "{scheduled: connect}"))


def test_two_servers_are_refused(tmp_path: Path, away: str) -> None:
    with pytest.raises(AirflowFailException, match=r"CONNECT_ADDRESS.*spark\.master"):
        fold(waiting(tmp_path, '{master: "sc://elsewhere:1"}'))
