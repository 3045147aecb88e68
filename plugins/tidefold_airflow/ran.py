"""Notices that somebody marked the step before as success though it never ran: what it should have left is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidefold.lifecycle.errors import RefusedError

if TYPE_CHECKING:
    from airflow.sdk import Context


def require_ran(context: Context) -> None:
    """Raises RefusedError for a step of ours just before this one that is green and has left nothing.

    One that failed left what it did to each log, and stops nobody.
    """
    ti = context["ti"]
    steps = [task.task_id for task in ti.task.upstream_list if _is_step(task)]
    if not steps:
        return
    states = ti.get_task_states(dag_id=ti.dag_id, task_ids=steps, run_ids=[ti.run_id]).get(ti.run_id, {})
    for step, index in _green(steps, states):
        if ti.xcom_pull(task_ids=step, map_indexes=index) is None:
            raise RefusedError(
                "STEP_NOT_RUN",
                f"Task `{step}` was marked as success and did not run.",
                hint=f"Clear `{step}`, so that it runs, then this task.",
            )


def _is_step(task: Any) -> bool:
    return str(getattr(task, "task_type", "")).startswith("Tidefold")


def _green(steps: list[str], states: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Task and map index (-1: it is not mapped) of what ended well."""
    for name, state in states.items():
        step = name if name in steps else name.rpartition("_")[0]
        if str(state) == "success" and step in steps:
            yield step, -1 if name == step else int(name.rpartition("_")[2])
