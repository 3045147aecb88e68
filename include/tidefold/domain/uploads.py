"""How often uploads of segments are tried, and what they cost. Pure; the same for ingests and for writers (C3, C4)."""

from __future__ import annotations

from dataclasses import dataclass

from tidefold.errors import StorageError, TidefoldError


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
    """

    segments: int = 0
    bytes: int = 0
    failures: int = 0
    seconds: float = 0.0

    def __add__(self, other: UploadTotals) -> UploadTotals:
        return UploadTotals(
            segments=self.segments + other.segments,
            bytes=self.bytes + other.bytes,
            failures=self.failures + other.failures,
            seconds=round(self.seconds + other.seconds, 6),
        )


# An upload that is tried once.
ONCE = RetryPolicy(attempts=1, timeout=0.0, delay=0.0)
NO_UPLOADS = UploadTotals()
