"""Repeats an action after a transient error, or starts another attempt if one takes too long (C3).

The first attempt that succeeds counts, and a later success is discarded. The action fails when no attempt is left
that could succeed in time.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeVar

from tidefold.changelog.writer.settings import Metrics
from tidefold.domain.uploads import AttemptTimeoutError as AttemptTimeoutError
from tidefold.domain.uploads import RetryPolicy as RetryPolicy

_LOGGER = logging.getLogger(__name__)
Cancel = Callable[[], None]
T = TypeVar("T")


class Timer(Protocol):
    """A monotonic clock in seconds, with delayed calls. Tests have their own."""

    def now(self) -> float: ...

    def call_later(self, delay: float, act: Callable[[], None]) -> Cancel:
        """Calls `act` once after `delay` seconds, from any thread, unless the returned function is called before."""
        ...

    def close(self) -> None:
        """Cancels all future calls."""
        ...


class ThreadTimer:
    """A timer with its own thread, started with the first call. Calls must be short, because others wait for them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False

    def now(self) -> float:
        return time.monotonic()

    def call_later(self, delay: float, act: Callable[[], None]) -> Cancel:
        with self._changed:
            number = next(self._numbers)
            if self._closed:
                return lambda: None
            heapq.heappush(self._calls, (self.now() + delay, number, act))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="changelog-timer", daemon=True)
                self._thread.start()
            self._changed.notify()
        return lambda: self._cancel(number)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._calls.clear()
            self._changed.notify()

    def _cancel(self, number: int) -> None:
        with self._changed:
            self._calls = [call for call in self._calls if call[1] != number]
            heapq.heapify(self._calls)

    def _run(self) -> None:
        while (act := self._next()) is not None:
            try:
                act()
            except Exception:
                _LOGGER.exception("A timed call failed")

    def _next(self) -> Callable[[], None] | None:
        """Waits for the next call that is due; None if the timer was closed."""
        with self._changed:
            while not self._closed:
                if not self._calls:
                    self._changed.wait()
                elif (left := self._calls[0][0] - self.now()) > 0:
                    self._changed.wait(left)
                else:
                    return heapq.heappop(self._calls)[2]
        return None


class RetryableAction(Protocol[T]):
    """The action to try. Attempts may run at the same time. `complete` or `fail` is called exactly once."""

    def attempt(self) -> T:
        """Tries once, and cleans up if it raises."""
        ...

    def complete(self, result: T) -> None: ...

    def discard(self, result: T) -> None:
        """Undoes an attempt that succeeded too late."""
        ...

    def fail(self, error: Exception) -> None: ...


