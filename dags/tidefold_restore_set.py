"""Restores an earlier version of a set: the rows of all its tables at one point, published together."""

from typing import Any

from airflow.sdk import DAG

from tidefold_airflow import operators
from tidefold_airflow.dags.approval import find_approval_dag
from tidefold_airflow.dags.settings import dag_settings, dry_run_param, log_position_param, set_param, version_param

DOC = """
### Restores an earlier version of a set

| task | does | Spark |
|---|---|---|
| choose | names the tables of the set | none |
| restore | stages the rows of that version for all tables of the set, or for none | if rows must be rebuilt |
| quality | judges them with today's suites | one job, if needed |
| confirm | publishes all tables together, as the next version of the set | none |
| abort | aborts what was staged and not confirmed | none |

The gate may refuse fewer rows: with `TIDEFOLD_APPROVAL_HOURS` a person decides, else nothing is published.
**What about the later changes?** The form has no default. `stay`: the logs of the set ingest and fold nothing until
`tidefold_resume` or `tidefold move resume LOG` resumes each. `replay`, for repairs: the next run folds the later
changes again. The set forgets old versions, and retention deletes snapshots: `tidefold set show NAME` lists what is
left. A **dry run** (the default) says what a restore would do and changes nothing; the other tasks are then skipped.
`tidefold restore --set NAME --version N --log-position stay` does the same on the command line. For a table that is
in no set, use `tidefold_restore`.
"""

with DAG(
    "tidefold_restore_set",
    description="Restore >> quality >> confirm: restores an earlier version of a set; aborts on failure",
    doc_md=DOC,
    params={
        "set": set_param(),
        "version": version_param(),
        "log_position": log_position_param(of_set=True),
        "dry_run": dry_run_param(default=True),
    },
    **dag_settings(None),
) as dag:
    # The later tasks need the logs of the set, also if the restore fails.
    choose = operators.TidefoldListLogsOperator(task_id="choose", of_set="{{ params.set }}")
    asked: dict[str, Any] = {
        "of_set": "{{ params.set }}",
        "version": "{{ params.version }}",
        "log_position": "{{ params.log_position }}",
        "is_dry_run": "{{ params.dry_run }}",
    }
    restore = operators.TidefoldRestoreSetOperator(task_id="restore", retries=1, **asked)
    # With an approval DAG, a person decides if the gate refuses a table.
    then: dict[str, Any] = {"logs": choose.output, "approval_dag": find_approval_dag()}
    quality = operators.TidefoldQualityOperator(task_id="quality", retries=0, **then)
    confirm = operators.TidefoldConfirmOperator(task_id="confirm", retries=1, **then)
    abort = operators.TidefoldAbortOperator(task_id="abort", retries=2, **then).as_teardown()
    choose >> restore >> quality >> confirm >> abort
    # Also if a task between them is marked or skipped.
    [restore, quality] >> abort
