"""A task that ends in the middle of a fold, under the real scheduler: killed, or marked as failed by a person."""

from __future__ import annotations

import json
from dataclasses import dataclass

import psutil
import pytest

from support.airflow_shop import FirstRun, Ran, Shop, wait_for
from tidefold.compute.runners import in_process
from tidefold.domain.log_state import Snapshot, State
from tidefold.operations.ingest.ingest import ingest


@dataclass(frozen=True)
class Killed:
    """A run: the process of its task died, then the Spark of the next try. `dead`: the attempts of both."""

    run: Ran
    dead: list[Snapshot]


@dataclass(frozen=True)
class Marked:
    """A run whose task was marked as failed, and the stored tables before and after it."""

    run: Ran
    before: dict[str, str]
    after: dict[str, str]


def _change(shop: Shop, key: int, text: str) -> None:
    """Lands a change of `items` and takes it in, so that only the fold has work for Spark."""
    shop.change("items", {key: text})
    ingest(shop.pipeline, ["items"], in_process)


def _await_fold(shop: Shop, run: Ran, after: Snapshot | None = None) -> Snapshot:
    """Waits until a task folds a new attempt of the run, and returns the attempt."""
    found: list[Snapshot] = []

    def folds() -> bool:
        attempt = shop.state("items").open_attempt
        is_new = attempt and attempt.run == run.name and attempt.state is State.ONGOING and attempt != after
        found[:] = [attempt] if attempt and is_new else []
        return bool(found)

    wait_for(folds, lambda: json.dumps(run.tasks), every=0.1)
    return found[0]


@pytest.fixture(scope="module")
def killed(shop: Shop, first: FirstRun) -> Killed:
    """The process of the task dies, then the Spark of its second try, which waits for the next Spark and folds anew."""
    _change(shop, 7, "g")
    with shop.occupied_server():
        run = shop.trigger(logs=["items"])
        attempt = _await_fold(shop, run)
        [task] = shop.connected()
        task.kill()
        dead = [attempt, _await_fold(shop, run, after=attempt)]
        shop.kill_server()
    return Killed(run.green(), dead)


@pytest.fixture(scope="module")
def marked(shop: Shop, killed: Killed) -> Marked:
    _change(shop, 8, "h")
    before = shop.files("tables")
    with shop.occupied_server():
        run = shop.trigger(logs=["items"])
        _await_fold(shop, run)
        shop.airflow.api.set_task_state(run.dag, run.id, "materialize", "failed")
        wait_for(lambda: not shop.connected(), lambda: "a task is left", every=0.2)
    return Marked(run.red(), before, shop.files("tables"))


def test_a_killed_task_is_tried_again_and_makes_one_snapshot(shop: Shop, killed: Killed) -> None:
    """By kill -9 of the process that runs the task, then of Spark, which costs no try."""
    [task] = [one for one in killed.run.instances if one["task_id"] == "materialize"]
    assert task["try_number"] == 2
    [*dead, made] = [s for s in shop.state("items").snapshots if s.run == killed.run.name]
    assert [(s.id, s.state) for s in dead] == [(s.id, State.ABORTED) for s in killed.dead]
    assert made.published
    assert made.epoch > dead[-1].epoch > dead[0].epoch
    assert shop.shown("items") == shop.held["items"]


def test_nothing_is_left_of_the_dead_try(shop: Shop, killed: Killed) -> None:
    marks = [f".s{attempt.id:010d}." for attempt in killed.dead]
    assert [path for path in shop.files() if "/items/" in path and any(mark in path for mark in marks)] == []


def test_a_task_that_a_person_marks_as_failed_is_aborted_and_the_run_red(shop: Shop, marked: Marked) -> None:
    keeping = [f"retention.{task}" for task in ("truncate", "local_retention", "clean")]
    states = {task: state for task, state in marked.run.tasks.items() if task not in keeping}
    assert states == {
        "choose": "success",
        "ingest": "success",
        "materialize": "failed",
        "quality": "success",
        "confirm#0": "failed",
        "read_back": "success",
        "retention.subsume": "success",
        "alarms": "failed",
        "abort": "success",
    }
    mine = [s for s in shop.state("items").snapshots if s.run == marked.run.name]
    assert {s.state for s in mine} == {State.ABORTED}
    assert {path: marked.after.get(path) for path in marked.before} == marked.before


def test_no_orphan_outlives_its_task(shop: Shop, marked: Marked) -> None:
    wait_for(lambda: not [p for p in psutil.process_iter() if _is_orphan(shop, p)], lambda: "orphans", 30)


def _is_orphan(shop: Shop, process: psutil.Process) -> bool:
    """A Spark process of this pipeline that nobody started any more."""
    try:
        return str(shop.folder) in " ".join(process.cmdline()) and process.ppid() == 1 and "java" in process.name()
    except psutil.Error:
        return False
