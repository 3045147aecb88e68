"""Ingest, fold, judge, publish, clean up: one DAG for all logs of a `tidefold.yaml`."""

import os
from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, CronDataIntervalTimetable, Param

from tidefold_airflow import operators

DOC = """
### Landed changes become published tables

| task | does | Spark |
|---|---|---|
| ingest | takes what is new in the landing folders into segments | one job, if needed |
| materialize | folds it into a new full snapshot of each log, STAGED: no reader sees it | one job, if needed |
| quality | judges every row of the staged files and stores the verdict | one job, if needed |
| confirm | completes and publishes every log that passed; then fails if one did not | none |
| subsume, truncate, local_retention, clean | remove old snapshots, log, local copies; what died runs left | none |
| abort, done | undo what this run staged and did not confirm; make the run red when a task is | none |

A log that fails a step does not hold up the others: each task does what it can, then names the logs that failed.
A run takes everything landed so far (its data interval is a name, not a filter), so a missed run loses nothing and
there is nothing to catch up. **Red run?** The tables of the failed logs are untouched. Read the failed task's last
line, or `./tidefold status`; correct what it names; the next run folds the same changes again.

Parameter `logs`: work on these logs only. Environment: `TIDEFOLD_CONFIG` (path of tidefold.yaml), `TIDEFOLD_SCHEDULE`
(cron, default `@hourly`). Connection `spark_default`: where Spark runs.
"""

with DAG(
    "tidefold_materialize",
    description="Ingest >> materialize >> quality >> confirm, then what is kept; abort on failure",
    doc_md=DOC,
    schedule=CronDataIntervalTimetable(os.environ.get("TIDEFOLD_SCHEDULE", "@hourly"), timezone="UTC"),
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    render_template_as_native_obj=True,
    params={"logs": Param([], type="array", items={"type": "string"}, description="Only these logs; empty: all.")},
    default_args={"retry_delay": timedelta(seconds=10), "trigger_rule": "all_done"},
    tags=["tidefold"],
):
    logs = {"logs": "{{ params.logs }}"}
    ingest = operators.TidefoldSparkOperator(task_id="ingest", step="ingest", retries=2, **logs)
    materialize = operators.TidefoldSparkOperator(task_id="materialize", step="materialize", retries=2, **logs)
    # A suite that fails fails again; what may pass the second time is left to the next run.
    quality = operators.TidefoldSparkOperator(task_id="quality", step="quality", retries=0, **logs)
    confirm = operators.TidefoldConfirmOperator(task_id="confirm", retries=1, **logs)
    subsume = operators.TidefoldSubsumeOperator(task_id="subsume", retries=1, **logs)
    truncate = operators.TidefoldTruncateOperator(task_id="truncate", retries=1, **logs)
    local_retention = operators.TidefoldLocalRetentionOperator(task_id="local_retention", retries=1, **logs)
    clean = operators.TidefoldCleanOperator(task_id="clean", retries=1, **logs)
    abort = operators.TidefoldAbortOperator(task_id="abort", retries=2, **logs).as_teardown()
    done = EmptyOperator(task_id="done", trigger_rule="all_success")
    # Not with on_failure_fail_dagrun: a task before such a teardown no longer counts for the run's colour (measured).
    ingest >> materialize >> quality >> confirm >> subsume >> truncate >> local_retention >> clean >> abort
    # Leaves decide a run's colour, and with all_done no failure reaches the last task by itself.
    [ingest, materialize, quality, confirm, subsume, truncate, local_retention, clean] >> done
