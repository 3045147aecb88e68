"""Whole DAGs and task groups: `dag = tidefold_dag("my_tables", schedule="@hourly", config="/data/tidefold.yaml")`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, TaskGroup

from tidefold.operations.ground.run_endings import Require
from tidefold_airflow import operators
from tidefold_airflow.dags.approval import tidefold_approval_dag
from tidefold_airflow.dags.settings import (
    AS_CONFIGURED,
    Schedule,
    alarm_settings,
    dag_settings,
    deadline_settings,
    kind_param,
    logs_param,
    require_duration,
    require_logs,
    require_seconds,
    spread_schedule,
)
from tidefold_airflow.observability.assets import TABLES
from tidefold_airflow.operators.approve import LOOK_EVERY
from tidefold_airflow.operators.base import RETENTION_GROUP, ChosenLogs
from tidefold_airflow.operators.run_context import CONNECT_CONNECTION, Ids

# A step that failed for some logs stops none after it, nor does one that was skipped.
ALWAYS: dict[str, Any] = {"trigger_rule": "all_done", "retry_delay": timedelta(seconds=10)}

DOC = """
### Publishes tables from landed changes

| task | does | Spark |
|---|---|---|
| choose | returns the logs with something to do; if there are none, the run ends | none |
| ingest | reads new landed files and writes their changes to segments | as `spark.scheduled` says |
| materialize | folds new changes into a snapshot of each log, STAGED: no reader sees it | as `spark.scheduled` says |
| quality | judges every row of the staged files and stores the verdict | as `spark.scheduled` says |
| confirm (one a log, or eight for all) | publishes what passed, and sends asset events; green: it is published | none |
| read_back | Delta's reader on Spark reads what was not proved yet; a difference to what was judged is an alarm | yes |
| retention: subsume, truncate, local_retention, clean | delete old snapshots, old log, local copies, remains | none |
| abort | aborts what this run staged and did not confirm; green: something was aborted | none |
| published (in a group) | lets what follows the group start, or skips it | none |
| alarms | counts failed runs in a row, sends new alarms, and fails if a task failed: it makes the run red | none |

**Green** means published, or nothing was new. **Skipped** means nothing was to be done: `confirm` says whether a person
is asked, or who stopped the log. `docs/reference/airflow.md` has the table.

A log that fails a step does not stop the others: each task finishes the other logs, then names the failed ones.
A run ingests everything that has landed (its data interval is a name, not a filter). So a missed run loses nothing, and
there is nothing to catch up. **Red run?** The tables of the failed logs are unchanged. Read the last line of the failed
task, or the page **tidefold** in the menu, and correct what it names. The next run folds the same changes again.

