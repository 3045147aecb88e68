"""The wiring of the DAGs, without a scheduler: which tasks wait for which, when a task starts, what turns a run red."""

from __future__ import annotations

import runpy
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from local_airflow.settings import PROJECT
from support.pipelines import CONFIG
from tidefold_airflow.dags.factory import Options, tidefold_dag, tidefold_group
from tidefold_airflow.operators.base import list_steps_before

RETENTION = ["subsume", "truncate", "local_retention", "clean"]
GROUPED = [f"retention.{task}" for task in RETENTION]
STAGING = ["ingest", "materialize", "quality", "confirm"]
# The order of the tasks, in which each waits for the one before it.
CHAINS = {
    "tidefold_materialize": ["choose", *STAGING, *GROUPED, "alarms"],
    "tidefold_maintenance": RETENTION,
    "tidefold_tail": ["ingest", "tail"],
    "tidefold_restore": ["restore", "quality", "confirm", "abort"],
    "tidefold_restore_set": ["choose", "restore", "quality", "confirm", "abort"],
    "tidefold_backfill": ["as_of", "quality", "confirm", "abort"],
    "tidefold_plan": ["plan", "apply"],
}
# The tasks that may leave something staged: `abort` waits for each, also if a person marks or skips one between them.
ABORTED = {
    "tidefold_materialize": STAGING[1:],
    "tidefold_restore": ["restore", "quality", "confirm"],
    "tidefold_restore_set": ["restore", "quality", "confirm"],
    "tidefold_backfill": ["as_of", "quality", "confirm"],
}
# Skipped tasks had nothing to do. In the others no task is skipped.
REDDENS = {
    "tidefold_maintenance": "none_failed",
    "tidefold_tail": "none_failed",
    "tidefold_backfill": "none_failed",
}
# What the others do does not end because one log failed; where all before it failed, the logs are unknown.
RULES = {
    # A task that is skipped for want of work skips none after it.
    "tidefold_materialize": dict.fromkeys([*STAGING[1:], *GROUPED, "read_back"], "all_done")
    | {"ingest": "all_success"},
    # What a person rejects is skipped, and so is what comes after it.
    "tidefold_maintenance": dict.fromkeys(RETENTION, "none_skipped"),
    "tidefold_tail": dict.fromkeys(["ingest", "tail"], "all_done"),
    "tidefold_backfill": dict.fromkeys(["as_of", "quality", "confirm"], "all_done"),
    "tidefold_restore": dict.fromkeys(["restore", "quality", "confirm"], "all_success"),
    "tidefold_restore_set": dict.fromkeys(["choose", "restore", "quality", "confirm"], "all_success"),
    # Without an edit `plan` is skipped, and nobody is asked.
    "tidefold_plan": dict.fromkeys(["plan", "apply"], "all_success"),
}


@pytest.fixture(scope="module")
def dags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The DAGs of `dags/` by name."""
    config = tmp_path_factory.mktemp("wiring") / "tidefold.yaml"
    config.write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEFOLD_CONFIG", str(config))
        found = [runpy.run_path(str(file))["dag"] for file in (PROJECT / "dags").glob("*.py")]
    return {dag.dag_id: dag for dag in found}


@pytest.mark.parametrize("name", CHAINS)
def test_each_task_waits_for_the_one_before_it(dags: dict[str, Any], name: str) -> None:
    for before, after in pairwise(CHAINS[name]):
        assert before in dags[name].get_task(after).upstream_task_ids
    # Nothing later in the chain comes earlier by another way.
    for task in CHAINS[name]:
        later = CHAINS[name][CHAINS[name].index(task) :]
        assert not set(later) & dags[name].get_task(task).upstream_task_ids


@pytest.mark.parametrize("name", ABORTED)
def test_abort_waits_for_each_task_that_may_leave_something_staged(dags: dict[str, Any], name: str) -> None:
    abort = dags[name].get_task("abort")
    assert set(ABORTED[name]) <= abort.upstream_task_ids
    # It runs after whatever happened, and hides no failure of a task before it.
    assert (abort.is_teardown, abort.on_failure_fail_dagrun, abort.trigger_rule) == (
        True,
        False,
        "all_done_setup_success",
    )


@pytest.mark.parametrize("name", REDDENS)
def test_each_task_that_fails_turns_the_run_red(dags: dict[str, Any], name: str) -> None:
    done = dags[name].get_task("done")
    assert done.upstream_task_ids - {"abort"} == {task.task_id for task in dags[name].tasks} - {"done", "abort"}
    assert done.trigger_rule == REDDENS[name]


@pytest.mark.parametrize("name", RULES)
def test_a_task_starts_after_a_failure_of_one_log_where_the_others_can_continue(
    dags: dict[str, Any], name: str
) -> None:
    assert {task: dags[name].get_task(task).trigger_rule for task in RULES[name]} == RULES[name]


def test_the_graph_is_a_line_for_the_data_and_few_lines_beside_it(dags: dict[str, Any]) -> None:
    tasks = dags["tidefold_materialize"].tasks
    assert (len(tasks), sum(len(task.downstream_task_ids) for task in tasks)) == (12, 16)


def test_the_last_task_knows_how_each_other_ended_and_decides_the_run(dags: dict[str, Any]) -> None:
    dag = dags["tidefold_materialize"]
    alarms = dag.get_task("alarms")
    assert {task.task_id for task in list_steps_before(alarms)} == {*dag.task_ids} - {"alarms"}
    assert (alarms.is_teardown, alarms.on_failure_fail_dagrun, alarms.decides_run) == (True, True, True)
    assert alarms.downstream_task_ids == set()


def test_what_follows_a_group_waits_for_its_publication_alone(tmp_path: Path) -> None:
    with DAG("mine", schedule=None) as dag:
        before, after = EmptyOperator(task_id="before"), EmptyOperator(task_id="after")
        before >> tidefold_group(options=Options(config=str(tmp_path / "tidefold.yaml"))) >> after
    assert dag.get_task("after").upstream_task_ids == {"tidefold.published"}
    assert dag.get_task("before").downstream_task_ids == {"tidefold.choose"}
    assert dag.get_task("tidefold.published").upstream_task_ids == {"tidefold.read_back", "tidefold.retention.clean"}


def test_a_step_that_finds_nothing_to_do_skips_those_after_it(dags: dict[str, Any]) -> None:
    tasks = dags["tidefold_materialize"].tasks
    assert [task.task_id for task in tasks if getattr(task, "skip_idle", False)] == [
        "choose", "ingest", "retention.subsume",
    ]  # fmt: skip


def test_a_gate_that_refused_is_not_asked_twice(dags: dict[str, Any]) -> None:
    retries = {name: dag.get_task("quality").retries for name, dag in dags.items() if "quality" in dag.task_ids}
    assert retries == dict.fromkeys(retries, 0)
    assert len(retries) == 4


def test_each_step_that_may_wait_knows_who_asks(tmp_path: Path) -> None:
    dag = tidefold_dag("shop", schedule=None, approval=timedelta(hours=1), config=str(tmp_path / "tidefold.yaml"))
    asking = {task: dag.get_task(task) for task in ("materialize", "quality", "confirm", "abort")}
    named = {
        name: task.partial_kwargs["approval_dag"] if task.is_mapped else task.approval_dag
        for name, task in asking.items()
    }
    assert named == dict.fromkeys(asking, "shop_approval")
