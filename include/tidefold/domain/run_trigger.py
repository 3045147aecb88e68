"""When a run should begin: by what waits, or by the clock with a phase of its own. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

_MINUTES = {"@hourly": 60, "@daily": 24 * 60, "@weekly": 7 * 24 * 60}


@dataclass(frozen=True, slots=True)
class WaitingWork:
    """What waits for the next run of some logs.

    files: landed files that no ingest has read.
    bytes: their bytes, and those of the change sets that no snapshot has folded.
    landed: the same files, each with its log and what changes if the file does.
    last: the newest change set of each log.
    """

    files: int
    bytes: int
    landed: frozenset[tuple[str, str]] = frozenset()
    last: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.bytes > 0 or self.files > 0

    def is_news(self, before: WaitingWork | None) -> bool:
        """Whether something came since an earlier look. Files that an ingest has made into a change set are none."""
        if before is None or self.landed - before.landed:
            return True
        ingested = {log for log, _ in before.landed - self.landed}
        return any(sqn > before.last.get(log, 0) and log not in ingested for log, sqn in self.last.items())


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
