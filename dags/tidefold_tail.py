"""Ingests often, and makes a tail-only snapshot of each log of a `tidefold.yaml`. It publishes nothing."""

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from tidefold_airflow import operators
from tidefold_airflow.dags.settings import dag_settings, logs_param, schedule_from

DOC = """
### Makes recovery points between two materializations

| task | does | Spark |
|---|---|---|
| ingest | reads new landed files and writes their changes to segments | one job, if needed |
| tail | snapshots each log as its newest materialization and the change sets after it: one small file | none |
| done | is red if a task above is, and makes the run red | none |

Of a log that somebody stopped, `ingest` takes nothing and says so: the run stays green.

A tail-only snapshot is complete at once and is never published: readers still see what `tidefold_materialize`
published. `./tidefold read LOG --snapshot ID` shows its rows; `./tidefold restore LOG ID --log-position replay` stages
them. It is retired with its base. A log that was never materialized has no tail, and fails here. This DAG
may run together with `tidefold_materialize`: of two ingests at once one is refused and tries again.

Off by default. Environment: `TIDEFOLD_TAIL_SCHEDULE` (cron, such as `*/5 * * * *`; empty: only by hand),
`TIDEFOLD_CONFIG`. Parameter `logs`: work only on these logs. Connection `spark_default`: where Spark runs.
"""
SCHEDULE = schedule_from("TIDEFOLD_TAIL_SCHEDULE")

with DAG(
    "tidefold_tail",
    description="Ingest >> tail: a cheap snapshot of the ingested changes, between two materializations",
    doc_md=DOC,
    params={"logs": logs_param()},
    default_args={"retry_delay": timedelta(seconds=10), "trigger_rule": "all_done"},
    **dag_settings(SCHEDULE),
) as dag:
    logs: dict[str, Any] = {"logs": "{{ params.logs or [] }}"}
    ingest = operators.TidefoldIngestOperator(task_id="ingest", retries=2, **logs)
    tail = operators.TidefoldTailOperator(task_id="tail", retries=1, **logs)
    done = EmptyOperator(task_id="done", trigger_rule="none_failed")
    ingest >> tail
    # Leaves decide a run's colour, and with all_done no failure reaches the last task by itself.
    [ingest, tail] >> done
