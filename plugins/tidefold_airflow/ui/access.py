"""Decides who may see the page, and asks Airflow's database. Only this module does, and uses its checks of rights:
neither is a public API.

If Airflow moves them, this import fails and there is no page at all.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, get_user, requires_access_dag, requires_access_view
from airflow.models.dag import DagModel
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from fastapi import Depends, Request
from sqlalchemy import func, select

from tidefold_airflow.ui.request import Run
from tidefold_airflow.ui.visible_pipelines import VisiblePipelines, Work, works_of

# For the page of a run: the user may also see its DAG.
RUN_GUARDS = (Depends(requires_access_dag("GET", DagAccessEntity.RUN)),)
# What each DAG works on, as last stored. A DAG that changed is read again.
_known: dict[str, tuple[datetime, tuple[Work, ...]]] = {}


async def remember_user(request: Request, user: GetUserDep) -> None:
    """Stores the user in the request, for `find_visible`."""
    request.state.tidefold_user = user


# For every route: the user is logged in (else 401) and may see plugins (else 403). A viewer may.
# `find_visible` decides which logs are shown.
GUARDS = (
    Depends(get_user),
    Depends(requires_access_view(AccessView.PLUGINS)),
    Depends(remember_user),
)


def find_visible(request: Request) -> VisiblePipelines:
    """Returns what the reader may see. It asks Airflow's auth manager each time for the visible DAGs."""
    with create_session() as session:
        allowed = get_auth_manager().get_authorized_dag_ids(user=request.state.tidefold_user, session=session)
        stored = select(SerializedDagModel.dag_id, func.max(SerializedDagModel.last_updated)).join(
            DagModel, DagModel.dag_id == SerializedDagModel.dag_id
        )
        rows = session.execute(stored.where(~DagModel.is_stale).group_by(SerializedDagModel.dag_id)).all()
        newest = {dag: changed for dag, changed in rows if dag in allowed}
        _read_changed(newest, session)
    works = {dag: _known[dag][1] for dag in newest if dag in _known}
    return VisiblePipelines({dag: work for dag, work in works.items() if work})


def find_failed(run: Run) -> list[str]:
    """Returns the failed tasks of a run, each once, in the order in which they ended."""
    task = TaskInstance.task_id
    failed = select(task).where(
        TaskInstance.dag_id == run.dag, TaskInstance.run_id == run.run, TaskInstance.state == TaskInstanceState.FAILED
    )
    with create_session() as session:
        return list(session.scalars(failed.group_by(task).order_by(func.min(TaskInstance.end_date), task)))


def _read_changed(newest: dict[str, datetime], session: Any) -> None:
    dags = [dag for dag, changed in newest.items() if dag not in _known or _known[dag][0] != changed]
    for one in SerializedDagModel.get_latest_serialized_dags(dag_ids=dags, session=session) if dags else ():
        _known[one.dag_id] = (newest[one.dag_id], works_of(one.data or {}))
