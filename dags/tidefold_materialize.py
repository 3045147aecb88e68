"""Ingest, fold, judge, publish: one DAG for all logs of a `tidefold.yaml`."""

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, CronDataIntervalTimetable, Param

from tidefold_airflow.operators import TidefoldAbortOperator, TidefoldConfirmOperator, TidefoldSparkOperator

DOC = """
### Landed changes become published tables

| task | does | Spark |
|---|---|---|
| ingest | takes what is new in the landing folders into segments | one job, if needed |
| materialize | folds it into a new full snapshot of each log, STAGED: no reader sees it | one job, if needed |
| quality | judges every row of the staged files and stores the verdict | one job, if needed |
| confirm | completes and publishes every log that passed; then fails if one did not | none |
| abort | undoes what this run staged and did not confirm; always runs | none |

A run takes everything landed so far (its data interval is a name, not a filter), so a missed run loses nothing and
there is nothing to catch up. **Red run?** The tables of the failed logs are untouched. Read the failed task's last
line, or `./tidefold status`; correct what it names; the next run folds the same changes again.

Parameter `logs`: work on these logs only. Environment: `TIDEFOLD_CONFIG` (path of tidefold.yaml), `TIDEFOLD_SCHEDULE`
(cron, default `@hourly`). Connection `spark_default`: where Spark runs.
"""

with DAG(
    "tidefold_materialize",
    description="Ingest >> materialize >> quality >> confirm, abort on failure",
    doc_md=DOC,
    schedule=CronDataIntervalTimetable(os.environ.get("TIDEFOLD_SCHEDULE", "@hourly"), timezone="UTC"),
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    render_template_as_native_obj=True,
    params={"logs": Param([], type="array", items={"type": "string"}, description="Only these logs; empty: all.")},
    default_args={"retry_delay": timedelta(seconds=10)},
    tags=["tidefold"],
):
    logs = "{{ params.logs }}"
    ingest = TidefoldSparkOperator(task_id="ingest", step="ingest", logs=logs, retries=2)
    materialize = TidefoldSparkOperator(task_id="materialize", step="materialize", logs=logs, retries=2)
    # A suite that fails fails again; what may pass the second time is left to the next run.
    quality = TidefoldSparkOperator(task_id="quality", step="quality", logs=logs, retries=0)
    confirm = TidefoldConfirmOperator(task_id="confirm", logs=logs, retries=1)
    abort = TidefoldAbortOperator(task_id="abort", logs=logs, retries=2)
    # Not with on_failure_fail_dagrun: the run would then have abort's colour, green after a failed confirm (measured).
    ingest >> materialize >> quality >> confirm >> abort.as_teardown()
