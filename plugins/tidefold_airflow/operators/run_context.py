"""The scope of one task: the pipeline, the logs and the run's name, read when the task executes and never at parse.

Detects that a person marked the step before as success although it never ran: its results are missing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tidefold.config.models.spark import Scheduled, is_connect
from tidefold.errors import InvalidInputError, NotFoundError, RefusedError, TidefoldError
from tidefold.installation import default_config
from tidefold.operations.ground.outcome import Status
from tidefold_airflow.airflow_versions import AirflowException, AirflowFailException, AirflowNotFoundException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.config import Config
    from tidefold.wiring import Pipeline


C = TypeVar("C", bound=StrEnum)

CONNECT_CONNECTION = "spark_connect_default"

# What this process has read, by path, time, size and inode of the file.
_configs: dict[tuple[Path, int, int, int], Config] = {}

# Names of logs; none: all. A template or another task without a value gives None.
Ids = Sequence[str] | None


@dataclass(frozen=True)
class TaskScope:
    """`run`: the id of this DAG run in the ledger. A retry has the same one."""

    pipeline: Pipeline
    logs: list[str]
    run: str


def open_scope(config: str | None, logs: Ids, context: Context, only: Sequence[str] = ()) -> TaskScope:
    """Opens the pipeline. Without named logs: those in `only`, or all configured ones.

    Raises InvalidInputError, NotFoundError, and RefusedError for a log outside of `only`.
    """
    from tidefold.wiring import connect

    if logs is None:
        raise InvalidInputError("LOGS_NOT_CHOSEN", "The upstream task returned no logs.")
    if isinstance(logs, str):
        raise InvalidInputError("LOGS_NOT_A_LIST", f"`logs` must be a list, not the text `{logs}`.")
    # A user who may set a parameter of a run must not be able to write anywhere on the worker.
    pipeline = replace(
        connect(read_config(config_path(config))), any_target=False, versions={}, connections=find_stored
    )
    chosen = list(logs or only or pipeline.config.logs)
    _require_allowed(chosen, only)
    for log in chosen:
        pipeline.log(log)
    dag_run = context["dag_run"]
    return TaskScope(pipeline, chosen, f"{dag_run.dag_id}/{dag_run.run_id}")


def open_set_scope(config: str | None, named: str, context: Context, only: Sequence[str] = ()) -> TaskScope:
    """Opens the pipeline for all logs of a set. Raises NotFoundError, and RefusedError for a log outside of `only`."""
    from tidefold.operations.sets.read import find_set

    scope = open_scope(config, (), context)
    logs = list(find_set(scope.pipeline, named).logs)
    _require_allowed(logs, only)
    return replace(scope, logs=logs)


def _require_allowed(logs: Sequence[str], only: Sequence[str]) -> None:
    for log in logs:
        if only and log not in only:
            raise RefusedError(
                "LOG_NOT_OF_THIS_DAG", f"This DAG does not work on `{log}`.", hint=f"Choose one of {', '.join(only)}."
            )


def config_path(config: str | None) -> Path:
    """Returns the given path, else TIDEFOLD_CONFIG, else `tidefold.yaml` of the clone or in AIRFLOW_HOME."""
    return Path(config or os.environ.get("TIDEFOLD_CONFIG") or default_config())


def read_config(path: Path) -> Config:
    """Returns the configuration of a file, which a process reads once while it stays. Raises as `load_config`."""
    from tidefold.config import load_config

    if not path.is_file():
        return load_config(path)
    stat = path.stat()
    version = (path, stat.st_mtime_ns, stat.st_size, stat.st_ino)
    if version not in _configs:
        _configs[version] = load_config(path)
    return _configs[version]


def require_configured(config: Config, log: str) -> None:
    """Raises NotFoundError if the configuration has no such log."""
    if log not in config.logs:
        hint = f"Configured logs: {', '.join(config.logs)}."
        raise NotFoundError("LOG_NOT_CONFIGURED", f"`{config.path}` has no log `{log}`.", hint=hint)


def find_server(connection: str) -> str:
    """Returns the address of a Spark Connect server, as Airflow's connection has it, with its token; empty: no such."""
    from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

    try:
        return str(SparkConnectHook(connection).get_connection_url())
    except AirflowNotFoundException:
        return ""


