"""Who may see the page: the one place that knows Airflow's checks of login and rights, which are not a public API.

What moved there makes this import fail, and then there is no page at all.
"""

from __future__ import annotations

from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity
from airflow.api_fastapi.core_api.security import get_user, requires_access_dag, requires_access_view
from fastapi import Depends

# For every route: somebody who is logged in (else 401), who may see plugins and DAGs (else 403). A viewer may.
GUARDS = (
    Depends(get_user),
    Depends(requires_access_view(AccessView.PLUGINS)),
    Depends(requires_access_dag("GET")),
)
# For what a run did: also the runs of exactly that DAG.
RUN_GUARDS = (Depends(requires_access_dag("GET", DagAccessEntity.RUN)),)
