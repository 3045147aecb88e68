"""Adds to Airflow the page of tidefold (an app of the api-server, an entry of the navigation, a tab of DAGs and runs),
and the listener that loads once what tasks import.

Every Airflow process loads this module, also to parse DAGs. So it loads nothing that only the page needs.
"""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from tidefold_airflow import preload
from tidefold_airflow.ui.lazy_page import LazyPage
from tidefold_airflow.ui.mount import ICON, PREFIX, address


class TidefoldPlugin(AirflowPlugin):
    """The page. A change here needs a restart of Airflow's processes."""

    name = "tidefold"
    listeners = [preload]  # noqa: RUF012
    fastapi_apps = [{"app": LazyPage(), "url_prefix": PREFIX, "name": "tidefold"}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {"name": "tidefold", "href": address("/"), "destination": "nav", "url_route": "tidefold", "icon": ICON},
        {
            "name": "tidefold",
            "href": address("/dags/{DAG_ID}"),
            "destination": "dag",
            "url_route": "tidefold-logs",
        },
        {
            "name": "tidefold",
            "href": address("/runs/{DAG_ID}/{RUN_ID}"),
            "destination": "dag_run",
            "url_route": "tidefold-run",
        },
    ]
