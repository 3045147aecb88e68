"""Judges the newest published snapshot of each log again, with today's suites."""

from typing import Any

from airflow.sdk import DAG

from tidefold_airflow import operators
from tidefold_airflow.dags.settings import dag_settings, logs_param, schedule_from

DOC = """
### Judges the published tables again

| task | does | Spark |
|---|---|---|
| choose | returns the logs of this run | none |
| audit | judges every row of each log's newest snapshot with today's suite, stores a report | one job |

Red: a check failed; the task's log and the page of the log name the report. The table and the snapshot's own verdict
are unchanged. To restore an older snapshot, use `tidefold_restore`. Environment: `TIDEFOLD_REPORT_SCHEDULE` (cron in
UTC, such as `0 6 * * *`; empty: only by hand), `TIDEFOLD_CONFIG`. Connection `spark_default`: where Spark runs.
"""
SCHEDULE = schedule_from("TIDEFOLD_REPORT_SCHEDULE")

with DAG(
    "tidefold_report",
    description="Judges the newest snapshots again with today's suites, and changes nothing",
    doc_md=DOC,
    params={"logs": logs_param()},
    **dag_settings(SCHEDULE),
) as dag:
    choose = operators.TidefoldListLogsOperator(task_id="choose", logs="{{ params.logs or [] }}")
    each: dict[str, Any] = {"logs": choose.output}
    operators.TidefoldAuditOperator(task_id="audit", retries=1, **each)
