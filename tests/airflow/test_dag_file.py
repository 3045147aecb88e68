"""The DAG files by themselves: they load at once, and load nothing that only a task needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from airflow_stack import Scene, wait_until
from demo.watch import DAG
from local_airflow.settings import PROJECT

TAIL = "tidefold_tail"
CHAINS = {
    DAG: ["ingest", "materialize", "quality", "confirm", "subsume", "truncate", "local_retention", "clean", "abort"],
    TAIL: ["ingest", "tail"],
}
_PARSE = """
import json, runpy, sys, time
import airflow.sdk, airflow.providers.apache.spark.operators.spark_submit
begun = time.perf_counter()
found = runpy.run_path(sys.argv[1])
seconds = time.perf_counter() - begun
dag = next(value.dag for value in found.values() if isinstance(value, airflow.sdk.BaseOperator))
tasks = {t.task_id: {"then": sorted(t.downstream_task_ids), "teardown": t.is_teardown} for t in dag.tasks}
said = {"id": dag.dag_id, "tasks": tasks, "schedule": dag.schedule and dag.schedule.expression, "doc": dag.doc_md}
print(json.dumps({**said, "seconds": seconds, "modules": list(sys.modules)}))
"""


def parse(dag: str, home: Path, **env: str) -> dict[str, Any]:
    """How long a fresh process takes to read the file, what it has loaded then, and what the file describes."""
    path = os.pathsep.join(str(PROJECT / folder) for folder in ("include", "plugins"))
    env = {**os.environ, "AIRFLOW_HOME": str(home), "PYTHONPATH": path, **env}
    call = [sys.executable, "-c", _PARSE, f"dags/{dag}.py"]
    done = subprocess.run(call, cwd=PROJECT, env=env, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module", params=[DAG, TAIL])
def parsed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return parse(request.param, tmp_path_factory.mktemp("home"), TIDEFOLD_TAIL_SCHEDULE="")


def test_it_loads_within_a_second(parsed: dict[str, Any]) -> None:
    assert parsed["seconds"] < 1


@pytest.mark.parametrize("heavy", ["pyspark", "tidefold.fold", "great_expectations", "deltalake", "duckdb", "pyarrow"])
def test_it_loads_nothing_heavy(parsed: dict[str, Any], heavy: str) -> None:
    assert heavy not in parsed["modules"]


def test_its_tasks_follow_each_other_and_each_that_may_fail_makes_the_run_red(parsed: dict[str, Any]) -> None:
    chain, tasks = CHAINS[parsed["id"]], parsed["tasks"]
    assert set(tasks) == {*chain, "done"}
    for task, then in pairwise(chain):
        assert tasks[task]["then"] == sorted([then, "done"])
    assert [name for name, task in tasks.items() if task["teardown"]] == [name for name in chain if name == "abort"]


def test_its_page_names_every_task(parsed: dict[str, Any]) -> None:
    rows = "".join(line.split("|")[1] for line in parsed["doc"].splitlines() if line.startswith("|"))
    assert set(parsed["tasks"]) <= set(rows.replace(",", " ").split())


def test_tails_are_taken_by_hand_unless_a_schedule_is_given(tmp_path: Path) -> None:
    assert parse(TAIL, tmp_path, TIDEFOLD_TAIL_SCHEDULE="")["schedule"] is None
    assert parse(TAIL, tmp_path, TIDEFOLD_TAIL_SCHEDULE="*/5 * * * *")["schedule"] == "*/5 * * * *"


@pytest.mark.parametrize("dag", [DAG, TAIL])
def test_it_stays_a_description(dag: str) -> None:
    assert len(Path(PROJECT / "dags" / f"{dag}.py").read_text().splitlines()) <= 60


def test_airflow_imports_them_without_an_error(scene: Scene) -> None:
    assert scene.airflow.api.import_errors() == []
    for name, said in ((DAG, "Landed changes become published tables"), (TAIL, "Recovery points between two")):
        dag = scene.airflow.api.get(f"/dags/{name}/details")
        assert dag["max_active_runs"] == 1
        assert said in dag["doc_md"]


def test_a_run_by_hand_takes_tails_where_there_is_something_new(scene: Scene) -> None:
    """C10. Everything is folded, so there is nothing to take: the run is green and no job was started."""
    scene.follow(datetime.now(UTC) - timedelta(hours=1))
    api = scene.airflow.api
    run = api.call("POST", f"/dags/{TAIL}/dagRuns", {"logical_date": None})["dag_run_id"]
    wait_until(lambda: api.runs(TAIL)[0]["state"] in ("success", "failed"))
    assert api.runs(TAIL)[0]["state"] == "success"
    for task in CHAINS[TAIL]:
        assert {what["result"] for what in api.xcom(TAIL, run, task).values()} == {"nothing"}
