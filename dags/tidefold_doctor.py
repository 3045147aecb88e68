"""Checks each day, on the worker, everything that the pipeline relies on."""

import os

from tidefold_airflow.dags.doctor import DOC, tidefold_doctor_dag

ENVIRONMENT = """
Environment: `TIDEFOLD_DOCTOR_SCHEDULE` (cron in UTC, default `@daily`; empty: only by hand), `TIDEFOLD_ALARM_CONN`
(connection of a webhook that is told what must be mended; default: none), `TIDEFOLD_CONFIG`. Connection
`spark_default`: where Spark runs; the doctor only looks whether it exists.
"""

dag = tidefold_doctor_dag(
    "tidefold_doctor",
    schedule=os.environ.get("TIDEFOLD_DOCTOR_SCHEDULE", "@daily"),
    alarm_conn_id=os.environ.get("TIDEFOLD_ALARM_CONN"),
    doc_md=DOC + ENVIRONMENT,
)
