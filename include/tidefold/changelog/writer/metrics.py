"""The metrics of the writer (C4), readable as one frozen value."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

_WINDOW = 1000


@dataclass(frozen=True, slots=True)
class SampleDistribution:
    """A distribution; zeros before the first value. `count` counts all values, the rest is of the newest 1,000."""

    count: int = 0
    low: float = 0.0
    mean: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    high: float = 0.0


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """The metrics of the writer at one moment.

    uploads: the segments that were started; counts attempts, not batches.
    failures: the segments that were not written; counts attempts.
    latency: seconds, of written segments.
    size: bytes, of written segments.
    attempts: which attempt of a batch succeeded.
    total_attempts: how many attempts had started by then.
    batch_size: the number of tasks (log and persist) that share a segment.
    queue_size: the tasks that wait to be sent now.
    bytes_in_flight: the bytes of these tasks and of running uploads.
    """

    uploads: int
    failures: int
    latency: SampleDistribution
    size: SampleDistribution
    attempts: SampleDistribution
    total_attempts: SampleDistribution
    batch_size: SampleDistribution
    queue_size: int
    bytes_in_flight: int


class Histogram:
    """Collects values; safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._values: deque[float] = deque(maxlen=_WINDOW)

    def add(self, value: float) -> None:
        with self._lock:
            self._count += 1
            self._values.append(value)

    def read(self) -> SampleDistribution:
        with self._lock:
            count, values = self._count, sorted(self._values)
        if not values:
            return SampleDistribution()

        def at(share: float) -> float:
            # The smallest value that at least this share of all values does not exceed.
            return values[math.ceil(share * len(values)) - 1]

        mean = sum(values) / len(values)
        return SampleDistribution(count, values[0], mean, at(0.50), at(0.95), at(0.99), values[-1])


class Metrics:
    """Collects the numbers of the writer's parts. `queue` returns the number of waiting tasks and their bytes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uploads = 0
        self._failures = 0
        self.latency = Histogram()
        self.size = Histogram()
        self.attempts = Histogram()
        self.total_attempts = Histogram()
        self.batch_size = Histogram()
        self.queue: Callable[[], tuple[int, int]] = lambda: (0, 0)

    def upload_begun(self) -> None:
        with self._lock:
            self._uploads += 1

    def upload_failed(self) -> None:
        with self._lock:
            self._failures += 1

    def read(self) -> MetricsSnapshot:
        queued, in_flight = self.queue()
        with self._lock:
            uploads, failures = self._uploads, self._failures
        return MetricsSnapshot(
            uploads=uploads,
            failures=failures,
            latency=self.latency.read(),
            size=self.size.read(),
            attempts=self.attempts.read(),
            total_attempts=self.total_attempts.read(),
            batch_size=self.batch_size.read(),
            queue_size=queued,
            bytes_in_flight=in_flight,
        )
