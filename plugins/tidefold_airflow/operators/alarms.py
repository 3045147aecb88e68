"""The operator that counts failed runs of each log, finds its alarms, and sends new ones once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidefold_airflow.observability.metrics import of_alarms, send
from tidefold_airflow.observability.notify import ALARMS, find_notifiers
from tidefold_airflow.operators.base import TidefoldLogOperator
from tidefold_airflow.operators.run_context import airflow_errors, open_scope

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold_airflow.operators.results import Summary


class TidefoldAlarmsOperator(TidefoldLogOperator):
    """
    Counts the failed runs of each log, finds its alarms (``alarms`` in tidefold.yaml), and sends new ones once.

    The task returns ``{log: {alarms, failures}}``. It fails only if a notifier or the store fails. The next run
    sends an alarm that was not sent.

    :param alarm_conn_id: Connection of a webhook, see GateNotifier.
    :param alarm_notifier: Dotted path of a function that takes the context of the task; ``alarms`` in it has the new
        alarms. Or of a notifier.
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    # The text of a notifier about a failed task.
    failure_text = "could not look for alarms, or could not send them"

    def __init__(self, *, alarm_conn_id: str | None = None, alarm_notifier: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.alarm_conn_id = alarm_conn_id
        self.alarm_notifier = alarm_notifier

    def execute(self, context: Context) -> Summary:
        """Finds and sends the alarms. If no task returned the chosen logs, the run counts as failed for all logs."""
        from tidefold.operations.inspect.run_alarms import find_run_alarms, keep_run_alarms

        with airflow_errors():
            scope = open_scope(self.config, self.logs or (), context, self.only)
            notifiers = find_notifiers(self.alarm_conn_id, self.alarm_notifier)
            errors = find_errors(*_read_steps(context), scope.logs)
            runs = find_run_alarms(scope.pipeline, scope.run, scope.logs, errors)
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
                keep_run_alarms(scope.pipeline, runs, is_sent=is_sent)
        return {
            run.status.log: {"alarms": [str(a.kind) for a in run.status.alarms], "failures": run.after.failures}
            for run in runs
        }


def find_errors(
    summaries: Mapping[str, Sequence[Mapping[str, Any]]], failed: Iterable[str], logs: Sequence[str]
) -> dict[str, str]:
    """Returns, for each log whose run failed, the first failed step and its error code.

    summaries: the returned values of each step, in order; a mapped step has several.
    failed: the failed steps. A step that names no log failed for all of them.
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
    """Returns what the earlier tasks returned, and which of them failed."""
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
    """Yields the summaries of a task: one, or one for each of its mapped instances."""
    for summary in returned if isinstance(returned, list) else [returned]:
        if isinstance(summary, Mapping):
            yield {log: what for log, what in summary.items() if isinstance(what, Mapping)}