def find_stored(connection: str) -> str:
    """Returns a connection, as JSON; empty: Airflow has no such connection."""
    from tidefold_airflow.airflow_versions import BaseHook

    try:
        stored = BaseHook.get_connection(connection)
    except AirflowNotFoundException:
        return ""
    names = ("conn_type", "host", "port", "login", "password", "schema", "extra")
    return json.dumps({name: getattr(stored, name) for name in names})


def has_spark(scope: TaskScope, address: str) -> bool:
    """Whether steps run on Spark whatever their size: on a server with this address, or in jobs of their own."""
    spark = scope.pipeline.config.spark
    return is_connect(spark.master) or spark.choose_scheduled(bool(address))[0] is not Scheduled.BY_SIZE


@contextmanager
def airflow_errors() -> Iterator[None]:
    """Lets Airflow retry transient errors only."""
    try:
        yield
    except TidefoldError as error:
        if error.transient:
            raise AirflowException(str(error)) from error
        raise AirflowFailException(str(error)) from error


def parse_boolean(name: str, value: object) -> bool:
    """Returns the value of a switch. Raises InvalidInputError for anything else: the text `"false"` would be true."""
    if isinstance(value, bool):
        return value
    raise InvalidInputError("NOT_A_BOOLEAN", f"`{name}` must be true or false, not {value!r}.")


def require_one_log(scope: TaskScope) -> None:
    """Raises InvalidInputError for several logs."""
    if len(scope.logs) != 1:
        raise InvalidInputError("ONE_LOG", "This task works on exactly one log.")


def parse_snapshot(value: object) -> int:
    """Returns the id of a snapshot. Raises InvalidInputError."""
    message = f"`{value}` is not the id of a snapshot."
    return _parse_number(value, InvalidInputError("SNAPSHOT_INVALID", message))


def parse_version(value: object) -> int:
    """Returns the number of a version of a set. Raises InvalidInputError."""
    message = f"`{value}` is not the number of a version."
    return _parse_number(value, InvalidInputError("SET_VERSION_INVALID", message))


def _parse_number(value: object, error: InvalidInputError) -> int:
    """Returns a whole number of at least 1. Raises the error."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise error
    return value


def parse_choice(name: str, value: str, kind: type[C]) -> C:
    """Returns the member of an enumeration. Raises InvalidInputError."""
    if value not in list(kind):
        message = f"`{name}` cannot be `{value}`."
        raise InvalidInputError("CHOICE_UNKNOWN", message, hint=f"Use {', '.join(f'`{one}`' for one in kind)}.")
    return kind(value)


def require_ran(context: Context) -> None:
    """Raises RefusedError if tidefold's step just before this one is marked as success, but has no results.

    A failed step has results for each log, and blocks no other.
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
                hint=f"Clear `{step}`, so that it runs, and then this task.",
            )


def waiting_logs(context: Context) -> frozenset[str]:
    """Returns the logs that the step before left out, because their snapshot waits for a person."""
    ti = context["ti"]
    waiting: set[str] = set()
    for step in (task.task_id for task in ti.task.upstream_list if _is_step(task)):
        summary = ti.xcom_pull(task_ids=step, map_indexes=-1)
        if isinstance(summary, Mapping):
            waiting |= {
                log for log, what in summary.items() if isinstance(what, Mapping) and what.get("result") == Status.WAITS
            }
    return frozenset(waiting)


def _is_step(task: Any) -> bool:
    return str(getattr(task, "task_type", "")).startswith("Tidefold")


def _green(steps: list[str], states: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Returns task and map index (-1: not mapped) of tasks that ended with success."""
    for name, state in states.items():
        step = name if name in steps else name.rpartition("_")[0]
        if str(state) == "success" and step in steps:
            yield step, -1 if name == step else int(name.rpartition("_")[2])
