"""The description of tidefold as a provider of Airflow: `airflow providers list`, `airflow providers get tidefold`."""

from __future__ import annotations

from typing import Any

_INTEGRATION = "tidefold"
_OPERATORS = "tidefold_airflow.operators"


def get_provider_info() -> dict[str, Any]:
    """Returns the description of the provider, in the form of Airflow's provider_info.schema.json.

    There is no type of connection: Spark's is the one of Airflow's Spark provider, a webhook's is `http`, and a store
    finds its credentials as all AWS clients do.
    """
    return {
        "package-name": "tidefold",
        "name": "tidefold",
        "description": "Folds changelogs into verified, restorable Delta tables.",
        "integrations": [{"integration-name": _INTEGRATION, "tags": ["software"]}],
        "operators": [{"integration-name": _INTEGRATION, "python-modules": [_OPERATORS]}],
        "extra-links": [
            "tidefold_airflow.operators.base.SnapshotLink",
            "tidefold_airflow.operators.base.ReportLink",
        ],
        "notifications": ["tidefold_airflow.observability.notify.GateNotifier"],
    }
