"""Attempts, time-outs and late answers. Requirement C3, C4."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.writing import FakeTimer, InlineExecutor, ManualExecutor
from tidefold.changelog.writer.retry import AttemptTimeoutError, RetryingExecutor, RetryPolicy
from tidefold.changelog.writer.settings import Metrics
from tidefold.errors import CorruptError, InvalidInputError, StorageError


class Recorder:
    """An action whose attempts do what the test says, and that records what is asked of it."""

    def __init__(self, *attempts: Callable[[], str]) -> None:
        self.attempts = list(attempts)
        self.begun = 0
        self.completed: list[str] = []
        self.discarded: list[str] = []
        self.failures: list[Exception] = []

    def attempt(self) -> str:
        act = self.attempts[self.begun]
        self.begun += 1
        return act()

    def complete(self, result: str) -> None:
        self.completed.append(result)

    def discard(self, result: str) -> None:
        self.discarded.append(result)

    def fail(self, error: Exception) -> None:
        self.failures.append(error)


def raising(error: Exception) -> Callable[[], str]:
    def act() -> str:
        raise error

    return act


FULL = raising(StorageError("STORAGE", "full"))


@pytest.fixture
def timer() -> FakeTimer:
    return FakeTimer()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def retrying(timer: FakeTimer, metrics: Metrics, attempts: int, timeout: float = 0.0, delay: float = 0.0):
    return RetryingExecutor(RetryPolicy(attempts, timeout, delay), InlineExecutor(), timer, metrics)


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_no_more_attempts_than_allowed(timer: FakeTimer, metrics: Metrics, limit: int) -> None:
    """C3."""
    action = Recorder(*[FULL] * 9)
    retrying(timer, metrics, limit).execute(action)
    assert action.begun == limit
    assert [type(error) for error in action.failures] == [StorageError]
    assert metrics.read().attempts.count == 0


def test_an_attempt_that_succeeds_ends_it(timer: FakeTimer, metrics: Metrics) -> None:
    """C3, C4."""
    action = Recorder(FULL, FULL, lambda: "third")
    retrying(timer, metrics, 5).execute(action)
    assert (action.begun, action.completed, action.failures) == (3, ["third"], [])
    assert (metrics.read().attempts.high, metrics.read().total_attempts.high) == (3, 3)


def test_the_next_attempt_waits_for_the_delay(timer: FakeTimer, metrics: Metrics) -> None:
    action = Recorder(FULL, lambda: "second")
    retrying(timer, metrics, 5, delay=10.0).execute(action)
    timer.move(9.9)
    assert action.begun == 1
    timer.move(0.1)
    assert action.completed == ["second"]


@pytest.mark.parametrize("error", [InvalidInputError("X", "x"), CorruptError("X", "x"), ValueError("x")])
def test_an_error_that_will_not_pass_is_not_tried_again(timer: FakeTimer, metrics: Metrics, error: Exception) -> None:
    action = Recorder(raising(error))
    retrying(timer, metrics, 5).execute(action)
    assert (action.begun, action.failures) == (1, [error])


def test_system_errors_are_tried_again(timer: FakeTimer, metrics: Metrics) -> None:
    action = Recorder(raising(OSError(5, "I/O")), lambda: "second")
    retrying(timer, metrics, 2).execute(action)
    assert action.completed == ["second"]


def slow(timer: FakeTimer, seconds: float, result: str) -> Callable[[], str]:
    """An attempt during which time passes: what is due meanwhile happens, as on another thread."""

    def act() -> str:
        timer.move(seconds)
        return result

    return act


def test_an_attempt_beside_one_that_takes_too_long(timer: FakeTimer, metrics: Metrics) -> None:
    """C3: the first to succeed counts; the other's late success is discarded, not counted."""
    action = Recorder(slow(timer, 5.0, "first"), lambda: "second")
    retrying(timer, metrics, 3, timeout=2.0).execute(action)
    assert action.begun == 2
    assert (action.completed, action.discarded, action.failures) == (["second"], ["first"], [])
    assert metrics.read().total_attempts.high == 2
    assert metrics.read().attempts.count == 1


def test_a_late_success_counts_while_another_attempt_still_runs(timer: FakeTimer, metrics: Metrics) -> None:
    """C3: the first to succeed, whichever it is."""
    executor = ManualExecutor()
    action = Recorder(slow(timer, 5.0, "first"), lambda: "second")
    RetryingExecutor(RetryPolicy(3, 2.0, 0.0), executor, timer, metrics).execute(action)
    executor.work.pop(0)()
    assert action.completed == ["first"]
    executor.run()
    assert (action.begun, action.discarded) == (1, [])  # What is settled is not begun any more.


def test_a_success_after_the_last_time_out_is_discarded(timer: FakeTimer, metrics: Metrics) -> None:
    """C3: it was reported as failed, so it must not count."""
    action = Recorder(slow(timer, 5.0, "late"))
    retrying(timer, metrics, 1, timeout=2.0).execute(action)
    assert [type(error) for error in action.failures] == [AttemptTimeoutError]
    assert (action.completed, action.discarded) == ([], ["late"])


def test_an_error_after_the_time_out_is_not_another_failure(timer: FakeTimer, metrics: Metrics) -> None:
    """C3: one attempt gives up its hope once."""

    def late_error() -> str:
        timer.move(5.0)
        raise StorageError("STORAGE", "full")

    action = Recorder(late_error, FULL, lambda: "third")
    retrying(timer, metrics, 3, timeout=2.0).execute(action)
    assert (action.begun, action.completed, action.failures) == (3, ["third"], [])


def test_a_time_out_and_a_late_error_ask_for_one_more_attempt_only(timer: FakeTimer, metrics: Metrics) -> None:
    """C3, C4."""

    def late_error() -> str:
        timer.move(5.0)
        raise StorageError("STORAGE", "full")

    executor = ManualExecutor()
    action = Recorder(late_error, lambda: "second")
    RetryingExecutor(RetryPolicy(5, 2.0, 0.0), executor, timer, metrics).execute(action)
    executor.work.pop(0)()
    assert len(executor.work) == 1
    executor.run()
    assert (action.completed, metrics.read().total_attempts.high) == (["second"], 2)


def test_closing_fails_what_waits_for_its_next_attempt(timer: FakeTimer, metrics: Metrics) -> None:
    retry = retrying(timer, metrics, 5, delay=10.0)
    action = Recorder(FULL, lambda: "second")
    retry.execute(action)
    retry.close()
    assert len(action.failures) == 1
    timer.move(100.0)
    assert action.begun == 1


def test_an_executor_that_was_shut_down_fails_the_next_attempt(timer: FakeTimer, metrics: Metrics) -> None:
    executor = ManualExecutor()

    def shut() -> str:
        executor.down = True
        raise StorageError("STORAGE", "full")

    action = Recorder(shut)
    RetryingExecutor(RetryPolicy(3, 0.0, 0.0), executor, timer, metrics).execute(action)
    executor.run()
    assert len(action.failures) == 1
