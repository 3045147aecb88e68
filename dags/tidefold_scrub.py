"""Reads a share of all stored files each week, so that damage is found before a file is needed."""

import os

from tidefold_airflow.dags.scrub import DOC, tidefold_scrub_dag
from tidefold_airflow.dags.settings import schedule_from

ENVIRONMENT = """
Environment: `TIDEFOLD_SCRUB_SCHEDULE` (cron in UTC, default `@weekly`; empty: only by hand), `TIDEFOLD_SCRUB_SHARE`
(default `25%`), `TIDEFOLD_ALARM_CONN` (connection of a webhook that receives alarms; default: none),
`TIDEFOLD_CONFIG`.
"""

dag = tidefold_scrub_dag(
    "tidefold_scrub",
    schedule=schedule_from("TIDEFOLD_SCRUB_SCHEDULE", "@weekly"),
    share=os.environ.get("TIDEFOLD_SCRUB_SHARE") or "25%",
    alarm_conn_id=os.environ.get("TIDEFOLD_ALARM_CONN"),
    doc_md=DOC + ENVIRONMENT,
)
