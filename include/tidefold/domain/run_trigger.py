"""When a run should begin: by what waits, or by the clock with a phase of its own. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

_MINUTES = {"@hourly": 60, "@daily": 24 * 60, "@weekly": 7 * 24 * 60}


@dataclass(frozen=True, slots=True)
class WaitingWork:
    """What waits for the next run of some logs.

    files: landed files that no ingest has read.
    bytes: their bytes, and those of the change sets that no snapshot has folded.
    mark: differs whenever something else waits.
    """

    files: int
    bytes: int
    mark: str = ""

    def __bool__(self) -> bool:
        return self.bytes > 0 or self.files > 0


@dataclass(frozen=True, slots=True)
class RunThresholds:
    """When what waits makes a run begin; the first that is reached counts.

    bytes: so many bytes wait. 0: anything that waits.
    seconds: something has waited for so long; None: no time is enough.
    """

    bytes: int = 0
    seconds: float | None = None


def find_reason(waiting: WaitingWork, waited: float, thresholds: RunThresholds) -> str | None:
    """Returns why a run should begin now; None: it should not. `waited`: for how many seconds something has waited."""
    if not waiting:
        return None
    if waiting.bytes >= thresholds.bytes:
        return f"{waiting.bytes:,} bytes wait"
    if thresholds.seconds is not None and waited >= thresholds.seconds:
        return f"changes have waited for {waited:,.0f} s"
    return None


def spread_schedule(schedule: str, name: str) -> str:
    """Returns the cron of an interval with a phase that depends on a name alone: many DAGs do not start at once.

    Takes `@hourly`, `@daily` and `@weekly`; every other schedule is returned as it is.
    """
    interval = _MINUTES.get(schedule)
    if interval is None:
        return schedule
    delay = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % interval
    minute, hour, day = delay % 60, delay // 60 % 24, delay // (24 * 60)
    if schedule == "@hourly":
        return f"{minute} * * * *"
    return f"{minute} {hour} * * {day if schedule == '@weekly' else '*'}"
