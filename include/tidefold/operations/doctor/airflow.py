"""Checks Airflow in a separate process, because tidefold also works without Airflow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

# The module of the plugin that runs inside Airflow and prints its findings.
_PROBE = "tidefold_airflow.observability.self_check"
CONNECTION = "spark_default"
_DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
# Airflow sets these variables in its own processes.
_CONTEXT = "_AIRFLOW_PROCESS_CONTEXT"
_SECONDS = 300


@dataclass(frozen=True, slots=True)
class AirflowSetup:
    """The state of Airflow.

    version: its version; empty: Airflow is not installed.
    import_errors: DAG file -> the last line of its error.
    has_connection: whether the connection exists; None: not known.
    error: why Airflow could not be checked; empty: it was checked.
    uses_connection: whether its tasks start Spark where the connection says, and not on a Spark Connect server.
    """

    version: str
    dags: int = 0
    import_errors: Mapping[str, str] = field(default_factory=dict)
    connection: str = CONNECTION
    has_connection: bool | None = None
    error: str = ""
    uses_connection: bool = True


def probe_airflow(project: Path | None, config_path: Path, *, is_task: bool = False) -> AirflowSetup:
    """Imports the DAG files as Airflow does, with a scratch folder for Airflow unless AIRFLOW_HOME names one.

    project: the clone; None: tidefold is installed, and the DAGs are those of AIRFLOW_HOME.
    is_task: whether a task of Airflow calls. A task must not use Airflow's database, so it always gets a scratch
        folder.
    """
    try:
        found = version("apache-airflow")
    except PackageNotFoundError:
        return AirflowSetup("")
    with tempfile.TemporaryDirectory(prefix="tidefold-doctor-") as scratch:
        own = [str(project / "include"), str(project / "plugins")] if project else []
        paths = [*own, os.environ.get("PYTHONPATH", "")]
        alone = {"AIRFLOW_HOME": scratch, _DATABASE: f"sqlite:///{scratch}/airflow.db"}
        knows_database = not is_task and not alone.keys().isdisjoint(os.environ)
        env = {
            **{name: value for name, value in os.environ.items() if name != _CONTEXT},
            **({} if knows_database else alone),
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "TIDEFOLD_CONFIG": str(config_path.absolute()),
        }
        dags = os.environ.get("AIRFLOW__CORE__DAGS_FOLDER") or str(_dag_folder(project))
        call = [sys.executable, "-m", _PROBE, dags, CONNECTION, "database" if knows_database else "environment"]
        try:
            done = subprocess.run(call, env=env, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return AirflowSetup(found, error=f"no result within {_SECONDS} s.")
    return _parse_answer(found, done.stdout, done.stderr)


def _dag_folder(project: Path | None) -> Path:
    return (project or Path(os.environ.get("AIRFLOW_HOME") or Path.home() / "airflow")) / "dags"


def _parse_answer(found: str, output: str, errors: str) -> AirflowSetup:
    """Parses the last line of stdout, because Airflow writes its own lines first."""
    try:
        answer = json.loads(output.strip().splitlines()[-1])
        return AirflowSetup(
            found, answer["dags"], answer["import_errors"], answer["connection"], answer["has_connection"]
        )
    except (IndexError, ValueError, KeyError, TypeError):
        lines = errors.strip().splitlines()
        return AirflowSetup(found, error=lines[-1] if lines else "the process ended without output.")
