"""Makes one snapshot for each date: the rows of each log of a `tidefold.yaml` at the end of that day."""

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Param

from tidefold_airflow import airflow_versions, operators
from tidefold_airflow.dags.settings import logs_param, schedule_from

DOC = """
### Makes a historical snapshot of each date

| task | does | Spark |
|---|---|---|
| as_of | folds what was committed at the source before the END of the date, STAGED | one job, if needed |
| quality | judges every row, as for any snapshot | one job, if needed |
| confirm | tags it: for 2026-11-04 with `as-of-2026-11-05`, because its instant is the midnight after | none |
| abort, done | abort what was staged and not confirmed (skipped: nothing); make the run red if a task is | none |

`airflow backfill create --dag-id tidefold_backfill --from-date 2026-11-01 --to-date 2026-11-05 --max-active-runs 2`:
in any order (`--run-backwards`), while scheduled runs continue. The table, the log and its positions are unchanged.
A log without changes before the instant gets no snapshot, nor one without commit times unless `logs` names it.
An existing snapshot of a date is kept. If the log was truncated, the run fails and names the oldest possible instant.
After `tidefold snapshot untag LOG as-of-...`, `subsume` deletes that snapshot.

**Unpause it first**: Airflow starts no run of a paused DAG, not even of a backfill. Unpaused, it also makes the
snapshot of each day that ends. Environment: `TIDEFOLD_BACKFILL_SCHEDULE` (cron, default `@daily`), `TIDEFOLD_CONFIG`.
Parameters: `logs`, `as_of` (for a manual run: the instant, with its zone). Connection: `spark_default`.
"""
SCHEDULE = schedule_from("TIDEFOLD_BACKFILL_SCHEDULE", "@daily")

with DAG(
    "tidefold_backfill",
    description="As of >> quality >> confirm: one tagged snapshot for each date; the published table is unchanged",
    doc_md=DOC,
    schedule=airflow_versions.CronDataIntervalTimetable(SCHEDULE, timezone="UTC"),
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    catchup=False,
    is_paused_upon_creation=True,
    render_template_as_native_obj=True,
    params={
        "logs": logs_param(),
        "as_of": Param(None, type=["null", "string"], format="date-time", description="The instant of a manual run."),
    },
    default_args={"retry_delay": timedelta(seconds=10), "trigger_rule": "all_done"},
    tags=["tidefold"],
) as dag:
    logs: dict[str, Any] = {"logs": "{{ params.logs or [] }}"}
    as_of = operators.TidefoldAsOfOperator(task_id="as_of", retries=2, **logs)
    quality = operators.TidefoldQualityOperator(task_id="quality", retries=0, **logs)
    confirm = operators.TidefoldConfirmOperator(task_id="confirm", retries=1, **logs)
    abort = operators.TidefoldAbortOperator(task_id="abort", retries=2, **logs).as_teardown()
    done = EmptyOperator(task_id="done", trigger_rule="none_failed")
    # Leaves decide a run's colour, and with all_done no failure reaches the last task by itself. Whatever may stage
    # something ends before the abort, also if a task between them is marked or skipped.
    [as_of >> quality >> confirm >> abort, as_of, quality, confirm] >> done
    [as_of, quality] >> abort
