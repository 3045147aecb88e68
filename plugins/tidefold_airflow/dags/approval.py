"""The DAG that asks a person about snapshots that the gate refused: one run for each log and snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from tidefold_airflow import operators
from tidefold_airflow.dags.settings import dag_settings, hours_from, log_param, require_duration, snapshot_param
from tidefold_airflow.operators.approve import LOOK_EVERY

DOC = """
### A person decides about a snapshot that the quality gate refused

| task | does |
|---|---|
| ask | asks among Airflow's *required actions*, then publishes the snapshot under the person's name, or aborts it |

`confirm` starts a run of this DAG for each snapshot that the gate refused, and no task waits for it. Other logs run on
schedule, and the log itself continues to ingest. It makes no new snapshot until the answer. The answer is compared with
the ledger: a snapshot that was aborted or published meanwhile does not change, and the question ends by itself.

**Red run?** The snapshot was rejected, or there was no answer in time. It is aborted, and the table is unchanged. If
`ask` failed for another cause, nobody decided: the snapshot stays staged. Clear `ask`, so that it asks again.
"""
# How long a person may take, in hours; empty: nobody is asked.
APPROVAL_HOURS = "TIDEFOLD_APPROVAL_HOURS"
# Each run is one deferred task, which occupies no worker.
_MANY = 1000


def tidefold_approval_dag(
    dag_id: str,
    *,
    patience: timedelta,
    config: str | None = None,
    logs: Sequence[str] = (),
    look_every: timedelta = LOOK_EVERY,
    **dag: Any,
) -> DAG:
    """Returns the DAG that asks a person. Its id is the operators' `approval_dag`.

    `tidefold_dag` and `tidefold_group` make their own.

    :param patience: how long a person may take.
    :param logs: only these; none: all that are configured.
    :param look_every: how often an open question is compared with the ledger.
    :param config: as for `tidefold_dag`.
    :param dag: more of Airflow's own arguments of a DAG.
    """
    require_duration("patience", patience)
    require_duration("look_every", look_every)
    settings = {
        **dag_settings(None),
        "max_active_runs": _MANY,
        "is_paused_upon_creation": False,
        "description": "Asks a person about a snapshot that the quality gate refused",
        "doc_md": DOC,
        "params": {"log": log_param(config, logs), "snapshot": snapshot_param(), "manifest": _manifest_param()},
        **dag,
    }
    with DAG(dag_id, **settings) as made:
        of: dict[str, Any] = {
            "log": "{{ params.log }}",
            "snapshot": "{{ params.snapshot }}",
            "manifest": "{{ params.manifest }}",
            "config": config,
            "only": logs,
            # Called within a task group of another DAG, the tasks still belong to this DAG.
            "task_group": made.task_group,
        }
        # If the answer comes in the second in which the task defers, Airflow runs the task again, and it asks again.
        operators.TidefoldApprovalOperator(
            task_id="ask", patience=patience, look_every=look_every, retries=3, retry_delay=timedelta(seconds=5), **of
        )
    return made


def find_approval_dag() -> str | None:
    """Returns the DAG that asks about refused snapshots of `tidefold_materialize`; None: no person decides."""
    return "tidefold_materialize_approval" if hours_from(APPROVAL_HOURS) else None


def _manifest_param() -> Param:
    described = "Checksum of the staged files that the question is about; empty: those that are staged now."
    return Param("", type="string", maxLength=64, title="Manifest", description=described)
