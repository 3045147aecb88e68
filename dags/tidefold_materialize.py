"""Ingest, fold, judge, publish, clean up: one DAG for all logs of a `tidefold.yaml`."""

import os

from tidefold_airflow.dags.approval import APPROVAL_HOURS
from tidefold_airflow.dags.factory import DOC, tidefold_dag
from tidefold_airflow.dags.settings import hours_from, number_from, schedule_from

ENVIRONMENT = """
Parameters: `logs`, `kind`. Environment: `TIDEFOLD_CONFIG` (path of tidefold.yaml), `TIDEFOLD_SCHEDULE` (cron in UTC,
default `@hourly`; empty: only by hand), `TIDEFOLD_APPROVAL_HOURS` (hours that a person has to approve a snapshot that
failed its gate; default: nobody is asked), `TIDEFOLD_TAKEOVER_AFTER` (seconds after which an
attempt of a dead run is superseded; default: never). `TIDEFOLD_ALARM_CONN` (connection of a webhook that is told of
alarms), `TIDEFOLD_ALARM_NOTIFIER` (dotted path of a function that is told of them), `TIDEFOLD_LATE_AFTER_HOURS` (hours
after which a run is late, and the webhook is told; default: never). Connection `spark_default`: where Spark runs.
"""
dag = tidefold_dag(
    "tidefold_materialize",
    schedule=schedule_from("TIDEFOLD_SCHEDULE", "@hourly"),
    approval=hours_from(APPROVAL_HOURS),
    takeover_after=number_from("TIDEFOLD_TAKEOVER_AFTER"),
    alarm_conn_id=os.environ.get("TIDEFOLD_ALARM_CONN"),
    alarm_notifier=os.environ.get("TIDEFOLD_ALARM_NOTIFIER"),
    late_after=hours_from("TIDEFOLD_LATE_AFTER_HOURS"),
    doc_md=DOC + ENVIRONMENT,
)
