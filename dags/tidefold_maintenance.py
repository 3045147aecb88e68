"""Removes what is not kept, without making a snapshot: for tables at rest, and to see what would go."""

import os
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from tidefold_airflow import operators
from tidefold_airflow.dags.factory import GOES_ON, hours_from
from tidefold_airflow.dags.params import dry_run_param, logs_param
from tidefold_airflow.dags.settings import dag_settings

DOC = """
### What is not kept is removed

| task | removes | what holds |
|---|---|---|
| choose | nothing: it names the logs of this run | |
| subsume | snapshots beyond `retention.snapshots`, files that only they need | tags, holds, open attempts |
| truncate | the log behind the kept snapshots, segments that nothing needs | replay, readers, holds, tails |
| local_retention | local copies but that of the newest snapshot | what is being judged |
| clean | what died runs and aborted attempts left | runs that still announce themselves |
| done | nothing: it is red when a task above is | |

Switched to **dry run** (what it is when started by hand) nothing is removed: each task lists the files that would go.
`tidefold_materialize` does the same after each of its runs, so this DAG is for tables that rest. Environment:
`TIDEFOLD_MAINTENANCE_SCHEDULE` (cron in UTC; empty: only by hand), `TIDEFOLD_MAINTENANCE_APPROVAL_HOURS` (a person is
asked before each removal and waited for so long; a rejection, or no answer, skips it and what comes after it),
`TIDEFOLD_CONFIG`.
"""
SCHEDULE = os.environ.get("TIDEFOLD_MAINTENANCE_SCHEDULE")

with DAG(
    "tidefold_maintenance",
    description="Subsume >> truncate >> local retention >> clean, or only what they would remove",
    doc_md=DOC,
    params={"logs": logs_param(), "dry_run": dry_run_param(default=not SCHEDULE)},
    **dag_settings(SCHEDULE),
) as dag:
    choose = operators.TidefoldChooseOperator(task_id="choose", logs="{{ params.logs or [] }}")
    each: dict[str, Any] = {"logs": choose.output, "plan": "{{ params.dry_run }}", "retries": 1, **GOES_ON}
    each["approval"] = hours_from("TIDEFOLD_MAINTENANCE_APPROVAL_HOURS")
    subsume = operators.TidefoldSubsumeOperator(task_id="subsume", **each)
    truncate = operators.TidefoldTruncateOperator(task_id="truncate", **each)
    local_retention = operators.TidefoldLocalRetentionOperator(task_id="local_retention", **each)
    clean = operators.TidefoldCleanOperator(task_id="clean", **each)
    done = EmptyOperator(task_id="done", trigger_rule="none_failed")
    subsume >> truncate >> local_retention >> clean
    [choose, subsume, truncate, local_retention, clean] >> done
