"""The DAG files by themselves: they load at once, and load nothing that only a task needs.

That a real Airflow imports them is in test_scheduled_life.py.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from local_airflow.settings import PROJECT
from tidefold.cli.sample import prepare
from tidefold.errors import InvalidInputError

TAIL = "tidefold_tail"
BACKFILL = "tidefold_backfill"
FILES = sorted((PROJECT / "dags").glob("*.py"))
# In one process, as Airflow does: what one file has loaded costs the next nothing. CPU time: others work here too.
_PARSE = """
import json, runpy, sys, time
import airflow.sdk, airflow.providers.apache.spark.operators.spark_submit, airflow.providers.standard.operators.empty
begun = time.process_time()
found = [runpy.run_path(path) for path in sys.argv[1:]]
seconds = time.process_time() - begun
dags = {v["dag"].dag_id: {"tasks": v["dag"].task_ids, "doc": v["dag"].doc_md} for v in found}
print(json.dumps({"dags": dags, "seconds": seconds, "modules": list(sys.modules)}))
"""


def parse(home: Path, config: Path) -> dict[str, Any]:
    """How long a fresh process takes to read the files, what it has loaded then, and what each of them describes."""
    path = os.pathsep.join(str(PROJECT / folder) for folder in ("include", "plugins"))
    env = {**os.environ, "AIRFLOW_HOME": str(home), "PYTHONPATH": path, "TIDEFOLD_CONFIG": str(config)}
    call = [sys.executable, "-c", _PARSE, *map(str, FILES)]
    done = subprocess.run(call, cwd=PROJECT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("home")
    return parse(home, prepare(home / "demo"))


def test_all_of_them_load_within_a_second(parsed: dict[str, Any]) -> None:
    assert parsed["seconds"] < 1
    assert sorted(parsed["dags"]) == [file.stem for file in FILES]


@pytest.mark.parametrize("heavy", ["pyspark", "tidefold.fold", "great_expectations", "deltalake", "duckdb", "pyarrow"])
def test_they_load_nothing_heavy(parsed: dict[str, Any], heavy: str) -> None:
    assert heavy not in parsed["modules"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_stays_a_description_that_names_every_task(parsed: dict[str, Any], file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 60
    dag = parsed["dags"][file.stem]
    rows = "".join(line.split("|")[1] for line in dag["doc"].splitlines() if line.startswith("|"))
    tasks = {task.rpartition(".")[2] for task in dag["tasks"]}
    assert tasks <= set(rows.replace(",", " ").replace(":", " ").split())


def find_schedule(monkeypatch: pytest.MonkeyPatch, name: str, schedule: str | None) -> str | None:
    """The schedule of a DAG whose own variable has this value; None: it is not set."""
    monkeypatch.setenv("TIDEFOLD_CONFIG", "/nowhere/tidefold.yaml")
    variable = f"TIDEFOLD_{name.removeprefix('tidefold_').upper()}_SCHEDULE"
    if schedule is None:
        monkeypatch.delenv(variable, raising=False)
    else:
        monkeypatch.setenv(variable, schedule)
    dag = runpy.run_path(str(PROJECT / "dags" / f"{name}.py"))["dag"]
    return getattr(dag.schedule, "expression", None)


@pytest.mark.parametrize("name", [TAIL, "tidefold_maintenance", "tidefold_drill", "tidefold_report"])
def test_what_runs_often_or_removes_waits_for_a_schedule(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert [find_schedule(monkeypatch, name, given) for given in (None, "", "*/5 * * * *")] == [
        None,
        None,
        "*/5 * * * *",
    ]


def test_what_looks_for_damage_runs_unless_it_is_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [find_schedule(monkeypatch, "tidefold_scrub", given) for given in (None, "", "*/5 * * * *")] == [
        "0 0 * * 0",
        None,
        "*/5 * * * *",
    ]


def test_a_backfill_is_of_days_unless_a_schedule_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [find_schedule(monkeypatch, BACKFILL, given) for given in (None, "0 6 * * 1")] == ["0 0 * * *", "0 6 * * 1"]


def test_a_configuration_that_cannot_be_is_an_import_error_with_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bad input 1 to 28 at the DAG: nothing is started."""
    (tmp_path / "tidefold.yaml").write_text("version: 1\nstoer: x\n")
    monkeypatch.setenv("TIDEFOLD_CONFIG", str(tmp_path / "tidefold.yaml"))
    for file in FILES:
        with pytest.raises(InvalidInputError, match=r"(?s)\[CONFIG_INVALID\].*stoer"):
            runpy.run_path(str(file))
