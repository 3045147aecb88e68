"""Plans an edited configuration of one log, asks a person, and applies exactly the plan that was approved."""

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from tidefold_airflow import operators
from tidefold_airflow.dags import settings
from tidefold_airflow.dags.approval import APPROVAL_HOURS

DOC = """
### Shows which rows an edit of `tidefold.yaml` changes, and applies it

| task | does | Spark |
|---|---|---|
| plan | reads the landed files again under the configuration as it is now, judges, and compares the rows | by size |
| apply | asks among Airflow's *required actions*; approved, it publishes exactly this plan | if a check needs it |

For what a log refuses to change (`SHAPE_CHANGED`): key, order, merge, types, the reading of values. Edit the file,
deploy it, and trigger this DAG with the log. Until the answer its table does not change; other logs go on.

A log that has this configuration is skipped. If plan or table changes before the answer, `apply` fails
(`PLAN_CHANGED`): trigger the DAG again. A rejected plan is skipped. `TIDEFOLD_APPROVAL_HOURS` says how long the person
may take (24). To undo it, put the former lines back. `tidefold plan LOG` and `tidefold plan LOG --apply` do the same.
"""

with DAG(
    "tidefold_plan",
    description="Plan >> apply: shows which rows an edited configuration changes, asks, and publishes them",
    doc_md=DOC,
    params={"log": settings.log_param()},
    **settings.dag_settings(None),
) as dag:
    of: dict[str, Any] = {"logs": ["{{ params.log }}"]}
    patience = settings.hours_from(APPROVAL_HOURS) or timedelta(hours=24)
    plan = operators.TidefoldPlanOperator(task_id="plan", retries=1, **of)
    plan >> operators.TidefoldApplyPlanOperator(task_id="apply", retries=1, patience=patience, **of)
