"""Checks this Airflow for `tidefold doctor`: `python -m tidefold_airflow.observability.self_check DAGS CONN FROM`.

Prints one line of JSON: the number of DAGs, the errors of their files, and whether the connection exists.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def find_connection(name: str, has_database: bool) -> bool | None:
    """Returns whether the connection exists; None: it is not in the environment, and the database is not known."""
    if f"AIRFLOW_CONN_{name.upper()}" in os.environ:
        return True
    if not has_database:
        return None
    from airflow.models.connection import Connection
    from airflow.sdk.exceptions import AirflowNotFoundException

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
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(folder)
    errors = {file: error.strip().splitlines()[-1] for file, error in bag.import_errors.items()}
    return len(bag.dags), errors


def main(folder: str, connection: str, source: str) -> None:
    """Prints the result."""
    count, errors = import_dags(folder)
    found: dict[str, Any] = {
        "dags": count,
        "import_errors": errors,
        "connection": connection,
        "has_connection": find_connection(connection, source == "database"),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:4])
