"""What the writer counts (C4), readable as one frozen value."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

_WINDOW = 1000


@dataclass(frozen=True, slots=True)
class SampleDistribution:
    """`count` of all values ever seen; everything else is of the newest 1,000. All zero before the first."""

    count: int = 0
    low: float = 0.0
    mean: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    high: float = 0.0


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """The writer's numbers at one moment.

    `uploads` are segments that were begun, `failures` those that were not written; both count attempts, not batches.
    `latency` (seconds) and `size` (bytes) are of written segments. `attempts` is which attempt of a batch succeeded,
    `total_attempts` how many had been begun by then. `batch_size` is the number of tasks (log and persist) that share
    a segment, `queue_size` how many wait to be sent now, `bytes_in_flight` what they and the running uploads hold.
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
    """Where the parts of the writer put their numbers. `queue` answers how many tasks wait and their bytes."""

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
