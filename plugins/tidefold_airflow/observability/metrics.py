"""Sends the results of steps and the lag of each log as gauges of Airflow's metrics (StatsD or OpenTelemetry).

The log is in the name as well as in a tag: plain StatsD has no tags.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tidefold.domain.alarms import AlarmKind
from tidefold.operations.ground.outcome import Status

if TYPE_CHECKING:
    from tidefold.operations.ground.outcome import Outcome
    from tidefold.operations.inspect.log_status import LogStatus
    from tidefold.operations.sets.status import SetStatus

_log = logging.getLogger(__name__)
# What each number of a log's status means, and where it is.
STATUS_GAUGES: dict[str, tuple[str, Callable[[LogStatus], float]]] = {
    "lag.changes": ("ingested changes that are not folded yet", lambda status: status.changes),
    "lag.change_sets": ("change sets that are not folded yet", lambda status: status.change_sets),
    "lag.bytes": ("bytes of these change sets", lambda status: status.change_bytes),
    "materializations.started": ("snapshots that were begun", lambda status: status.materializations.started),
    "materializations.completed": ("those that were confirmed", lambda status: status.materializations.completed),
    "materializations.failed": ("those that were aborted", lambda status: status.materializations.failed),
    "materializations.seconds": ("time of the newest published one", lambda status: status.materializations.seconds),
    "quarantined": ("refused records in the quarantine", lambda status: status.quarantined),
    "left_out": ("keys without a row", lambda status: status.latest.unresolved if status.latest else 0),
    "landing.problems": ("landed files that are not ingested", lambda status: status.landing.total),
    "garbage.segments": ("segments that are to be deleted", lambda status: status.garbage),
    "stored.bytes": ("bytes of the log in the store", lambda status: status.stored_bytes),
    "local.bytes": ("bytes of local copies on this machine", lambda status: status.local_bytes),
}
# What each number of a log that reads a topic means: as the last landing saw it. No broker is asked.
TOPIC_GAUGES: dict[str, tuple[str, Callable[[LogStatus], float]]] = {
    "lag.offsets": ("offsets of its topic that the log lacked", lambda status: sum(p.offsets for p in status.topic)),
    "lag.seconds": ("age of the newest landed record then", lambda status: max(p.seconds for p in status.topic)),
}
# What each number of a set means, and where it is.
SET_GAUGES: dict[str, tuple[str, Callable[[SetStatus], float]]] = {
    "lag.transactions": ("landed transactions that the set is behind, as its slowest topic is", lambda s: s.lag),
    "version": ("number of the published version", lambda s: s.version or 0),
    "held": ("1 if a log holds the set", lambda s: float(bool(s.waits))),
    "unreadable": ("1 if the ledger of the set cannot be read", lambda s: float(s.error is not None)),
}
SET_AGE = "age_seconds"


@dataclass(frozen=True)
class Gauge:
    """`name` below `tidefold.<log>`, as `materialize.rows`, or below `tidefold.set.<set>`.

    log: the log, or the set if `of_set`.
    """

    log: str
    name: str
    value: float
    of_set: bool = False


def of_sets(statuses: Sequence[SetStatus], now: datetime) -> Iterator[Gauge]:
    """Yields the lag of each set, and the age of its published version in seconds."""
    for status in statuses:
        for name, (_, measure) in SET_GAUGES.items():
            yield Gauge(status.name, name, measure(status), of_set=True)
        age = status.age(now)
        if age is not None:
            yield Gauge(status.name, SET_AGE, age, of_set=True)


def of_outcomes(step: str, outcomes: Sequence[Outcome]) -> Iterator[Gauge]:
    """Yields for each log whether the step failed, and every number in its details."""
    for outcome in outcomes:
        yield Gauge(outcome.log, f"{step}.failed", float(bool(outcome.error) or outcome.status is Status.FAILED))
        for name, value in _numbers(outcome.facts):
            yield Gauge(outcome.log, f"{step}.{name}", value)


def of_status(statuses: Sequence[LogStatus], now: datetime) -> Iterator[Gauge]:
    """Yields the lag of each log, and the age of its published table in seconds."""
    for status in statuses:
        yield Gauge(status.log, "unreadable", float(status.error is not None))
        if not status.begun or status.error:
            continue
        for name, (_, measure) in STATUS_GAUGES.items():
            yield Gauge(status.log, name, measure(status))
        for name, (_, measure) in TOPIC_GAUGES.items() if status.topic else ():
            yield Gauge(status.log, name, measure(status))
        if status.uploads:
            for name, value in _numbers(asdict(status.uploads)):
                yield Gauge(status.log, f"uploads.{name}", value)
        if status.latest and status.latest.published_at:
            age = now - datetime.fromisoformat(status.latest.published_at)
            yield Gauge(status.log, "confirm.age_seconds", age.total_seconds())


def of_alarms(status: LogStatus) -> Iterator[Gauge]:
    """Yields the alarms of a log, and how many runs failed in a row."""
    raised = {alarm.kind for alarm in status.alarms}
    yield Gauge(status.log, "alarms", len(status.alarms))
    for kind in AlarmKind:
        yield Gauge(status.log, f"alarm.{kind}", float(kind in raised))
    yield Gauge(status.log, "failed_runs", status.runs.failures if status.runs else 0)


def send(gauges: Iterator[Gauge]) -> None:
    """Sends the gauges. Never raises: a lost number must not make a task fail."""
    from tidefold_airflow.airflow_versions import find_stats

    stats = find_stats()

    for gauge in gauges:
        name = re.sub(r"[^A-Za-z0-9_-]", "_", gauge.log)
        below, kind = (f"set.{name}", "set") if gauge.of_set else (name, "log")
        try:
            stats.gauge(f"tidefold.{below}.{gauge.name}", gauge.value, tags={kind: name})
        except Exception as error:
            _log.warning("The metric %s could not be sent: %s", gauge.name, error)
            return


def _numbers(facts: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{above}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{above}{name}", float(value)