class RetryingExecutor:
    """Runs actions on an executor, under a policy."""

    def __init__(self, policy: RetryPolicy, executor: Executor, timer: Timer, metrics: Metrics) -> None:
        self.policy = policy
        self.executor = executor
        self.timer = timer
        self.metrics = metrics
        self._lock = threading.Lock()
        self._closed = False
        self._delayed: dict[int, tuple[Cancel, Callable[[], None]]] = {}
        self._numbers = itertools.count()

    def execute(self, action: RetryableAction[T]) -> None:
        """Starts the first attempt. Raises RuntimeError if the executor accepts no more work."""
        self.executor.submit(_Run(action, self).attempt, 1)

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Stops retrying. Actions that wait for their next attempt fail."""
        with self._lock:
            self._closed = True
            delayed = list(self._delayed.values())
            self._delayed.clear()
        for cancel, end in delayed:
            cancel()
            end()

    def later(self, delay: float, begin: Callable[[], None], end: Callable[[], None]) -> None:
        """Calls `begin` after the delay, or `end` if the executor is closed before."""
        with self._lock:
            if not self._closed:
                number = next(self._numbers)
                cancel = self.timer.call_later(delay, lambda: self._due(number, begin))
                self._delayed[number] = (cancel, end)
                return
        end()

    def _due(self, number: int, begin: Callable[[], None]) -> None:
        with self._lock:
            waited = self._delayed.pop(number, None)
        if waited is not None:
            begin()


class _Run(Generic[T]):
    """All attempts of one action."""

    def __init__(self, action: RetryableAction[T], owner: RetryingExecutor) -> None:
        self._action = action
        self._owner = owner
        self._lock = threading.Lock()
        self._settled = False
        self._hopes = 1  # Attempts that have neither failed nor timed out, begun or to come.
        self._total = 1
        self._over: set[int] = set()

    def attempt(self, number: int) -> None:
        with self._lock:
            if self._settled:
                return
        cancel = self._watch(number)
        try:
            result = self._action.attempt()
        except Exception as error:
            self._fail(number, error)
        else:
            self._complete(number, result)
        finally:
            cancel()

    def _watch(self, number: int) -> Cancel:
        seconds = self._owner.policy.timeout
        if not seconds:
            return lambda: None
        error = AttemptTimeoutError("ATTEMPT_TIMED_OUT", f"Attempt {number} to upload took over {seconds:g} s.")
        return self._owner.timer.call_later(seconds, lambda: self._fail(number, error))

    def _complete(self, number: int, result: T) -> None:
        with self._lock:
            first, self._settled, total = not self._settled, True, self._total
        if first:
            self._owner.metrics.attempts.add(number)
            self._owner.metrics.total_attempts.add(total)
            self._action.complete(result)
        else:
            _LOGGER.warning("Attempt %d succeeded too late; what it wrote is removed", number)
            self._action.discard(result)

    def _fail(self, number: int, error: Exception) -> None:
        with self._lock:
            if self._settled or number in self._over:
                return
            self._over.add(number)
            delay = None if self._owner.closed else self._owner.policy.delay_after(number, error)
            if delay is None:
                self._hopes -= 1
            else:
                # The next attempt takes over this one's hope.
                self._total += 1
            lost = self._settled = self._hopes == 0
        if lost:
            self._action.fail(error)
        elif delay is not None:
            _LOGGER.warning("Attempt %d failed, another follows: %s", number, error)
            self._again(number + 1, delay, error)

    def _again(self, number: int, delay: float, error: Exception) -> None:
        if delay:
            self._owner.later(delay, lambda: self._submit(number, error), lambda: self._give_up(error))
        else:
            self._submit(number, error)

    def _submit(self, number: int, error: Exception) -> None:
        try:
            self._owner.executor.submit(self.attempt, number)
        except RuntimeError:
            # The executor was shut down meanwhile, so this attempt never starts.
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        with self._lock:
            lost, self._settled = not self._settled, True
        if lost:
            self._action.fail(error)


class _InlineExecutor(Executor):
    """Runs work in the thread that submits it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        fn(*args, **kwargs)
        return Future()


class _Awaited(Generic[T]):
    """An action whose caller waits for the result."""

    def __init__(self, act: Callable[[], T], discard: Callable[[T], None], metrics: Metrics) -> None:
        self.answer: Future[T] = Future()
        self._act = act
        self._discard = discard
        self._metrics = metrics

    def attempt(self) -> T:
        self._metrics.upload_begun()
        begun = time.monotonic()
        try:
            result = self._act()
        except Exception:
            self._metrics.upload_failed()
            raise
        self._metrics.latency.add(time.monotonic() - begun)
        return result

    def complete(self, result: T) -> None:
        self.answer.set_result(result)

    def discard(self, result: T) -> None:
        self._discard(result)

    def fail(self, error: Exception) -> None:
        self.answer.set_exception(error)


def run_attempts(policy: RetryPolicy, act: Callable[[], T], discard: Callable[[T], None], metrics: Metrics) -> T:
    """Runs an upload under a policy and waits for it: the way of all segments that no writer of a program uploads.

    act: tries once, and cleans up if it raises. Each attempt writes under a name of its own.
    discard: undoes an attempt that succeeded too late.
    Without a time-out, the first attempt runs in this thread.
    """
    awaited = _Awaited(act, discard, metrics)
    timer = ThreadTimer()
    executor = ThreadPoolExecutor(policy.attempts) if policy.timeout else _InlineExecutor()
    try:
        RetryingExecutor(policy, executor, timer, metrics).execute(awaited)
        return awaited.answer.result()
    finally:
        timer.close()
        executor.shutdown(wait=False)
