"""Often: take in what landed, and take a tail-only snapshot of each log of a `tidefold.yaml`. Nothing is published."""

import os
from datetime import timedelta

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from tidefold_airflow import operators
from tidefold_airflow.dags.params import logs_param
from tidefold_airflow.dags.settings import dag_settings

DOC = """
### Recovery points between two materializations

| task | does | Spark |
|---|---|---|
| ingest | takes what is new in the landing folders into segments | one job, if needed |
| tail | snapshots each log as its newest materialization and the change sets after it: one small file | none |
| done | is red when a task above is, and makes the run so | none |

A tail-only snapshot is complete at once and is never published: readers go on seeing what `tidefold_materialize`
published. `./tidefold read LOG --snapshot ID` shows its rows; `./tidefold restore LOG ID --mode replay` stages them.
It goes when the snapshot that it is built on goes. A log that was never materialized has none, and fails here by name.
This DAG may run beside `tidefold_materialize`: of two ingests at once one is refused and tries again.

Off by default. Environment: `TIDEFOLD_TAIL_SCHEDULE` (cron, as `*/5 * * * *`; empty: only by hand), `TIDEFOLD_CONFIG`.
Parameter `logs`: work on these logs only. Connection `spark_default`: where Spark runs.
"""
SCHEDULE = os.environ.get("TIDEFOLD_TAIL_SCHEDULE")

with DAG(
    "tidefold_tail",
    description="Ingest >> tail: a cheap snapshot of what was taken in, between two materializations",
    doc_md=DOC,
    params={"logs": logs_param()},
    default_args={"retry_delay": timedelta(seconds=10), "trigger_rule": "all_done"},
    **dag_settings(SCHEDULE),
) as dag:
    logs = {"logs": "{{ params.logs or [] }}"}
    ingest = operators.TidefoldSparkOperator(task_id="ingest", step="ingest", retries=2, **logs)
    tail = operators.TidefoldTailOperator(task_id="tail", retries=1, **logs)
    done = EmptyOperator(task_id="done", trigger_rule="all_success")
    ingest >> tail
    # Leaves decide a run's colour, and with all_done no failure reaches the last task by itself.
    [ingest, tail] >> done
