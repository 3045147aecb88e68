"""Runners that run tasks more than once, as Spark does: a repeated stage, speculation, a lost answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from tidefold.compute.runners import Runner, TaskAnswer, TaskWork, in_process

Once: TypeAlias = Callable[[str], TaskAnswer]


def _lost(once: Once, task: str) -> TaskAnswer:
    """The first answer is lost, and the second one counts."""
    once(task)
    return once(task)


def _late(once: Once, task: str) -> TaskAnswer:
    """The first answer counts, and its copy ends after it."""
    answer = once(task)
    once(task)
    return answer


def _both(once: Once, task: str, counts: int) -> TaskAnswer:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(once, [task, task]))[counts]


WAYS: dict[str, Callable[[Once, str], TaskAnswer]] = {
    "the first answer is lost": _lost,
    "a copy ends after the answer": _late,
    "two at once, the first counts": lambda once, task: _both(once, task, 0),
    "two at once, the second counts": lambda once, task: _both(once, task, 1),
}


def twice(way: str) -> Runner:
    """Runs every task twice, in this way."""

    def run(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        return [WAYS[way](lambda one: in_process(work, [one])[0], task) for task in tasks]

    return run


class Zombies:
    """Runs every task once, and the same tasks again later, when their run has ended."""

    def __init__(self) -> None:
        self._asked: list[tuple[TaskWork, str]] = []

    def __call__(self, work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        self._asked += [(work, task) for task in tasks]
        return in_process(work, tasks)

    def awake(self) -> list[TaskAnswer]:
        asked, self._asked = self._asked, []
        return [answer for work, task in asked for answer in in_process(work, [task])]
