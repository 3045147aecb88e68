"""The doctor in Airflow: its operator on a real pipeline, and DAG files that a process of its own really imports."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from local_airflow.settings import PROJECT
from support.pipelines import make_pipeline, put
from tidefold.operations.doctor import judge_pipeline
from tidefold.operations.doctor.finding import find_report
from tidefold.operations.doctor.judge_pipeline import AirflowSetup, probe_airflow
from tidefold.operations.pipeline import Pipeline
from tidefold_airflow import operators


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Airflow's DAG files are taken as good, and this machine as large enough."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[*]"}))
    monkeypatch.setattr(judge_pipeline, "probe_airflow", lambda *given, is_task: AirflowSetup("3.3.2", 9))
    made = make_pipeline(tmp_path)
    put(made, [{"id": 1, "text": "a"}])
    return made


def run(pipeline: Pipeline, **given: Any) -> Any:
    task = operators.TidefoldDoctorOperator(task_id="doctor", config=str(pipeline.config.path), **given)
    context = {"dag_run": SimpleNamespace(dag_id="dag", run_id="1"), "ti": None}
    return operators.TidefoldDoctorOperator.execute.__wrapped__(task, context)  # type: ignore[attr-defined]


def test_it_counts_its_lines_and_keeps_them_for_the_page(pipeline: Pipeline) -> None:
    done = run(pipeline, seconds="20")
    assert (done["fail"], done["warn"] >= 2) == (0, True)
    report = find_report(pipeline.store)
    assert report
    assert sum(done.values()) == len(report.findings)
    assert (report.number, {"store", "airflow"} <= {f.check for f in report.findings}) == (1, True)
    run(pipeline)
    assert [e.path for e in pipeline.store.list("doctor")] == ["doctor/0000000002.json"]


def test_it_is_red_for_what_must_be_mended_and_says_how(pipeline: Pipeline) -> None:
    (pipeline.config.path.parent / "landing/accounts/1.jsonl").symlink_to("/nowhere")
    with pytest.raises(AirflowFailException, match=r"1 failed, .*landing: accounts: .* Next: Land the files"):
        run(pipeline)
    report = find_report(pipeline.store)
    assert report
    assert [f.check for f in report.findings if f.level == "fail"] == ["landing"]


def test_a_connection_that_does_not_exist_is_named(pipeline: Pipeline) -> None:
    with pytest.raises(AirflowFailException, match="airflow: The connection `no_such_conn` does not exist"):
        run(pipeline, conn_id="no_such_conn")


def test_without_its_store_it_is_red_and_stores_nothing(pipeline: Pipeline) -> None:
    path = pipeline.config.path
    path.write_text(path.read_text().replace("store: store", f"store: store\nstore_id: {'a' * 32}"))
    with pytest.raises(AirflowFailException, match=r"store: \[STORE_UNKNOWN\]"):
        run(pipeline)
    assert pipeline.store.list("doctor") == []


@pytest.mark.parametrize("is_task", [False, True])
def test_dag_files_are_really_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_task: bool) -> None:
    """As a task asks, too: there Airflow hides its database."""
    dags = tmp_path / "dags"
    dags.mkdir()
    (dags / "scrub.py").symlink_to(PROJECT / "dags" / "tidefold_scrub.py")
    (dags / "bad.py").write_text("from airflow.sdk import DAG\nraise RuntimeError('cut off')\n")
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(dags))
    monkeypatch.delenv("AIRFLOW_HOME", raising=False)
    if is_task:
        monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "airflow-db-not-allowed:///")
        monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "client")
    pipeline = make_pipeline(tmp_path)
    found = probe_airflow(PROJECT, pipeline.config.path, is_task=is_task)
    assert found.error == ""
    assert (found.dags, found.has_connection) == (1, None)
    [(file, error)] = found.import_errors.items()
    assert Path(file).name == "bad.py"
    assert error == "RuntimeError: cut off"
