"""The operator that counts failed runs of each log, finds its alarms, and tells people of new ones once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tidefold_airflow.observability.metrics import of_alarms, send
from tidefold_airflow.observability.notify import ALARMS, find_notifiers
from tidefold_airflow.operators.base import TidefoldLogOperator
from tidefold_airflow.operators.run_context import airflow_errors, open_scope

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.domain.alarms import AlarmRecord, LogAlarm
    from tidefold.operations.inspect.status import LogStatus
    from tidefold_airflow.operators.results import Summary
    from tidefold_airflow.operators.run_context import TaskScope


@dataclass(frozen=True, slots=True)
class LogRun:
    """What this run came to for a log: `before` and `after` are its records, `new` the alarms to be sent."""

    status: LogStatus
    before: AlarmRecord
    after: AlarmRecord
    new: Sequence[LogAlarm]


class TidefoldAlarmsOperator(TidefoldLogOperator):
    """
    Counts the failed runs of each log, finds its alarms (``alarms`` in tidefold.yaml), and sends new ones once.

    The task returns ``{log: {alarms, failures}}``. It fails only if a notifier or the store does: an alarm that was not
    sent is sent by the next run.

    :param alarm_conn_id: Connection of a webhook, see GateNotifier.
    :param alarm_notifier: Dotted path of a function that takes the context of the task; ``alarms`` in it has the new
        alarms. Or of a notifier.
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    # What a notifier says of a failed task.
    failure_text = "could not look for alarms, or could not send them"

    def __init__(self, *, alarm_conn_id: str | None = None, alarm_notifier: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.alarm_conn_id = alarm_conn_id
        self.alarm_notifier = alarm_notifier

    def execute(self, context: Context) -> Summary:
        """Where no task says which logs were chosen, the run failed for all of them."""
        with airflow_errors():
            scope = open_scope(self.config, self.logs or (), context, self.only)
            notifiers = find_notifiers(self.alarm_conn_id, self.alarm_notifier)
            errors = find_errors(*_read_steps(context), scope.logs)
            runs = _find_runs(scope, errors)
        send(gauge for run in runs for gauge in of_alarms(run.status))
        new = [alarm for run in runs for alarm in run.new]
        for alarm in new:
            self.log.error("%s: %s", alarm.log, alarm)
        is_sent = False
        try:
            for notifier in notifiers if new else ():
                notifier({**context, ALARMS: new})
            is_sent = True
        finally:
            with airflow_errors():
                _keep(scope, runs, is_sent)
        return {
            run.status.log: {"alarms": [str(a.kind) for a in run.status.alarms], "failures": run.after.failures}
            for run in runs
        }


def find_errors(
    summaries: Mapping[str, Sequence[Mapping[str, Any]]], failed: Iterable[str], logs: Sequence[str]
) -> dict[str, str]:
    """Why the run failed for each log for which it did: the first step that failed, and its code.

    summaries: what each step returned, in order; a mapped one has several.
    failed: the steps that failed. One that names no log failed for all of them.
    """
    found: dict[str, str] = {}
    for step, made in summaries.items():
        named = {log: what.get("error") for summary in made for log, what in summary.items()}
        errors = {log: f"{step}: {code}" for log, code in named.items() if code}
        if not errors and step in failed:
            errors = dict.fromkeys(logs, f"{step} failed")
        found = errors | found
    return {log: found[log] for log in logs if log in found}


def _read_steps(context: Context) -> tuple[dict[str, list[Mapping[str, Any]]], frozenset[str]]:
    """What the tasks before this one returned, and which of them failed."""
    ti: Any = context["ti"]
    names = [task.task_id for task in ti.task.upstream_list]
    if not names:
        return {}, frozenset()
    states = ti.get_task_states(dag_id=ti.dag_id, task_ids=names, run_ids=[ti.run_id]).get(ti.run_id, {})
    failed = frozenset(
        name if name in names else name.rpartition("_")[0] for name, state in states.items() if str(state) == "failed"
    )
    # In the order in which they ran: the first error of a log is the cause of the others.
    steps = sorted(ti.task.upstream_list, key=lambda task: len(task.get_flat_relative_ids(upstream=True)))
    return {task.task_id: list(_list_summaries(ti.xcom_pull(task_ids=task.task_id))) for task in steps}, failed


def _list_summaries(returned: Any) -> Iterator[Mapping[str, Any]]:
    """The summaries of a task: one, or one for each of its mapped copies."""
    for summary in returned if isinstance(returned, list) else [returned]:
        if isinstance(summary, Mapping):
            yield {log: what for log, what in summary.items() if isinstance(what, Mapping)}


def _find_runs(scope: TaskScope, errors: Mapping[str, str]) -> list[LogRun]:
    """What the run came to for each log that has thresholds; the others cost no request."""
    from tidefold.operations.inspect.status import status

    logs = [log for log in scope.logs if scope.pipeline.log(log).alarms]
    return [_find_run(scope, found, errors.get(found.log)) for found in status(scope.pipeline, logs)]


def _find_run(scope: TaskScope, found: LogStatus, error: str | None) -> LogRun:
    from tidefold.domain.alarms import AlarmRecord, find_unsent, record_run
    from tidefold.operations.inspect.alarm_record import find_alarm_record
    from tidefold.operations.inspect.status import with_alarms
    from tidefold.operations.pipeline import now
    from tidefold.operations.verify.proof_record import find_proof

    store = scope.pipeline.store
    before = find_alarm_record(store, found.log) or AlarmRecord()
    after = record_run(before, scope.run, error, now())
    proof = None if found.error else find_proof(store, found.log)
    found = with_alarms(scope.pipeline, replace(found, proof=proof, runs=after))
    return LogRun(found, before, after, find_unsent(after, found.alarms))


def _keep(scope: TaskScope, runs: Iterable[LogRun], is_sent: bool) -> None:
    """Writes the records that changed: a run that goes well as the one before writes nothing."""
    from tidefold.domain.alarms import record_sent
    from tidefold.operations.inspect.alarm_record import write_alarm_record

    for run in runs:
        after = record_sent(run.after, run.status.alarms) if is_sent else run.after
        if after != replace(run.before, run=after.run):
            write_alarm_record(scope.pipeline.store, run.status.log, replace(after, number=run.before.number + 1))