Any task may be cleared and run again at any time: finished work is recognised and not repeated. A task that would do
nothing is skipped: ingest skips what follows a run without news, and subsume the retention tasks without work.
"""


@dataclass(frozen=True)
class Options:
    """Options of all tasks.

    `approval`: how long a person may take to decide about a failed gate; None: no person decides.
    `look_every`: how often an open question is compared with the ledger.
    `takeover_after`: see TidefoldMaterializeOperator.
    `conn_id`, `connect_conn_id`: connections of spark-submit and of a Spark Connect server, see TidefoldSparkOperator.
    `alarm_conn_id`, `alarm_notifier`: receive alarms, see TidefoldAlarmsOperator; None: none is sent.
    """

    config: str | None = None
    approval: timedelta | None = None
    takeover_after: float | None = None
    conn_id: str = "spark_default"
    look_every: timedelta = LOOK_EVERY
    alarm_conn_id: str | None = None
    alarm_notifier: str | None = None
    connect_conn_id: str = CONNECT_CONNECTION

    def __post_init__(self) -> None:
        require_duration("approval", self.approval)
        require_duration("look_every", self.look_every)
        require_seconds("takeover_after", self.takeover_after)


def tidefold_dag(
    dag_id: str,
    *,
    schedule: Schedule,
    config: str | None = None,
    logs: Sequence[str] = (),
    approval: timedelta | None = None,
    takeover_after: float | None = None,
    conn_id: str = "spark_default",
    look_every: timedelta = LOOK_EVERY,
    alarm_conn_id: str | None = None,
    alarm_notifier: str | None = None,
    connect_conn_id: str = CONNECT_CONNECTION,
    late_after: timedelta | None = None,
    random_delay: bool = False,
    **dag: Any,
) -> DAG:
    """The whole DAG for the logs of a `tidefold.yaml`: ingest, fold, judge, publish, then retention.

    With `approval` it makes a second DAG, `<dag_id>_approval`, which asks the person; Airflow finds it by itself.

    :param schedule: cron in UTC, or assets of Airflow; None: only by hand.
    :param random_delay: `@hourly`, `@daily` and `@weekly` get a phase that depends on the name of the DAG.
    :param logs: only these; none: all that are configured.
    :param config, approval, look_every, takeover_after, conn_id, connect_conn_id, alarm_conn_id, alarm_notifier: see
        Options.
    :param late_after: how long after it was queued a run may end; a later one is reported to the webhook.
    :param dag: more of Airflow's own arguments of a DAG.
    """
    options = Options(
        config, approval, takeover_after, conn_id, look_every, alarm_conn_id, alarm_notifier, connect_conn_id
    )
    require_duration("late_after", late_after)
    asks = _approval_dag(dag_id, logs, options)
    settings = {
        **dag_settings(spread_schedule(schedule, dag_id) if random_delay and isinstance(schedule, str) else schedule),
        "description": "Ingest >> materialize >> quality >> confirm, then retention; abort on failure",
        "doc_md": DOC,
        "params": {"logs": logs_param(config, logs), "kind": kind_param()},
        **deadline_settings(alarm_conn_id, late_after),
        **dag,
    }
    with DAG(dag_id, **settings) as made:
        kind = f"{{{{ '' if params.kind == {AS_CONFIGURED!r} else params.kind }}}}"
        _tasks(f"{{{{ params.logs or {list(logs)!r} }}}}", kind, options, asks, logs)
    return made


def tidefold_group(
    group_id: str = "tidefold",
    *,
    logs: Sequence[str] = (),
    options: Options | None = None,
    require: str = Require.ALL,
    **group: Any,
) -> TaskGroup:
    """The same tasks as a group inside another DAG: `before >> tidefold_group(logs=["orders"]) >> after`.

    What follows starts after its task `published`, which returns how the run ended for each log. It is skipped while a
    person is asked. With `options.approval` the group makes a second DAG, `<dag_id>.<group_id>_approval`, which asks.

    :param require: `all`: what follows starts if the tables of all logs are published; `any`: of one.
    """
    options = options or Options()
    require_logs(options.config, logs)
    with TaskGroup(group_id, **group) as made:
        asks = _approval_dag(f"{made.dag.dag_id}.{made.group_id}", logs, options)
        _tasks(logs, None, options, asks, logs, require)
    return made


def _approval_dag(owner: str, logs: Sequence[str], options: Options) -> str | None:
    """Returns the name of the DAG that asks about refused snapshots; None: no person decides."""
    if options.approval is None:
        return None
    return tidefold_approval_dag(
        f"{owner}_approval",
        config=options.config, logs=logs, patience=options.approval, look_every=options.look_every
    ).dag_id  # fmt: skip


def _tasks(
    logs: Ids | str, kind: str | None, options: Options, asks: str | None, only: Sequence[str], require: str = ""
) -> None:
    """Makes the tasks. `require`: also the one that what follows waits for."""
    config = {"config": options.config}
    asked: dict[str, Any] = {"logs": logs, "only": only, "retries": 1, **config}
    choose = operators.TidefoldListLogsOperator(task_id="choose", skip_idle=True, in_batches=True, **asked)
    each: dict[str, Any] = {"logs": ChosenLogs(choose), **config, **ALWAYS}
    spark = {**each, "conn_id": options.conn_id, "connect_conn_id": options.connect_conn_id}
    ingest = operators.TidefoldIngestOperator(
        task_id="ingest", skip_idle=True, **{**spark, "retries": 2, "trigger_rule": "all_success"}
    )
    materialize = operators.TidefoldMaterializeOperator(
        task_id="materialize", kind=kind, takeover_after=options.takeover_after, retries=2, approval_dag=asks, **spark
    )
    # No retry: a suite that fails once fails again. The next run tries everything else again.
    quality = operators.TidefoldQualityOperator(task_id="quality", retries=0, approval_dag=asks, **spark)
    # A few logs have a task each, which shows its colour; many share eight.
    confirm = operators.TidefoldConfirmOperator.partial(
        task_id="confirm",
        retries=1,
        map_index_template="{{ task.logs[0] }}{{ ' and %d more' % (task.logs | length - 1) if task.logs[1:] }}",
        # Airflow then knows it before the first run: two tasks that end together do not both record it.
        outlets=[TABLES],
        approval_dag=asks,
        **config,
        **ALWAYS,
    ).expand(logs=choose.output)
    read_back = operators.TidefoldVerifyReadersOperator(task_id="read_back", sample=True, retries=1, **spark)
    with TaskGroup(RETENTION_GROUP, tooltip="Deletes what retention no longer needs"):
        subsume, clean = make_retention(**each, retries=1, skip_idle=True)
    abort = operators.TidefoldAbortOperator(task_id="abort", retries=2, approval_dag=asks, **each).as_teardown()
    receivers = alarm_settings(options.alarm_conn_id, options.alarm_notifier)
    # Also logs without news may be late. As the last task it decides the colour of the run, also where tasks of a user
    # follow: it asks how each task ended, so there is no line from each to it.
    alarms = operators.TidefoldAlarmsOperator(task_id="alarms", decides_run=True, **receivers, **asked)
    alarms.as_teardown(on_failure_fail_dagrun=True)
    choose >> ingest >> materialize >> quality >> confirm >> [read_back, subsume]
    # Whatever may stage something ends before the abort, also if a person marks or skips a task between them.
    [materialize, quality, confirm] >> abort >> alarms
    [read_back, clean] >> alarms
    if require:
        published = operators.TidefoldPublishedOperator(task_id="published", require=require, **{**asked, **ALWAYS})
        [read_back, clean] >> published >> alarms


def make_retention(*, skip_idle: bool = False, **each: Any) -> tuple[Any, Any]:
    """Makes the tasks that delete, one after the other. Returns the first and the last.

    :param skip_idle: as for TidefoldSubsumeOperator.
    """
    subsume = operators.TidefoldSubsumeOperator(task_id="subsume", skip_idle=skip_idle, **each)
    truncate = operators.TidefoldTruncateOperator(task_id="truncate", **each)
    local_retention = operators.TidefoldLocalRetentionOperator(task_id="local_retention", **each)
    clean = operators.TidefoldCleanOperator(task_id="clean", **each)
    subsume >> truncate >> local_retention >> clean
    return subsume, clean
