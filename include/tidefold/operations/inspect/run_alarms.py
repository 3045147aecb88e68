"""Finds the alarms of a run, and counts the runs that failed in a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidefold.domain.alarms import AlarmRecord, LogAlarm, RunFailure, find_unsent, record_run, record_sent
from tidefold.operations.ground.outcome import Outcome, Status, map_logs
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.inspect.alarms import find_alarm_record, write_alarm_record
from tidefold.operations.inspect.log_status import LogStatus
from tidefold.operations.inspect.status import status, with_alarms
from tidefold.operations.verify.scope import find_proof

# Characters of an error that an alarm shows.
_LONGEST_ERROR = 400
# For each log whose run failed, the cause.
RunFailures = Mapping[str, RunFailure]


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


def find_run_alarms(pipeline: Pipeline, run: str, logs: Sequence[str], errors: RunFailures) -> list[RunAlarms]:
    """Finds the alarms of each log with thresholds after a run, and counts the run of the others. Raises StorageError.

    errors: for each log whose run failed, the cause.
    """
    wanted = [log for log in logs if pipeline.config.alarms_of(log)]
    _count_run(pipeline, run, [log for log in logs if log not in wanted], errors)
    return [_find(pipeline, run, one, errors.get(one.log)) for one in status(pipeline, wanted)]


def _find(pipeline: Pipeline, run: str, one: LogStatus, failure: RunFailure | None) -> RunAlarms:
    before = find_alarm_record(pipeline.store, one.log) or AlarmRecord()
    after = record_run(before, run, failure, now())
    proof = None if one.error else find_proof(pipeline.store, one.log)
    one = with_alarms(pipeline, replace(one, proof=proof, runs=after))
    return RunAlarms(one, before, after, find_unsent(after, one.alarms))


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
    """Counts a run by the outcomes of its steps, for `status`, and sends nothing.

    Raises AlreadyExistsError if another process was faster, StorageError.
    """
    failed = [(step, o) for step, listed in outcomes.items() for o in listed if o.error or o.status is Status.FAILED]
    errors = {o.log: RunFailure(f"{step}: {_describe(o)}", o.error_code or "") for step, o in reversed(failed)}
    _count_run(pipeline, run, logs, errors)


def _count_run(pipeline: Pipeline, run: str, logs: Sequence[str], errors: RunFailures) -> None:
    def count(log: str) -> None:
        # The store is a newer program's, and `status` says so.
        failure = errors.get(log)
        if failure and failure.code == "STORE_NEWER":
            return
        before = find_alarm_record(pipeline.store, log) or AlarmRecord()
        _write_if_changed(pipeline, log, before, record_run(before, run, failure, now()))

    map_logs(count, logs, pipeline.at_once)


def _describe(outcome: Outcome) -> str:
    """Returns why an outcome failed, without its next step: the next run has it, as the alarm of a gate its checks."""
    error = outcome.error
    if error is None:
        return f"snapshot {outcome.snapshot} failed its gate."
    return f"[{error.code}] {error.message[:_LONGEST_ERROR]}"


def _write_if_changed(pipeline: Pipeline, log: str, before: AlarmRecord, after: AlarmRecord) -> None:
    """Writes the record, unless it is unchanged, as after two successful runs."""
    if after != replace(before, run=after.run):
        write_alarm_record(pipeline.store, log, replace(after, number=before.number + 1))
