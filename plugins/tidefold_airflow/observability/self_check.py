"""Checks this Airflow for `check doctor`: `python -m tidefold_airflow.observability.self_check DAGS FROM CONN...`.

Prints one line of JSON: the number of DAGs, the errors of their files, and whether each connection exists.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from tidefold_airflow.airflow_versions import find_name


def find_connection(name: str, has_database: bool) -> bool | None:
    """Returns whether the connection exists; None: it is not in the environment, and the database is not known."""
    if f"AIRFLOW_CONN_{name.upper()}" in os.environ:
        return True
    if not has_database:
        return None
    from airflow.models.connection import Connection

    from tidefold_airflow.airflow_versions import AirflowNotFoundException

    try:
        Connection.get_connection_from_secrets(name)
    except AirflowNotFoundException:
        return False
    except Exception:
        # The database may belong to another machine, or not exist yet.
        return None
    return True


def import_dags(folder: str) -> tuple[int, dict[str, str]]:
    """Returns the number of DAGs in a folder, and the last line of each file's error."""
    bag = find_name("DagBag")(folder)
    errors = {file: error.strip().splitlines()[-1] for file, error in bag.import_errors.items()}
    return len(bag.dags), errors


def main(folder: str, source: str, *connections: str) -> None:
    """Prints the result."""
    count, errors = import_dags(folder)
    facts: dict[str, Any] = {
        "dags": count,
        "import_errors": errors,
        "connections": {name: find_connection(name, source == "database") for name in connections},
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main(*sys.argv[1:])
