"""tidefold in Airflow: `from tidefold_airflow import tidefold_dag`, and operators in `tidefold_airflow.operators`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidefold_airflow.dags.approval import tidefold_approval_dag
    from tidefold_airflow.dags.factory import Options, tidefold_dag, tidefold_group
    from tidefold_airflow.dags.scrub import tidefold_scrub_dag
    from tidefold_airflow.observability.assets import table_asset

__all__ = [
    "Options",
    "table_asset",
    "tidefold_approval_dag",
    "tidefold_dag",
    "tidefold_group",
    "tidefold_scrub_dag",
]
# Every process of Airflow imports this package for its plugin, so a name is loaded when it is used.
_MODULES = {
    "Options": "dags.factory",
    "table_asset": "observability.assets",
    "tidefold_approval_dag": "dags.approval",
    "tidefold_dag": "dags.factory",
    "tidefold_group": "dags.factory",
    "tidefold_scrub_dag": "dags.scrub",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # It refuses an Airflow that is too old, before a name is missed there.
    import_module(f"{__name__}.airflow_versions")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
