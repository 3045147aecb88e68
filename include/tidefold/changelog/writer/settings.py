"""The settings of a writer, and what it counts."""

from __future__ import annotations

import math
import re
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tidefold.errors import InvalidInputError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MB = 1 << 20
_WINDOW = 1000


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """How a writer batches, retries and waits. Sizes are bytes of Arrow data in memory, times are seconds.

    name: the writer's topic in the ledger. A writer of this name continues where the last one stopped. Two at once are
        detected.
    persist_delay: how long a persist waits for others to share its segment.
    batch_bytes: the size that ends this wait.
    log_bytes: bytes of one log after which it is persisted without a call. A writer keeps up to this much of each log
        in memory, besides what is in flight.
    max_bytes_in_flight: appending blocks while this much is being uploaded.
    attempts: the maximum number of attempts of an upload.
    attempt_timeout: seconds after which another attempt starts (0: never).
    retry_delay: seconds before the next attempt after a transient error.
    close_timeout: seconds that closing waits for running uploads.
    """

    name: str = "writer"
    compress: bool = True
    persist_delay: float = 0.01
    batch_bytes: int = 32 * _MB
    log_bytes: int = 8 * _MB
    max_bytes_in_flight: int = 128 * _MB
    attempts: int = 3
    attempt_timeout: float = 30.0
    retry_delay: float = 0.5
    threads: int = 2
    close_timeout: float = 60.0

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise _invalid(
                "name", self.name, "1 to 128 letters, digits, `.`, `_`, `-`, beginning with one of the first two"
            )
        for field in ("log_bytes", "max_bytes_in_flight", "attempts", "threads"):
            if getattr(self, field) < 1:
                raise _invalid(field, getattr(self, field), "a number from 1")
        for field in ("persist_delay", "batch_bytes", "attempt_timeout", "retry_delay", "close_timeout"):
            if getattr(self, field) < 0:
                raise _invalid(field, getattr(self, field), "a number from 0")
        if self.batch_bytes > self.max_bytes_in_flight:
            # Else a batch could wait for its size while nothing more may come.
            raise _invalid("batch_bytes", self.batch_bytes, f"at most max_bytes_in_flight ({self.max_bytes_in_flight})")


def _invalid(field: str, value: object, wanted: str) -> InvalidInputError:
    return InvalidInputError("WRITER_SETTING", f"`{field}` cannot be {value!r}.", hint=f"Use {wanted}.")


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
