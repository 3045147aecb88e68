"""Restores an older snapshot of one log as a new one, which is judged and confirmed like any other."""

from typing import Any

from airflow.sdk import DAG

from tidefold_airflow import operators
from tidefold_airflow.dags import settings
from tidefold_airflow.dags.approval import find_approval_dag

DOC = """
### Restores an older snapshot as the table

| task | does | Spark |
|---|---|---|
| restore | stages its rows under a new id, each file from the nearest intact copy | if rows must be rebuilt |
| quality | judges them with today's suite | one job, if needed |
| confirm | publishes them as the next version of the table | none |
| abort | aborts what was staged and not confirmed | none |

The gate may refuse fewer rows: with `TIDEFOLD_APPROVAL_HOURS` a person decides, else nothing is published.
To undo a restore, restore again. If another program wrote to the table, restore the newest snapshot with *Replace
foreign commits*. **What about the later changes?** The form has no default:

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
        "log": settings.log_param(),
        "snapshot": settings.snapshot_param(),
        "log_position": settings.log_position_param(),
        "reconcile": settings.reconcile_param(),
        "dry_run": settings.dry_run_param(default=True),
    },
    **settings.dag_settings(None),
) as dag:
    # The steps after the restore: with an approval DAG, a person decides if the gate refuses it.
    of: dict[str, Any] = {"logs": ["{{ params.log }}"], "approval_dag": find_approval_dag()}
    asked: dict[str, Any] = {
        "snapshot": "{{ params.snapshot }}",
        "log_position": "{{ params.log_position }}",
        "is_dry_run": "{{ params.dry_run }}",
    }
    restore = operators.TidefoldRestoreOperator(task_id="restore", retries=1, logs=of["logs"], **asked)
    quality = operators.TidefoldQualityOperator(task_id="quality", retries=0, **of)
    confirm = operators.TidefoldConfirmOperator(task_id="confirm", retries=1, reconcile="{{ params.reconcile }}", **of)
    abort = operators.TidefoldAbortOperator(task_id="abort", retries=2, **of).as_teardown()
    restore >> quality >> confirm >> abort
    # Also if a task between them is marked or skipped.
    [restore, quality] >> abort
