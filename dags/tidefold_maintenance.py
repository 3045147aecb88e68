"""Deletes what retention no longer needs, without making a snapshot; a dry run shows what it would delete."""

import os
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from tidefold_airflow import operators
from tidefold_airflow.dags.factory import CONTINUE_ON_PARTIAL_FAILURE
from tidefold_airflow.dags.settings import dag_settings, dry_run_param, hours_from, logs_param

DOC = """
### Deletes what retention no longer needs

| task | deletes | what is protected by |
|---|---|---|
| choose | nothing: it returns the logs of this run | |
| subsume | snapshots beyond `retention.snapshots`, files that only they need | tags, holds, open attempts |
| truncate | the part of the log that no snapshot needs, segments that nothing needs | replay, consumers, holds, tails |
| local_retention | local copies except that of the newest snapshot | the quality gate, while it judges a snapshot |
| clean | remains of dead runs and aborted attempts | intents of runs that may be alive |
| done | nothing: it is red if a task above is | |

In a **dry run** (the default when started by hand) nothing is deleted: each task lists the files it would delete.
`tidefold_materialize` does the same after each of its runs, so this DAG is for tables without new changes. Environment:
`TIDEFOLD_MAINTENANCE_SCHEDULE` (cron in UTC; empty: only by hand), `TIDEFOLD_MAINTENANCE_APPROVAL_HOURS` (hours that
a person has to approve each deletion; a rejection, or no answer, skips it and the tasks after it),
`TIDEFOLD_CONFIG`.
"""
SCHEDULE = os.environ.get("TIDEFOLD_MAINTENANCE_SCHEDULE")

with DAG(
    "tidefold_maintenance",
    description="Subsume >> truncate >> local retention >> clean, or only what they would delete",
    doc_md=DOC,
    params={"logs": logs_param(), "dry_run": dry_run_param(default=not SCHEDULE)},
    **dag_settings(SCHEDULE),
) as dag:
    choose = operators.TidefoldListLogsOperator(task_id="choose", logs="{{ params.logs or [] }}")
    each: dict[str, Any] = {
        "logs": choose.output,
        "is_dry_run": "{{ params.dry_run }}",
        "retries": 1,
        **CONTINUE_ON_PARTIAL_FAILURE,
    }
    each["approval"] = hours_from("TIDEFOLD_MAINTENANCE_APPROVAL_HOURS")
    subsume = operators.TidefoldSubsumeOperator(task_id="subsume", **each)
    truncate = operators.TidefoldTruncateOperator(task_id="truncate", **each)
    local_retention = operators.TidefoldLocalRetentionOperator(task_id="local_retention", **each)
    clean = operators.TidefoldCleanOperator(task_id="clean", **each)
    done = EmptyOperator(task_id="done", trigger_rule="none_failed")
    subsume >> truncate >> local_retention >> clean
    [choose, subsume, truncate, local_retention, clean] >> done
