"""Deletes what retention no longer needs, without making a snapshot; a dry run shows what it would delete."""

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from tidefold_airflow import operators
from tidefold_airflow.dags.factory import make_retention
from tidefold_airflow.dags.settings import dag_settings, dry_run_param, hours_from, logs_param, schedule_from
from tidefold_airflow.operators.base import ChosenLogs

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
SCHEDULE = schedule_from("TIDEFOLD_MAINTENANCE_SCHEDULE")

with DAG(
    "tidefold_maintenance",
    description="Subsume >> truncate >> local retention >> clean, or only what they would delete",
    doc_md=DOC,
    params={"logs": logs_param(), "dry_run": dry_run_param(default=not SCHEDULE)},
    **dag_settings(SCHEDULE),
) as dag:
    choose = operators.TidefoldListLogsOperator(task_id="choose", logs="{{ params.logs or [] }}")
    each: dict[str, Any] = {
        "logs": ChosenLogs(choose),
        "is_dry_run": "{{ params.dry_run }}",
        "approval": hours_from("TIDEFOLD_MAINTENANCE_APPROVAL_HOURS"),
        "retries": 1,
        "retry_delay": timedelta(seconds=10),
        # A failed log stops none of the others. What a person rejects is skipped, and so is what comes after it.
        "trigger_rule": "none_skipped",
    }
    subsume, _ = make_retention(**each)
    choose >> subsume
    done = EmptyOperator(task_id="done", trigger_rule="none_failed")
    [task for task in dag.tasks if task is not done] >> done
