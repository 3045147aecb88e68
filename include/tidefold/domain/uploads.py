"""How often uploads of segments are tried, and what they cost. Pure; the same for ingests and for writers (C3, C4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from tidefold.errors import StorageError, TidefoldError

# Bucket -> number of uploads. A bucket is named by its upper bound; `more` has what is above the last one.
StoredHistogram = Mapping[str, int]
# The upper bounds. Ledgers have them as names, so a changed bound begins a bucket of its own.
_BOUNDS: Mapping[str, Sequence[int]] = {
    "latency_ms": (10, 100, 1_000, 10_000, 60_000),
    "size": (1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 28),
    "attempts": (1, 2, 3, 5, 10),
    "batch": (1, 4, 16, 64, 256),
    "queue": (0, 1, 4, 16, 64),
}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often to try.

    attempts: the maximum number of attempts.
    timeout: seconds for each (0: no limit).
    delay: seconds between an error and the next attempt.
    """

    attempts: int
    timeout: float
    delay: float

    def delay_after(self, attempt: int, error: Exception) -> float | None:
        """Returns the seconds until the next attempt; None if there is none."""
        if attempt >= self.attempts or not _may_pass(error):
            return None
        return 0.0 if isinstance(error, AttemptTimeoutError) else self.delay


def _may_pass(error: Exception) -> bool:
    return error.transient if isinstance(error, TidefoldError) else isinstance(error, OSError)


class AttemptTimeoutError(StorageError):
    """An attempt did not finish in time. It may still succeed."""


@dataclass(frozen=True, slots=True)
class UploadTotals:
    """The uploads of change sets of one log, added up.

    segments: how many segments were written; one that several logs share counts for each.
    bytes: bytes of the log's change sets in them.
    failures: attempts that failed before.
    seconds: the time of the attempts that succeeded. For landed files it includes the parsing.
    latency_ms, size: how these times and bytes are distributed.
    attempts: which attempt succeeded.
    batch: how many logs shared the segment.
    queue: how many uploads waited when it was sent.
    """

    segments: int = 0
    bytes: int = 0
    failures: int = 0
    seconds: float = 0.0
    latency_ms: StoredHistogram = field(default_factory=dict)
    size: StoredHistogram = field(default_factory=dict)
    attempts: StoredHistogram = field(default_factory=dict)
    batch: StoredHistogram = field(default_factory=dict)
    queue: StoredHistogram = field(default_factory=dict)

    @classmethod
    def of_upload(cls, size: int, failures: int, seconds: float, batch: int, queue: int) -> UploadTotals:
        """Returns the totals of one upload."""
        measured = {
            "latency_ms": seconds * 1000, "size": size, "attempts": failures + 1, "batch": batch, "queue": queue,
        }  # fmt: skip
        return cls(1, size, failures, seconds, **{name: _find_bucket(name, value) for name, value in measured.items()})

    def __add__(self, other: UploadTotals) -> UploadTotals:
        return self._combine(other, 1)

    def __sub__(self, other: UploadTotals) -> UploadTotals:
        return self._combine(other, -1)

    def _combine(self, other: UploadTotals, sign: int) -> UploadTotals:
        def add(mine: Any, more: Any) -> Any:
            if isinstance(mine, Mapping):
                sums = {bucket: mine.get(bucket, 0) + sign * more.get(bucket, 0) for bucket in {**mine, **more}}
                return {bucket: count for bucket, count in sums.items() if count}
            return round(mine + sign * more, 6)

        return UploadTotals(*(add(getattr(self, one.name), getattr(other, one.name)) for one in fields(self)))


def _find_bucket(name: str, value: float) -> StoredHistogram:
    return {next((str(bound) for bound in _BOUNDS[name] if value <= bound), "more"): 1}


# An upload that is tried once.
ONCE = RetryPolicy(attempts=1, timeout=0.0, delay=0.0)
NO_UPLOADS = UploadTotals()
