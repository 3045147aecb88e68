"""Proves that the newest snapshot of each log can be restored, and measures how long it takes."""

from airflow.sdk import DAG

from tidefold_airflow import operators
from tidefold_airflow.dags.settings import dag_settings, logs_param, schedule_from

DOC = """
### Tests whether each log can be restored

| task | does | Spark |
|---|---|---|
| choose | returns the logs of this run | none |
| drill | restores the newest snapshot of each log into a scratch folder, checks every file, records the result | none |

Red: the snapshot cannot be restored exactly. `./tidefold check verify LOG --repair` names the damage and repairs what
it can. Result and time are on the log's page and in `./tidefold status`; the scratch folder is deleted. The drill reads
and writes every byte of the tables once. Environment:
`TIDEFOLD_DRILL_SCHEDULE` (cron in UTC, such as `@weekly`; empty: only by hand), `TIDEFOLD_CONFIG`.
"""
SCHEDULE = schedule_from("TIDEFOLD_DRILL_SCHEDULE")

with DAG(
    "tidefold_drill",
    description="Restores the newest snapshot of each log into a scratch folder and checks it",
    doc_md=DOC,
    params={"logs": logs_param()},
    **dag_settings(SCHEDULE),
) as dag:
    choose = operators.TidefoldListLogsOperator(task_id="choose", logs="{{ params.logs or [] }}")
    operators.TidefoldDrillOperator(task_id="drill", logs=choose.output, retries=1)
