"""Finds the alarms of the logs after a run of the pipeline: counts failed runs, and finds new alarms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidefold.domain.alarms import AlarmRecord, LogAlarm, find_unsent, record_run, record_sent
from tidefold.operations.inspect.alarm_record import find_alarm_record, write_alarm_record
from tidefold.operations.inspect.status import LogStatus, status, with_alarms
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.pipeline import Pipeline, now
from tidefold.operations.verify.proof_record import find_proof


@dataclass(frozen=True, slots=True)
class RunAlarms:
    """The alarms of one log after a run.

    before, after: the record before and after the run.
    new: the alarms that were not sent yet.
    """

    status: LogStatus
    before: AlarmRecord
    after: AlarmRecord
    new: Sequence[LogAlarm]


def find_run_alarms(pipeline: Pipeline, run: str, logs: Sequence[str], errors: Mapping[str, str]) -> list[RunAlarms]:
    """Finds the alarms of each log with thresholds after a run. Other logs cost no request. Raises StorageError.

    errors: for each log whose run failed, the cause.
    """
    wanted = [log for log in logs if pipeline.log(log).alarms]
    return [_find(pipeline, run, found, errors.get(found.log)) for found in status(pipeline, wanted)]


def _find(pipeline: Pipeline, run: str, found: LogStatus, error: str | None) -> RunAlarms:
    before = find_alarm_record(pipeline.store, found.log) or AlarmRecord()
    after = record_run(before, run, error, now())
    proof = None if found.error else find_proof(pipeline.store, found.log)
    found = with_alarms(pipeline, replace(found, proof=proof, runs=after))
    return RunAlarms(found, before, after, find_unsent(after, found.alarms))


def keep_run_alarms(pipeline: Pipeline, runs: Iterable[RunAlarms], *, is_sent: bool) -> None:
    """Writes the changed records. Raises AlreadyExistsError if another process was faster, StorageError.

    is_sent: whether the new alarms were sent.
    """
    for run in runs:
        after = record_sent(run.after, run.status.alarms) if is_sent else run.after
        _write_if_changed(pipeline, run.status.log, run.before, after)


def count_failures(
    pipeline: Pipeline, run: str, logs: Sequence[str], outcomes: Mapping[str, Sequence[Outcome]]
) -> None:
    """Counts a run by the outcomes of its steps, and sends nothing. Only for logs with thresholds.

    Raises AlreadyExistsError if another process was faster, StorageError.
    """
    failed = [(step, o) for step, found in outcomes.items() for o in found if o.error or o.status is Status.FAILED]
    errors = {o.log: f"{step}: {o.error_code or o.status}" for step, o in reversed(failed)}
    for log in logs:
        if pipeline.log(log).alarms:
            before = find_alarm_record(pipeline.store, log) or AlarmRecord()
            _write_if_changed(pipeline, log, before, record_run(before, run, errors.get(log), now()))


def _write_if_changed(pipeline: Pipeline, log: str, before: AlarmRecord, after: AlarmRecord) -> None:
    """Writes the record, unless it is unchanged, as after two successful runs."""
    if after != replace(before, run=after.run):
        write_alarm_record(pipeline.store, log, replace(after, number=before.number + 1))
