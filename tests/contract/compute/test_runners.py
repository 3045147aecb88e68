"""The runners that need no Spark pass the suite of all runners. tests/spark/test_runner_on_spark.py has Spark's."""

from __future__ import annotations

import threading

import pytest

from support.runner_contract import RunnerContract
from support.spark_work import double
from tidefold.compute.runners import Runner, in_process, in_threads


class TestInProcess(RunnerContract):
    @pytest.fixture
    def runner(self) -> Runner:
        return in_process


class TestInThreads(RunnerContract):
    @pytest.fixture
    def runner(self) -> Runner:
        return in_threads()

    def test_it_tells_how_many_are_done(self) -> None:
        told: list[tuple[int, int]] = []
        in_threads(lambda done, total: told.append((done, total)))(double, ["a", "bad", "b"])
        assert told == [(1, 3), (2, 3), (3, 3)]

    def test_tasks_run_side_by_side(self) -> None:
        """Each waits for another one, so that none would end alone."""
        meeting = threading.Barrier(2, timeout=30)

        def meet(text: str) -> str:
            meeting.wait()
            return text

        assert in_threads()(meet, ["a", "b"]) == ["a", "b"]
