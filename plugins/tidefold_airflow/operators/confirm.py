"""The operators that confirm snapshots and send events, start approvals of refused ones, and raise alarms."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidefold.domain.alarms import RunFailure
from tidefold.operations.ground.outcome import Status
from tidefold.operations.ground.run_endings import MEANINGS, ending_of
from tidefold_airflow.airflow_versions import AirflowFailException
from tidefold_airflow.observability.assets import TABLES, announce, asset_in, lineage_of
from tidefold_airflow.observability.metrics import of_alarms, of_sets, of_status, send
from tidefold_airflow.observability.notify import ALARMS, find_notifiers
from tidefold_airflow.operators import run_context
from tidefold_airflow.operators.approval_run import ask_about, find_asked, needs_answer, still_waits, waits
from tidefold_airflow.operators.base import (
    ReportLink,
    SnapshotLink,
    Summary,
    TidefoldLogOperator,
    find_idle_run,
    into_batches,
    is_renewal,
    list_steps_before,
    report,
    skip,
    skip_this,
)
from tidefold_airflow.ui.mount import address, snapshot_path

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from tidefold.domain.log_state import LogState, Snapshot
    from tidefold.operations.ground.outcome import Outcome

# Below Airflow's own default of `core.max_map_length`, 1,024.
_MOST = 1_000


class TidefoldAbortOperator(TidefoldLogOperator):
    """
    Aborts the snapshots that this run began and did not confirm; skipped if there is none. Use it as a teardown.

    :param approval_dag: The DAG that asks people about snapshots that the gate refused. A snapshot that waits for an
        answer stays.
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    def __init__(self, *, approval_dag: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.approval_dag = approval_dag

    def execute(self, context: Context) -> Summary:
        """Aborts. A green task says that something was aborted."""
        with run_context.airflow_errors():
            scope = run_context.open_scope(self.config, self.logs, context, self.only)
        outcomes = self.act_on_all(scope)
        summary = report(outcomes, context)
        return (
            summary if any(one.status is Status.ABORTED for one in outcomes) else skip_this(outcomes, summary, context)
        )

    def act(self, scope: run_context.TaskScope, log: str) -> Outcome:
        from tidefold.operations.snapshot.abort import abort

        if self.approval_dag and (waiting := waits(scope, log, self.approval_dag)):
            return waiting
        return abort(scope.pipeline, log, f"run {scope.run} did not confirm it", run_id=scope.run)


class TidefoldTailOperator(TidefoldLogOperator):
    """
    Takes a tail-only snapshot of each log: it is complete at once, one small file, and never published.

    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    operator_extra_links = (SnapshotLink(), ReportLink())

    def act(self, scope: run_context.TaskScope, log: str) -> Outcome:
        from tidefold.operations.snapshot.compact_log import take_tail

        return take_tail(scope.pipeline, log, scope.run)


class TidefoldListLogsOperator(TidefoldLogOperator):
    """
    Returns the names of the logs that the run works on, for tasks that are mapped over them. Refuses unknown logs.

    :param skip_idle: Leave out logs without landed files, changes to fold or open snapshots. If none has any, skip the
        tasks after this one that would do nothing. A run works on at most 1,000 logs. It begins at another log each
        time, so each log has its turn.
    :param in_batches: Return at most eight lists of logs, for a task that is mapped over them.
    :param of_set: The set whose logs are chosen; None: as `logs` says. (templated)
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    template_fields: Sequence[str] = (*TidefoldLogOperator.template_fields, "of_set")

    def __init__(
        self, *, skip_idle: bool = False, in_batches: bool = False, of_set: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.skip_idle = skip_idle
        self.in_batches = in_batches
        self.of_set = of_set

    def execute(self, context: Context) -> list[str] | list[list[str]]:  # type: ignore[override]
        """Returns the logs in configured order, which is also the order of mapped tasks."""
        with run_context.airflow_errors():
            if self.of_set:
                scope = run_context.open_set_scope(self.config, self.of_set, context, self.only)
            else:
                scope = run_context.open_scope(self.config, self.logs, context, self.only)
        from tidefold.operations.inspect.status import status
        from tidefold.operations.requests import find_busy_logs
        from tidefold.operations.sets.status import read_sets

        statuses = status(scope.pipeline, scope.logs)
        send(of_status(statuses, datetime.now(UTC)))
        if scope.pipeline.config.sets:
            send(of_sets(read_sets(scope.pipeline, statuses), datetime.now(UTC)))
        if not self.skip_idle:
            return self._say(scope.logs)
        for one in statuses:
            if one.stopped:
                self.log.info("%s: %s.", one.log, one.stopped.explain(one.log))
        # A run that is cleared sends the events of what it published again.
        with_work = {one.log for one in statuses if one.latest and one.latest.run == scope.run}
        with_work.update(scope.logs if is_renewal(self, context) else find_busy_logs(scope.pipeline, scope.logs))
        busy = [log for log in scope.logs if log in with_work]
        if not busy and (idle := find_idle_run(self, scope, context)):
            self.log.info("No log has anything to do.")
            skip(idle, into_batches(scope.logs) if self.in_batches else scope.logs, context)
        # The steps need a log. One without news lets them find out that nothing is to be done.
        chosen = _take_turns(busy, scope.run) or scope.logs[:1]
        later = max(0, len(busy) - len(chosen))
        self.log.info(
            "%d of %d logs have something to do; %d wait for the next run.", len(busy), len(scope.logs), later
        )
        return self._say(chosen)

    def _say(self, chosen: list[str]) -> list[str] | list[list[str]]:
        self.log.info("This run works on %s.", ", ".join(chosen))
        return into_batches(chosen) if self.in_batches else chosen


def _take_turns(logs: list[str], run: str) -> list[str]:
    """Returns at most 1,000 logs in their order, as Airflow maps no more tasks by default."""
    if len(logs) <= _MOST:
        return logs
    first = int(hashlib.sha256(run.encode()).hexdigest(), 16) % len(logs)
    taken = {logs[(first + number) % len(logs)] for number in range(_MOST)}
    return [log for log in logs if log in taken]


class TidefoldConfirmOperator(TidefoldLogOperator):
    """
    Confirms and publishes every log whose verdict allows it. Fails if a log did not pass, and is skipped if there is
    nothing to publish: a person is asked, the log was stopped on purpose, or it has nothing new.

    Logs of a set are published together, or not at all: the first of their tasks decides for all of them.

    Sends an asset event for each table that shows a new snapshot (`tidefold_airflow.observability.assets.table_asset`).
    Airflow sends the events of a task that succeeds. So a task that published tables succeeds although other logs of it
    failed; TidefoldAlarmsOperator then makes the run red.

    :param approval_dag: The DAG that asks a person where the gate refused (`tidefold_approval_dag`). The snapshot then
        stays STAGED, and the run continues without it. In a set, all its logs wait for the answer. None: nobody is
        asked, and the log fails.
    :param reconcile: Replace files that other programs committed to the table, instead of failing. (templated)
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    template_fields: Sequence[str] = (*TidefoldLogOperator.template_fields, "reconcile")
    operator_extra_links = (SnapshotLink(), ReportLink())

    def __init__(self, *, approval_dag: str | None = None, reconcile: bool | str = False, **kwargs: Any) -> None:
        outlets = [outlet for outlet in kwargs.pop("outlets", ()) if outlet != TABLES]
        super().__init__(outlets=[*outlets, TABLES], **kwargs)
        self.approval_dag = approval_dag
        self.reconcile = reconcile
        self._waiting: frozenset[str] = frozenset()
        self._lineage: OperatorLineage[Any, Any] | None = None

    def execute(self, context: Context) -> Summary:
        """Confirms snapshots that passed, and starts approvals of those that did not."""
        with run_context.airflow_errors():
            scope = run_context.open_scope(self.config, self.logs, context, self.only)
            run_context.require_ran(context)
        self._waiting = run_context.waiting_logs(context)
        outcomes = self.act_on_all(scope)
        summary = self._report(scope, outcomes, context)
        ended = {ending_of(one) for one in outcomes}
        is_skipped = all(one and MEANINGS[one].task == "skipped" for one in ended)
        return skip_this(outcomes, summary, context) if is_skipped else summary

    def act(self, scope: run_context.TaskScope, log: str) -> Outcome:
        from tidefold.errors import GateFailedError
        from tidefold.operations.sets.confirm import confirm_log
        from tidefold.operations.snapshot.confirm import Confirmation

        if log in self._waiting and self.approval_dag:
            return still_waits(scope, log, self.approval_dag)
        try:
            reconcile = run_context.parse_boolean("reconcile", self.reconcile)
            outcome = confirm_log(scope.pipeline, log, Confirmation(run=scope.run, reconcile=reconcile))
        except GateFailedError:
            staged = scope.pipeline.ledger(log).read().find_open(scope.run)
            if self.approval_dag is None or staged is None:
                raise
            return ask_about(self.approval_dag, log, staged)
        if outcome.status is Status.NOTHING and (state := scope.pipeline.ledger(log).find()) and state.stopped:
            return replace(outcome, status=Status.SKIPPED, message=state.stopped.explain(log))
        if outcome.error and self.approval_dag and scope.pipeline.config.set_of(log):
            return self._ask_for_set(scope, log, self.approval_dag) or outcome
        return outcome

    def _ask_for_set(self, scope: run_context.TaskScope, log: str, dag: str) -> Outcome | None:
        """Asks about this log of a held set if its gate refused; None: no answer of a person would help."""
        state = scope.pipeline.ledger(log).find()
        staged = state.find_open(scope.run) if state else None
        if staged and needs_answer(staged):
            return ask_about(dag, log, staged)
        return find_asked(scope, log)

    def _report(self, scope: run_context.TaskScope, outcomes: list[Outcome], context: Context) -> Summary:
        published = announce_published(scope, outcomes, context, self.config)
        self._lineage = lineage_of(scope.pipeline, published)
        return report(outcomes, context, has_events=bool(published))

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """Returns inputs and outputs for OpenLineage, which calls this in the process that ran the task."""
        return self._lineage


def report_page(log: str, snapshot: int, config: str | None) -> str:
    """Returns the address of a stored report."""
    return address(f"{snapshot_path(log, snapshot, config)}/report")


def announce_published(
    scope: run_context.TaskScope, outcomes: Sequence[Outcome], context: Context, config: str | None
) -> dict[str, Snapshot]:
    """Adds an event for each table that shows a new snapshot to the task, and returns the snapshots."""
    shown = {o.log: o.snapshot for o in outcomes if not o.error and o.snapshot is not None}
    published = _find_published(scope, shown)
    for log, snapshot in published.items():
        announce(context, asset_in(scope.pipeline.config, log), _describe(log, snapshot, config))
    return published


def _find_published(scope: run_context.TaskScope, shown: dict[str, int]) -> dict[str, Snapshot]:
    snapshots = {log: scope.pipeline.ledger(log).read().snapshot(snapshot) for log, snapshot in shown.items()}
    return {log: snapshot for log, snapshot in snapshots.items() if snapshot and snapshot.published}


def _describe(log: str, snapshot: Snapshot, config: str | None) -> dict[str, Any]:
    """Returns the content of an asset event: small, and JSON."""
    verdict = snapshot.verdict
    return {
        "log": log,
        "snapshot": snapshot.id,
        "version": snapshot.table_version,
        "rows": snapshot.rows,
        "verdict": verdict.summary if verdict else "",
        "override_by": verdict.override_by if verdict else None,
        "report": report_page(log, snapshot.id, config),
    }


class TidefoldAlarmsOperator(TidefoldLogOperator):
    """
    Counts the failed runs of each log, finds its alarms (``alarms`` in tidefold.yaml), and sends new ones once.

    The task returns ``{log: {alarms, failures}}``. It fails if a notifier or the store fails. The next run
    sends an alarm that was not sent.

    :param decides_run: Fail also if a task before it failed, or a table lacks rows, and name it: as the last task of a
        run it makes the run red.
    :param alarm_conn_id: Connection of a webhook, see GateNotifier.
    :param alarm_notifier: Dotted path of a function that takes the context of the task; ``alarms`` in it has the new
        alarms. Or of a notifier.
    :param logs, only, config: As for TidefoldSparkOperator. (templated)
    """

    # The text of a notifier about a failed task.
    failure_text = "could not look for alarms, or could not send them"

    def __init__(
        self,
        *,
        alarm_conn_id: str | None = None,
        alarm_notifier: str | None = None,
        decides_run: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.decides_run = decides_run
        self.alarm_conn_id = alarm_conn_id
        self.alarm_notifier = alarm_notifier

    def execute(self, context: Context) -> Summary:
        """Finds and sends the alarms. If no task returned the chosen logs, the run counts as failed for all logs."""
        from tidefold.operations.inspect.run_alarms import find_run_alarms, keep_run_alarms

        with run_context.airflow_errors():
            scope = run_context.open_scope(self.config, self.logs or (), context, self.only)
            notifiers = find_notifiers(self.alarm_conn_id, self.alarm_notifier)
            summaries, failed = read_steps(context)
            errors = find_errors(summaries, failed, scope.logs)
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
            with run_context.airflow_errors():
                keep_run_alarms(scope.pipeline, runs, is_sent=is_sent)
        summary = {
            run.status.log: {"alarms": [str(a.kind) for a in run.status.alarms], "failures": run.after.failures}
            for run in runs
        }
        if not self.decides_run:
            return summary
        wrong = [*(f"task `{step}` failed" for step in summaries if step in failed)]
        wrong += [f"{log}: {failure.text}" for log, failure in errors.items()]
        wrong += find_left_out(scope, read_states(scope)).values()
        if wrong:
            context["ti"].xcom_push("return_value", summary)
            # The receivers were told what is new. A red run is no failure of this task.
            self.on_failure_callback = ()
            raise AirflowFailException(f"This run is red: {'; '.join(wrong)}.")
        return summary


def read_states(scope: run_context.TaskScope) -> list[LogState]:
    """Returns the states of the logs that have begun."""
    return [state for log in scope.logs if (state := scope.pipeline.ledger(log).find())]


def find_left_out(scope: run_context.TaskScope, states: Iterable[LogState]) -> dict[str, str]:
    """Returns why a published table lacks rows, for each log where it does."""
    from tidefold.operations.inspect.status import explain_left_out

    outcomes = [outcome for state in states if (outcome := explain_left_out(scope.pipeline, state))]
    return {outcome.log: outcome.message for outcome in outcomes}


def find_errors(
    summaries: Mapping[str, Sequence[Mapping[str, Any]]], failed: Iterable[str], logs: Sequence[str]
) -> dict[str, RunFailure]:
    """Returns, for each log whose run failed, the first failed step and its error code.

    summaries: the returned values of each step, in order; a mapped step has several.
    failed: the failed steps. A step that names no log failed for all of them.
    """
    first: dict[str, RunFailure] = {}
    for step, made in summaries.items():
        named = {log: what.get("error") for summary in made for log, what in summary.items()}
        errors = {log: RunFailure(f"{step}: {code}", str(code)) for log, code in named.items() if code}
        if not errors and step in failed:
            errors = dict.fromkeys(logs, RunFailure(f"{step} failed"))
        first = errors | first
    return {log: first[log] for log in logs if log in first}


def read_steps(context: Context) -> tuple[dict[str, list[Mapping[str, Any]]], frozenset[str]]:
    """Returns what tidefold's tasks before this one returned, in their order, and which of them failed.

    In their order the first error of a log is the cause of the others.
    """
    ti: Any = context["ti"]
    names = [task.task_id for task in list_steps_before(ti.task)]
    if not names:
        return {}, frozenset()
    states = ti.get_task_states(dag_id=ti.dag_id, task_ids=names, run_ids=[ti.run_id]).get(ti.run_id, {})
    failed = frozenset(
        name if name in names else name.rpartition("_")[0] for name, state in states.items() if str(state) == "failed"
    )
    return {name: list(_list_summaries(ti.xcom_pull(task_ids=name))) for name in names}, failed


def _list_summaries(returned: Any) -> Iterator[Mapping[str, Any]]:
    """Yields the summaries of a task: one, or one for each of its mapped instances."""
    for summary in returned if isinstance(returned, list) else [returned]:
        if isinstance(summary, Mapping):
            yield {log: what for log, what in summary.items() if isinstance(what, Mapping)}
