"""Time as the writer sees it: what o'clock it is, and calls that come later. Tests give their own."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

_LOGGER = logging.getLogger(__name__)
Cancel = Callable[[], None]


class Timer(Protocol):
    """Seconds that only rise, and calls after some of them."""

    def now(self) -> float: ...

    def call_later(self, delay: float, act: Callable[[], None]) -> Cancel:
        """Calls `act` once after `delay` seconds, from any thread, unless what is answered is called before."""
        ...

    def close(self) -> None:
        """Forgets all calls to come."""
        ...


class ThreadTimer:
    """A timer with one thread of its own, begun with the first call. A call must be short: others wait for it."""

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
        """Waits for the next call that is due; None when the timer was closed."""
        with self._changed:
            while not self._closed:
                if not self._calls:
                    self._changed.wait()
                elif (left := self._calls[0][0] - self.now()) > 0:
                    self._changed.wait(left)
                else:
                    return heapq.heappop(self._calls)[2]
        return None
