"""Runners during which something else happens: the tasks have run, and their answers have not arrived yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidefold.compute.runners import Answer, Runner, Work, in_process


def run_then(act: Callable[[], object]) -> Runner:
    """A runner in this process that calls `act` between the work and its answers."""

    def run(work: Work, tasks: Sequence[str]) -> list[Answer]:
        answers = in_process(work, tasks)
        act()
        return answers

    return run
