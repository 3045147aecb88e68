"""Runners in this process during which something else happens, or whose tasks use the store of the driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidefold.compute.runners import Runner, TaskAnswer, TaskWork, in_process
from tidefold.fold import inputs
from tidefold.operations.ground.pipeline import Pipeline


def run_then(act: Callable[[], object]) -> Runner:
    """A runner in this process that calls `act` between the work and its answers."""

    def run(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        answers = in_process(work, tasks)
        act()
        return answers

    return run


def run_through_store(pipeline: Pipeline) -> Runner:
    """A runner whose tasks write through the same (failing) store as the driver."""

    def run(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        opened = inputs.open_store
        inputs.open_store = lambda address, base: pipeline.store  # type: ignore[assignment]
        try:
            return in_process(work, tasks)
        finally:
            inputs.open_store = opened

    return run
