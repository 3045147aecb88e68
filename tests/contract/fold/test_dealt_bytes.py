"""What a run sends to its processes: each plan once, each task once, whatever the number of buckets and change sets."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest

from support import dealing
from support.pipelines import make_pipeline, put
from tidefold.compute.broadcast_work import BroadcastWork, TaskWork
from tidefold.compute.runners import TaskAnswer, in_process, partition_tasks
from tidefold.domain.key_groups import KeyGroups
from tidefold.fold.tasks import FoldWork, serialize_tasks
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.materialize import materialize


def test_bytes_grow_with_buckets_and_change_sets_and_not_with_their_product() -> None:
    """Twice as many of each is twice as much to send. It was four times as much: every task had all change sets."""
    once, buckets, change_sets = (dealing.count_bytes(*size) for size in ((100, 100), (200, 100), (100, 200)))
    both = dealing.count_bytes(200, 200)
    assert both.all - once.all == pytest.approx(buckets.all - once.all + change_sets.all - once.all, rel=0.01)


def test_a_thousand_change_sets_for_a_hundred_buckets() -> None:
    """It was 36 MB in each of Spark's tasks."""
    found = dealing.count_bytes(100, 1_000)
    assert found.shared < 500_000
    assert found.tasks < 100 * 1_500
    assert found.function < 500


def test_one_of_sparks_tasks_carries_its_own_tasks_alone() -> None:
    texts = [f"task {number}" for number in range(10)]
    partitions = partition_tasks(texts, 4)
    assert [[number for number, _ in partition] for partition in partitions] == [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]
    assert sorted(one for partition in partitions for one in partition) == list(enumerate(texts))


def test_a_task_comes_back_as_it_was_dealt() -> None:
    tasks = dealing.tasks_of(10, 20)
    work, texts = serialize_tasks(tasks)
    there = pickle.loads(pickle.dumps(BroadcastWork(work))).work
    for task, text in zip(tasks, texts, strict=True):
        found = there.task(text)
        assert (found.bucket, found.recipes, found.part) == (task.bucket, task.recipes, task.part)
        assert found.plan == task.plan
        assert found.change_sets(found.recipes[0]) == task.change_sets(task.recipes[0])
        assert found.weight == task.weight


def test_a_process_decodes_a_plan_once() -> None:
    tasks = dealing.tasks_of(5, 5)
    work, texts = serialize_tasks(tasks)
    assert len({id(work.task(text).plan) for text in texts}) == 1


def test_the_tasks_of_several_logs_keep_their_plans(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path)
    logs = ["accounts", "tellers"]
    for log in logs:
        put(pipeline, [{"id": number, "text": log} for number in range(20)], log=log)
    seen: list[tuple[int, int, set[str]]] = []

    def run(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        assert isinstance(work, FoldWork)
        found = [work.task(text) for text in tasks]
        seen.append((len(work.plans), len(found), {task.plan.log for task in found}))
        return in_process(work, tasks)

    outcomes = materialize(pipeline, logs, Fold("run"), run)
    assert [outcome.status for outcome in outcomes] == ["staged", "staged"]
    assert [(plans, found) for plans, _, found in seen] == [(2, set(logs))]


def test_a_plan_finds_the_change_sets_of_each_way() -> None:
    [task, *_] = dealing.tasks_of(4, 6, ways=3)
    everything = KeyGroups(0, task.plan.shape.key_groups - 1)
    found = [[task.plan.change_sets[n].sqn for n in task.plan.find_change_sets(way, everything)] for way in range(3)]
    assert found == [[5, 6], [3, 4, 5, 6], [1, 2, 3, 4, 5, 6]]
