"""Loads once what tasks and DAG files import: a listener of the processes of Airflow that fork them.

The scheduler forks the process of each task (LocalExecutor), the dag-processor that of each file. `TIDEFOLD_PRELOAD=0`
switches it off. Other executors start processes of their own, and a task never needs it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from airflow.listeners import hookimpl

_log = logging.getLogger(__name__)

_OF_FILES = (
    "airflow.sdk",
    "airflow.providers.standard.operators.empty",
    "airflow.providers.apache.spark.operators.spark_submit",
    "tidefold_airflow.dags.factory",
)
_OF_TASKS = (
    "airflow.sdk.execution_time.task_runner",
    *_OF_FILES,
    "tidefold.wiring",
    "tidefold.operations.ingest.ingest",
    "tidefold.operations.inspect.status",
    "tidefold.operations.requests",
    "tidefold.operations.retention.clean",
    "tidefold.operations.sets.confirm",
    "tidefold.operations.snapshot.materialize",
    "tidefold.spark.dispatch",
    "duckdb",
    "pandas",
    # Its client for a Spark Connect server.
    "pyspark.sql.connect.session",
)
_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"


@hookimpl
def on_starting(component: object) -> None:
    """Loads them in the job of a scheduler or dag-processor, before it forks. Tasks call it too, with another class."""
    if type(component).__name__ != "Job" or os.environ.get("TIDEFOLD_PRELOAD") == "0":
        return
    # The job does not know its own kind yet.
    if "dag-processor" in sys.argv[1:2]:
        load(_OF_FILES)
        _read_configuration()
    elif "scheduler" in sys.argv[1:2]:
        load(_OF_TASKS)
        _read_configuration()
        import_module("tidefold.quality.run.gx_import").load()


def load(modules: Sequence[str]) -> None:
    """Imports modules. One that cannot be imported here is left to the task that needs it, and its error."""
    # Functions and types of pyspark.sql look for it when they are imported; a driver in a job must not have it.
    is_set = _CONNECT_MODE in os.environ
    os.environ.setdefault(_CONNECT_MODE, "1")
    for name in modules:
        try:
            import_module(name)
        except Exception as error:
            _log.info("`%s` was not loaded before the forks: %s", name, error)
    if not is_set:
        del os.environ[_CONNECT_MODE]


def _read_configuration() -> None:
    """Reads `tidefold.yaml`. Until it changes, no fork reads it again: that of 200 logs takes 50 ms a DAG file."""
    context = import_module("tidefold_airflow.operators.run_context")
    with suppress(Exception):  # Each DAG file then says what is wrong with it.
        context.read_config(context.config_path(None))
