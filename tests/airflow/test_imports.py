"""What a task process imports to read our DAG file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from local_airflow.settings import PROJECT
from support.pipelines import CONFIG
from tidefold_airflow import preload
from tidefold_airflow.operators import run_context

_SCRIPT = """
import sys
import tidefold_airflow.dags.factory
assert not [name for name in sys.modules if name.startswith("openlineage")], "OpenLineage was imported"

from airflow.providers.apache.spark.operators import spark_submit
from airflow.providers.openlineage.utils import spark

assert spark.__file__, "the module itself can be imported later"
called = []
spark.inject_parent_job_information_into_spark_properties = lambda *given: called.append(given) or {"a": "b"}
assert spark_submit.inject_parent_job_information_into_spark_properties({}, None) == {"a": "b"}
assert called == [({}, None)]
"""


def test_a_dag_file_is_read_without_openlineage_whose_functions_still_work(tmp_path: Path) -> None:
    env = {**os.environ, "AIRFLOW_HOME": str(tmp_path), "PYTHONPATH": f"{PROJECT}/include:{PROJECT}/plugins"}
    done = subprocess.run([sys.executable, "-c", _SCRIPT], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_configuration_is_read_before_the_forks_and_again_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tidefold.yaml"
    path.write_text(CONFIG)
    monkeypatch.setenv("TIDEFOLD_CONFIG", str(path))
    monkeypatch.setattr(run_context, "_configs", {})
    monkeypatch.setattr(sys, "argv", ["airflow", "dag-processor"])
    preload.on_starting(type("Job", (), {})())
    [known] = run_context._configs.values()
    assert run_context.read_config(path) is known
    path.write_text(CONFIG.replace("accounts:", "accounts_too:"))
    assert "accounts_too" in run_context.read_config(path).logs
    # Each DAG file says what is wrong with it.
    path.write_text("logs: 1")
    preload.on_starting(type("Job", (), {})())
