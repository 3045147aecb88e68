"""The DAG files by themselves: they load at once, and load nothing that only a task needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_stack import Scene
from demo.watch import DAG
from local_airflow.settings import PROJECT

_PARSE = """
import json, runpy, sys, time
import airflow.sdk, airflow.providers.apache.spark.operators.spark_submit
begun = time.perf_counter()
found = runpy.run_path(sys.argv[1])
seconds = time.perf_counter() - begun
[dag] = [value for value in found.values() if isinstance(value, airflow.sdk.DAG)] or [found["logs"] and next(
    value.dag for value in found.values() if isinstance(value, airflow.sdk.BaseOperator))]
chain = {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks}
schedule = None if dag.schedule is None else dag.schedule.expression
print(json.dumps({"seconds": seconds, "modules": list(sys.modules), "dag": dag.dag_id, "chain": chain,
    "schedule": schedule, "doc": dag.doc_md}))
"""


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """How long a fresh process takes to read the file, and what it has loaded then."""
    home = tmp_path_factory.mktemp("home")
    path = os.pathsep.join(str(PROJECT / folder) for folder in ("include", "plugins"))
    env = {**os.environ, "AIRFLOW_HOME": str(home), "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", _PARSE], cwd=PROJECT, env=env, capture_output=True, text=True, check=True
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_it_loads_within_a_second(parsed: dict[str, Any]) -> None:
    assert parsed["seconds"] < 1


@pytest.mark.parametrize("heavy", ["pyspark", "tidefold.fold", "great_expectations", "deltalake", "duckdb", "pyarrow"])
def test_it_loads_nothing_heavy(parsed: dict[str, Any], heavy: str) -> None:
    assert heavy not in parsed["modules"]


def test_it_stays_a_description() -> None:
    assert len(Path(PROJECT / "dags" / "tidefold_materialize.py").read_text().splitlines()) <= 60


def test_airflow_imports_it_without_an_error(scene: Scene) -> None:
    assert scene.airflow.api.import_errors() == []
    dag = scene.airflow.api.get(f"/dags/{DAG}/details")
    assert dag["max_active_runs"] == 1
    assert "Landed changes become published tables" in dag["doc_md"]
