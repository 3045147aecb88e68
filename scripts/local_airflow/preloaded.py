"""Starts a component of Airflow that has already loaded what tasks and DAG files import.

The scheduler forks the process of each task, and the dag-processor that of each file, so what they find loaded costs
once, not each time. Called as a program: its arguments are those of `airflow`.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

_OF_DAG_FILES = (
    "airflow.sdk",
    "airflow.providers.standard.operators.empty",
    "airflow.providers.apache.spark.operators.spark_submit",
    "tidefold_airflow.dags.factory",
)
_OF_TASKS = (
    "tidefold.wiring",
    "tidefold.operations.ingest.ingest",
    "tidefold.operations.requests",
    "tidefold.operations.snapshot.materialize",
    "tidefold.operations.snapshot.confirm",
    "duckdb",
    "pandas",
    # Its client for a Spark Connect server.
    "pyspark.sql.connect.session",
)


_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"

NEEDED_BY = {
    "scheduler": ("airflow.sdk.execution_time.task_runner", *_OF_DAG_FILES, *_OF_TASKS),
    "dag-processor": _OF_DAG_FILES,
}


def main() -> None:
    # Functions and types of pyspark.sql look for it when they are imported; a driver in a job must not have it.
    os.environ[_CONNECT_MODE] = "1"
    for name in NEEDED_BY[sys.argv[1]]:
        import_module(name)
    del os.environ[_CONNECT_MODE]
    if sys.argv[1] == "scheduler":
        import_module("tidefold.quality.run.gx_import").load()
    import_module("airflow.__main__").main()


if __name__ == "__main__":
    # The folder of this file has modules of its own names.
    del sys.path[0]
    main()
