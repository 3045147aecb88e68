"""Restores an older snapshot of one log as a new one, which is judged and confirmed like any other."""

from typing import Any

from airflow.sdk import DAG

from tidefold_airflow import operators
from tidefold_airflow.dags.approval import find_approval_dag
from tidefold_airflow.dags.settings import dag_settings, dry_run_param, log_param, log_position_param, snapshot_param
from tidefold_airflow.operators.restore import TidefoldRestoreOperator

DOC = """
### Restores an older snapshot as the table

| task | does | Spark |
|---|---|---|
| restore | stages its rows under a new id, each file from the nearest intact copy | if rows must be rebuilt |
| quality | judges them with today's suite | one job, if needed |
| confirm | publishes them as the next version of the table | none |
| abort | aborts what was staged and not confirmed | none |

The gate may refuse fewer rows: with `TIDEFOLD_APPROVAL_HOURS` a person decides, else nothing is published.
To undo a restore, restore again. **What about the later changes?** The form has no default:

- `stay`: go back, and stay there. The log ingests and folds nothing until `tidefold_resume`, or `tidefold move resume`.
- `skip`: go back, and leave the later changes out for good.
- `carry`, for a tail: publish its base at once; the next run folds the changes of the tail.
- `replay`, for repairs: the table starts from this snapshot, and the next run folds the later changes again.

`stay` and `replay` are refused if the later changes were truncated. A **dry run** (the default) says what a restore
would do, and which change sets the next run folds; the other tasks are skipped. `tidefold restore` does the same.
"""

with DAG(
    "tidefold_restore",
    description="Restore >> quality >> confirm: restores an older snapshot; aborts on failure",
    doc_md=DOC,
    params={
        "log": log_param(),
        "snapshot": snapshot_param(),
        "log_position": log_position_param(),
        "dry_run": dry_run_param(default=True),
    },
    **dag_settings(None),
) as dag:
    logs: dict[str, Any] = {"logs": ["{{ params.log }}"]}
    # The steps after the restore: with an approval DAG, a person decides if the gate refuses it.
    then: dict[str, Any] = {**logs, "approval_dag": find_approval_dag()}
    asked: dict[str, Any] = {
        "snapshot": "{{ params.snapshot }}",
        "log_position": "{{ params.log_position }}",
        "is_dry_run": "{{ params.dry_run }}",
    }
    restore = TidefoldRestoreOperator(task_id="restore", retries=1, **asked, **logs)
    quality = operators.TidefoldQualityOperator(task_id="quality", retries=0, **then)
    confirm = operators.TidefoldConfirmOperator(task_id="confirm", retries=1, **then)
    abort = operators.TidefoldAbortOperator(task_id="abort", retries=2, **then).as_teardown()
    restore >> quality >> confirm >> abort
    # Also if a task between them is marked or skipped.
    [restore, quality] >> abort
