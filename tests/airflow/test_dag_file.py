"""The DAG files by themselves: they load at once, and load nothing that only a task needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from demo.watch import DAG
from local_airflow.settings import PROJECT
from support.airflow_stack import Scene, wait_until
from tidefold.cli.sample import prepare

TAIL = "tidefold_tail"
BACKFILL = "tidefold_backfill"
FILES = sorted((PROJECT / "dags").glob("*.py"))
CHAINS = {
    DAG: ["ingest", "materialize", "quality", "confirm", "subsume", "truncate", "local_retention", "clean", "abort"],
    TAIL: ["ingest", "tail"],
    "tidefold_scrub": ["choose", "scrub"],
    "tidefold_doctor": ["doctor"],
    "tidefold_maintenance": ["subsume", "truncate", "local_retention", "clean"],
    "tidefold_restore": ["restore", "quality", "confirm", "abort"],
    "tidefold_restore_set": ["restore", "quality", "confirm", "abort"],
    BACKFILL: ["as_of", "quality", "confirm", "abort"],
}
# In one process, as Airflow does: what one file has loaded costs the next nothing. CPU time: others work here too.
_PARSE = """
import json, runpy, sys, time
import airflow.sdk, airflow.providers.apache.spark.operators.spark_submit, airflow.providers.standard.operators.empty
begun = time.process_time()
found = [runpy.run_path(path) for path in sys.argv[1:]]
seconds = time.process_time() - begun
said = {}
for values in found:
    dag = values["dag"]
    tasks = {t.task_id: {"then": sorted(t.downstream_task_ids), "teardown": t.is_teardown} for t in dag.tasks}
    schedule = getattr(dag.schedule, "expression", None)
    said[dag.dag_id] = {"tasks": tasks, "schedule": schedule, "doc": dag.doc_md, "runs": dag.max_active_runs}
print(json.dumps({"dags": said, "seconds": seconds, "modules": list(sys.modules)}))
"""


def parse(home: Path, files: Sequence[Path] = FILES, **env: str) -> dict[str, Any]:
    """How long a fresh process takes to read the files, what it has loaded then, and what each of them describes."""
    path = os.pathsep.join(str(PROJECT / folder) for folder in ("include", "plugins"))
    env = {**os.environ, "AIRFLOW_HOME": str(home), "PYTHONPATH": path, **env}
    call = [sys.executable, "-c", _PARSE, *map(str, files)]
    done = subprocess.run(call, cwd=PROJECT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("home")
    return parse(home, TIDEFOLD_CONFIG=str(prepare(home / "demo")))


def test_all_of_them_load_within_a_second(parsed: dict[str, Any]) -> None:
    assert parsed["seconds"] < 1
    assert sorted(parsed["dags"]) == [file.stem for file in FILES]


@pytest.mark.parametrize("heavy", ["pyspark", "tidefold.fold", "great_expectations", "deltalake", "duckdb", "pyarrow"])
def test_they_load_nothing_heavy(parsed: dict[str, Any], heavy: str) -> None:
    assert heavy not in parsed["modules"]


@pytest.mark.parametrize("name", sorted(CHAINS))
def test_its_tasks_follow_each_other(parsed: dict[str, Any], name: str) -> None:
    chain, tasks = CHAINS[name], parsed["dags"][name]["tasks"]
    assert set(tasks) - set(chain) <= {"choose", "alarms", "done"}
    for task, then in pairwise(chain):
        assert then in tasks[task]["then"]
    assert [task for task, how in tasks.items() if how["teardown"]] == [task for task in chain if task == "abort"]


@pytest.mark.parametrize("name", [DAG, TAIL, "tidefold_maintenance"])
def test_each_task_that_may_fail_makes_the_run_red(parsed: dict[str, Any], name: str) -> None:
    tasks = parsed["dags"][name]["tasks"]
    assert [task for task, how in tasks.items() if "done" not in how["then"] and not how["teardown"]] == ["done"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_stays_a_description_that_names_every_task(parsed: dict[str, Any], file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 60
    dag = parsed["dags"][file.stem]
    rows = "".join(line.split("|")[1] for line in dag["doc"].splitlines() if line.startswith("|"))
    assert set(dag["tasks"]) <= set(rows.replace(",", " ").split())


def test_what_runs_often_or_removes_waits_for_a_schedule(tmp_path: Path) -> None:
    names = {
        TAIL: "TAIL",
        "tidefold_maintenance": "MAINTENANCE",
        "tidefold_drill": "DRILL",
        "tidefold_report": "REPORT",
        "tidefold_scrub": "SCRUB",
        "tidefold_doctor": "DOCTOR",
    }
    files = [file for file in FILES if file.stem in names]
    off = parse(tmp_path, files, **{f"TIDEFOLD_{name}_SCHEDULE": "" for name in names.values()})
    assert {dag["schedule"] for dag in off["dags"].values()} == {None}
    on = parse(tmp_path, files, **{f"TIDEFOLD_{name}_SCHEDULE": "*/5 * * * *" for name in names.values()})
    assert {dag["schedule"] for dag in on["dags"].values()} == {"*/5 * * * *"}


def test_a_configuration_that_cannot_be_is_an_import_error_with_its_code(tmp_path: Path) -> None:
    """Bad input 1 to 28 at the DAG: nothing is started."""
    (tmp_path / "tidefold.yaml").write_text("version: 1\nstoer: x\n")
    with pytest.raises(AssertionError, match=r"(?s)\[CONFIG_INVALID\].*stoer"):
        parse(tmp_path, TIDEFOLD_CONFIG=str(tmp_path / "tidefold.yaml"))


def test_a_scrub_is_weekly_unless_a_schedule_is_given(tmp_path: Path) -> None:
    file = PROJECT / "dags" / "tidefold_scrub.py"
    assert parse(tmp_path, [file])["dags"]["tidefold_scrub"]["schedule"] == "0 0 * * 0"


def test_a_backfill_is_of_days_unless_a_schedule_is_given(tmp_path: Path) -> None:
    file = PROJECT / "dags" / f"{BACKFILL}.py"
    assert parse(tmp_path, [file])["dags"][BACKFILL]["schedule"] == "0 0 * * *"
    weekly = parse(tmp_path, [file], TIDEFOLD_BACKFILL_SCHEDULE="0 6 * * 1")
    assert weekly["dags"][BACKFILL]["schedule"] == "0 6 * * 1"


def test_airflow_imports_them_without_an_error(scene: Scene) -> None:
    assert scene.airflow.api.import_errors() == []
    assert {dag["dag_id"] for dag in scene.airflow.api.dags()} == {file.stem for file in FILES}
    for name, said in ((DAG, "Publishes tables from landed changes"), (TAIL, "recovery points between two")):
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
