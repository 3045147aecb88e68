"""The DAG of the doctor: `dag = tidefold_doctor_dag("my_doctor", schedule="@daily", config="/data/tidefold.yaml")`."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Param

from tidefold_airflow import operators
from tidefold_airflow.dags.settings import dag_settings, failure_settings

DOC = """
### Finds problems around the pipeline before a run fails

| task | does | Spark |
|---|---|---|
| doctor | checks configuration, suites, versions, Java, Spark, memory, disks, store, landing folders, Airflow | none |

The checks run on the worker of the task, with its disks, its Java and its rights. They write only scratch objects and
delete them.

**Red run?** A check failed. The error has the next step for each failed check. Warnings are in the log of the task. The
page **tidefold** in the menu shows both. Parameter: `seconds`, how long a check may take.
"""


def tidefold_doctor_dag(
    dag_id: str,
    *,
    schedule: str | None = "@daily",
    config: str | None = None,
    conn_id: str = "spark_default",
    alarm_conn_id: str | None = None,
    **dag: Any,
) -> DAG:
    """The DAG that checks everything that the pipeline of a `tidefold.yaml` relies on.

    :param schedule: cron in UTC; None: only by hand.
    :param config: as for `tidefold_dag`.
    :param conn_id: connection of Spark that must exist.
    :param alarm_conn_id: connection of the webhook that receives failed checks; see GateNotifier. None: no webhook.
    :param dag: more of Airflow's own arguments of a DAG.
    """
    settings = {
        **dag_settings(schedule),
        "description": "Checks everything that the pipeline relies on, and reports the next steps",
        "doc_md": DOC,
        "params": {"seconds": seconds_param()},
        **dag,
    }
    with DAG(dag_id, **settings) as made:
        operators.TidefoldDoctorOperator(
            task_id="doctor",
            seconds="{{ params.seconds }}",
            conn_id=conn_id,
            config=config,
            **failure_settings(alarm_conn_id),
        )
    return made


def seconds_param() -> Param:
    """How long a check may take."""
    return Param(
        20,
        type="number",
        minimum=1,
        maximum=600,
        title="Seconds",
        description="How long a check may take. A check that hangs longer fails, and does not delay the others.",
    )
