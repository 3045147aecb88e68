"""The doctor imports DAG files in a process of its own, at a terminal and in a task."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_airflow.settings import PROJECT
from support.pipelines import make_pipeline
from tidefold.operations.doctor.airflow_setup import probe_airflow


@pytest.mark.parametrize("is_task", [False, True])
def test_dag_files_are_really_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_task: bool) -> None:
    """A task such as Airflow's BashOperator calls it, too: there Airflow hides its database."""
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
    found = probe_airflow(PROJECT, pipeline.config.path)
    assert found.error == ""
    assert (found.dags, found.has_connection) == (1, None)
    [(file, error)] = found.import_errors.items()
    assert Path(file).name == "bad.py"
    assert error == "RuntimeError: cut off"
