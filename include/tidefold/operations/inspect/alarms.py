"""Finds the alarms of a log from its status, the thresholds and the instant. Keeps the record of its runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from tidefold.domain.alarms import AlarmKind, AlarmRecord, AlarmThresholds, LogAlarm
from tidefold.domain.commit_times import format_instant
from tidefold.domain.log_state import State
from tidefold.domain.paths import LogPaths
from tidefold.domain.wording import count_noun, format_age, format_minute
from tidefold.operations.ground.numbered_record import find_record, write_record
from tidefold.operations.inspect.log_status import LogStatus
from tidefold.storage import Store

# Below this size a growing log raises no alarm: a small table with many changes costs next to nothing.
GROWTH_FLOOR = 1_000_000_000


def find_alarms(status: LogStatus, thresholds: AlarmThresholds, now: str) -> list[LogAlarm]:
    """Returns the alarms of a log at an instant (ISO 8601), the most severe first."""
    alarms = [*_find_failures(status, thresholds)]
    if status.error:
        cause = status.error.error
        told, hint = (f"[{cause.code}] {cause.message}", cause.hint) if cause else (status.error.message, "")
        message = f"the ledger cannot be read: {told}"
        return [LogAlarm(status.log, AlarmKind.UNREADABLE, message, hint or "read the message."), *alarms]
    if not status.begun:
        return alarms
    return [
        *_find_damage(status),
        *_find_failed_gate(status),
        *alarms,
        *_find_lag(status, thresholds, now),
        *_find_silence(status, thresholds, now),
        *_find_files(status, thresholds, now),
        *_find_old_drill(status, thresholds, now),
        *_find_growth(status, thresholds),
    ]


def _find_damage(status: LogStatus) -> Iterator[LogAlarm]:
    if status.proof and status.proof.damaged:
        message = f"{count_noun(len(status.proof.damaged), 'damaged file')}, found by `{status.proof.by}`."
        hint = f"`tidefold check verify {status.log} --repair` repairs them, or says what does."
        yield LogAlarm(status.log, AlarmKind.DAMAGE, message, hint)
    if status.proof and (read := status.proof.readers) and read.error:
        yield LogAlarm(status.log, AlarmKind.DAMAGE, read.error, read.hint)
    if status.proof and (source := status.proof.source) and source.differ:
        yield LogAlarm(status.log, AlarmKind.SOURCE, source.error, source.hint)


def _find_failed_gate(status: LogStatus) -> Iterator[LogAlarm]:
    attempt = status.attempt
    waits = attempt is not None and attempt.verdict is not None and not attempt.verdict.allows
    if status.report is None and not waits:
        return
    hint = f"read `tidefold snapshot report {status.log}`, mend the data or the suite, then run the log again."
    if waits and attempt:
        hint = (
            f"read `tidefold snapshot report {status.log}`. A DAG with an approval asks among Airflow's required "
            "actions; one without aborts the snapshot by itself. Mend the data or the suite, then run the log again."
        )
    yield LogAlarm(status.log, AlarmKind.GATE, f"{status.why or 'the quality gate failed'}.", hint)


def _find_failures(status: LogStatus, thresholds: AlarmThresholds) -> Iterator[LogAlarm]:
    runs = status.runs
    if runs is None or thresholds.failures is None or runs.failures <= thresholds.failures:
        return
    count = count_noun(runs.failures, "run failed", "runs failed in a row")
    message = f"{count}, since {format_minute(runs.since)} UTC: {runs.error.rstrip('.')}."
    hint = f"`tidefold run {status.log}` prints the next step. The next run that does not fail ends the alarm."
    yield LogAlarm(status.log, AlarmKind.FAILURES, message, hint)


def _find_lag(status: LogStatus, thresholds: AlarmThresholds, now: str) -> Iterator[LogAlarm]:
    """Measures how long the first waiting change is ingested. Without landed files: the age of the oldest change.

    Records that a landing left in the topic wait, too: they are younger than the newest one that landed.
    """
    if age := _find_excess(min((one.since for one in status.topic if one.since), default=""), thresholds.lag, now):
        count = sum(one.offsets for one in status.topic)
        waiting = count_noun(count, "offset of its topic waits", "offsets of its topic wait")
        message = f"{waiting}, the oldest for up to {age}."
        hint = f"run the log: `tidefold run {status.log}`, or unpause its DAG. Each run reads `max_records` at most."
        yield LogAlarm(status.log, AlarmKind.LAG, message, hint)
    if not status.changes:
        return
    oldest = status.waits_since or _describe_instant(status.waiting.first if status.waiting else None)
    if not oldest and status.latest:
        oldest = status.latest.published_at
    if age := _find_excess(oldest, thresholds.lag, now):
        waiting = count_noun(status.changes, "change waits", "changes wait")
        message = f"{waiting} to be published, the oldest for {age}."
        hint = f"run the log: `tidefold run {status.log}`, or unpause its DAG. `tidefold status` shows what stops it."
        if status.attempt and status.attempt.state is State.STAGED:
            hint = (
                f"snapshot {status.attempt.id} waits: read `tidefold snapshot report {status.log}`, then answer its "
                f"approval in Airflow, `tidefold step confirm {status.log}` or `tidefold step abort {status.log}`."
            )
        yield LogAlarm(status.log, AlarmKind.LAG, message, hint)


def _find_silence(status: LogStatus, thresholds: AlarmThresholds, now: str) -> Iterator[LogAlarm]:
    latest = status.latest
    if latest is None or status.changes:
        return
    newest = _describe_instant(latest.max_commit_time) or latest.published_at
    if age := _find_excess(newest, thresholds.silence, now):
        message = f"the newest published change is {age} old, and none waits."
        hint = "check that the source still lands files, and that the DAG that ingests them runs."
        yield LogAlarm(status.log, AlarmKind.SILENCE, message, hint)


def _find_files(status: LogStatus, thresholds: AlarmThresholds, now: str) -> Iterator[LogAlarm]:
    listed = [problem for problem in status.landing.listed if problem.since]
    if not listed:
        return
    first = min(listed, key=lambda problem: problem.since)
    if age := _find_excess(first.since, thresholds.files, now):
        count = count_noun(status.landing.total, "landed file was", "landed files were")
        message = f"{count} not ingested, the first for {age}: {first}"
        yield LogAlarm(status.log, AlarmKind.FILES, message, first.hint or f"`tidefold status {status.log}`.")


def _find_old_drill(status: LogStatus, thresholds: AlarmThresholds, now: str) -> Iterator[LogAlarm]:
    hint = f"`tidefold check drill {status.log}`, or give the DAG `tidefold_drill` a schedule."
    drill = status.drilled.drill if status.drilled else None
    if drill and not drill.passed:
        message = f"the restore drill of {format_minute(drill.instant)} UTC failed."
        hint = f"`tidefold check verify {status.log}` names the damage; then {hint}"
        yield LogAlarm(status.log, AlarmKind.DRILL, message, hint)
        return
    newest = drill.instant if drill else status.first_started
    if status.latest and (age := _find_excess(newest, thresholds.drill, now)):
        message = f"the newest restore drill is {age} old." if drill else f"no restore was drilled in {age}."
        yield LogAlarm(status.log, AlarmKind.DRILL, message, hint)


def _find_growth(status: LogStatus, thresholds: AlarmThresholds) -> Iterator[LogAlarm]:
    if thresholds.growth is None or status.latest is None or status.stored_bytes < GROWTH_FLOOR:
        return
    times = status.stored_bytes / max(status.latest.bytes_full, 1)
    if times > thresholds.growth:
        message = f"the log takes {status.stored_bytes / 1e9:,.1f} GB in the store, {times:,.0f} times its table."
        hint = "set `retention.snapshots` to a number; then `tidefold retain subsume` and `tidefold retain truncate`."
        yield LogAlarm(status.log, AlarmKind.GROWTH, message, hint)


def _describe_instant(microseconds: int | None) -> str:
    """Returns a commit time as ISO 8601; empty if it is not known or not a valid date."""
    try:
        return "" if microseconds is None else format_instant(microseconds)
    except OverflowError:
        return ""


def _find_excess(since: str, allowed: int | None, now: str) -> str:
    """Returns how long ago an instant is, if that is longer than allowed; else an empty text."""
    if not since or allowed is None:
        return ""
    seconds = (datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds()
    return format_age(seconds) if seconds > allowed else ""


def find_alarm_record(store: Store, log: str) -> AlarmRecord | None:
    """Returns the newest record; None: no run was recorded. Raises StorageError."""
    return find_record(store, LogPaths(log).alarms, AlarmRecord)


def write_alarm_record(store: Store, log: str, record: AlarmRecord) -> None:
    """Writes the next record. Raises AlreadyExistsError if another process was faster, StorageError."""
    write_record(store, LogPaths(log).alarms, record)
