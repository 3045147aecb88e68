"""When a log raises an alarm, what an alarm is, and the record of failed runs and sent alarms. Pure.

An alarm informs people. No decision about data depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum


class AlarmKind(StrEnum):
    """What an alarm is about. The words are part of the JSON output and of the names of metrics."""

    DAMAGE = "damage"
    DRILL = "drill"
    FAILURES = "failures"
    FILES = "files"
    GATE = "gate"
    GROWTH = "growth"
    LAG = "lag"
    SILENCE = "silence"
    SOURCE = "source"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class AlarmThresholds:
    """When a log raises an alarm; None: never. Times are in seconds.

    lag: how long an ingested change may wait to be published.
    silence: how old the newest published change may be while no change waits.
    files: how long a landed file may stay that was not ingested.
    drill: how old the newest restore drill may be.
    growth: how many times the bytes of the newest snapshot the log may take in the store.
    failures: how many failed runs in a row are allowed.
    """

    lag: int | None = 86_400
    silence: int | None = None
    files: int | None = 86_400
    drill: int | None = 35 * 86_400
    growth: int | None = 20
    failures: int | None = 2


@dataclass(frozen=True, slots=True)
class LogAlarm:
    """A condition of a log that a person should handle.

    message: what is wrong, with the numbers.
    hint: the next step.
    """

    log: str
    kind: AlarmKind
    message: str
    hint: str

    def __str__(self) -> str:
        return f"ALARM {self.kind}: {self.message} Next: {self.hint}"


@dataclass(frozen=True, slots=True)
class RunFailure:
    """Why a run failed for a log. code: of the error; empty: a gate refused, or a task failed without a word."""

    text: str
    code: str = ""


@dataclass(frozen=True, slots=True)
class AlarmRecord:
    """The record of the newest runs of a log's DAG.

    number: counts the records of a log.
    failures: how many runs failed in a row up to the newest; 0: the newest did not fail.
    since: when the first of these failed (ISO 8601, for people).
    error, code: why the newest of them failed.
    sent: the kinds of the alarms that were sent and are not over.
    """

    number: int = 0
    run: str = ""
    failures: int = 0
    since: str = ""
    error: str = ""
    sent: tuple[str, ...] = ()
    code: str = ""


def record_run(before: AlarmRecord, run: str, failure: RunFailure | None, instant: str) -> AlarmRecord:
    """Returns the record after a run. A run that is recorded again replaces its earlier result.

    failure: None: it did not fail.
    """
    earlier = before.failures - 1 if before.run == run and before.failures else before.failures
    if failure is None:
        return replace(before, run=run, failures=0, since="", error="", code="")
    since = before.since or instant
    return replace(before, run=run, failures=earlier + 1, since=since, error=failure.text, code=failure.code)


def find_unsent(record: AlarmRecord, alarms: Iterable[LogAlarm]) -> list[LogAlarm]:
    """Returns the alarms that were not sent yet."""
    return [alarm for alarm in alarms if alarm.kind not in record.sent]


def record_sent(record: AlarmRecord, alarms: Sequence[LogAlarm]) -> AlarmRecord:
    """Returns the record after these alarms were sent. An alarm that ended can be sent again later."""
    return replace(record, sent=tuple(sorted(str(alarm.kind) for alarm in alarms)))
