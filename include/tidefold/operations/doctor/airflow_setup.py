"""Checks an installed Airflow: its DAG files, its connection to Spark, and where steps run. Changes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tidefold.config.models.spark import Scheduled
from tidefold.domain.wording import count_noun
from tidefold.operations.doctor.finding import DoctorFinding, FindingLevel

# The module of the plugin that runs inside Airflow and prints its findings.
_PROBE = "tidefold_airflow.observability.self_check"
CONNECTION, CONNECT_CONNECTION = "spark_default", "spark_connect_default"
_DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
# Airflow sets these variables in its own processes.
_CONTEXT = "_AIRFLOW_PROCESS_CONTEXT"
_SECONDS = 300
OK, WARN, FAIL = FindingLevel.OK, FindingLevel.WARN, FindingLevel.FAIL
_BACKFILLS = (
    " It starts no run of a backfill while 20 other runs are running (apache/airflow#58554), unless "
    "AIRFLOW__SCHEDULER__MAX_DAGRUNS_PER_LOOP_TO_SCHEDULE is higher: `make up` sets 200."
)


@dataclass(frozen=True, slots=True)
class AirflowSetup:
    """The state of Airflow.

    version: its version; empty: Airflow is not installed.
    import_errors: DAG file -> the last line of its error.
    has_connection: whether the connection exists; None: not known.
    error: why Airflow could not be checked; empty: it was checked.
    has_connect: as `has_connection`, for the connection to a Spark Connect server.
    scheduled, reason: where the steps of tasks run, and why; None: there is no valid configuration.
    """

    version: str
    dags: int = 0
    import_errors: Mapping[str, str] = field(default_factory=dict)
    has_connection: bool | None = None
    error: str = ""
    has_connect: bool | None = None
    scheduled: Scheduled | None = None
    reason: str = ""


def probe_airflow(project: Path | None, config_path: Path) -> AirflowSetup:
    """Imports the DAG files as Airflow does, with a scratch folder for Airflow unless AIRFLOW_HOME names one.

    project: the clone; None: tidefold is installed, and the DAGs are those of AIRFLOW_HOME.
    """
    try:
        installed = version("apache-airflow")
    except PackageNotFoundError:
        return AirflowSetup("")
    with tempfile.TemporaryDirectory(prefix="tidefold-doctor-") as scratch:
        own = [str(project / "include"), str(project / "plugins")] if project else []
        paths = [*own, os.environ.get("PYTHONPATH", "")]
        alone = {"AIRFLOW_HOME": scratch, _DATABASE: f"sqlite:///{scratch}/airflow.db"}
        # Airflow hides its database from tasks.
        knows_database = _CONTEXT not in os.environ and not alone.keys().isdisjoint(os.environ)
        env = {
            **{name: value for name, value in os.environ.items() if name != _CONTEXT},
            **({} if knows_database else alone),
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "TIDEFOLD_CONFIG": str(config_path.absolute()),
        }
        dags = os.environ.get("AIRFLOW__CORE__DAGS_FOLDER") or str(_dag_folder(project))
        source = "database" if knows_database else "environment"
        call = [sys.executable, "-m", _PROBE, dags, source, CONNECTION, CONNECT_CONNECTION]
        try:
            done = subprocess.run(call, env=env, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return AirflowSetup(installed, error=f"no result within {_SECONDS} s.")
    return _parse_answer(installed, done.stdout, done.stderr)


def _dag_folder(project: Path | None) -> Path:
    return (project or Path(os.environ.get("AIRFLOW_HOME") or Path.home() / "airflow")) / "dags"


def _parse_answer(installed: str, output: str, errors: str) -> AirflowSetup:
    """Parses the last line of stdout, because Airflow writes its own lines first."""
    try:
        answer = json.loads(output.strip().splitlines()[-1])
        has = answer["connections"]
        return AirflowSetup(
            installed,
            answer["dags"],
            answer["import_errors"],
            has_connection=has[CONNECTION],
            has_connect=has[CONNECT_CONNECTION],
        )
    except (IndexError, ValueError, KeyError, TypeError):
        lines = errors.strip().splitlines()
        return AirflowSetup(installed, error=lines[-1] if lines else "the process ended without output.")


def check_airflow(setup: AirflowSetup) -> Iterator[DoctorFinding]:
    """Checks the connection to Spark, and finds DAG files that cannot be imported."""
    if not setup.version:
        yield DoctorFinding("airflow", OK, "Airflow is not installed: the command line works without it.")
        return
    if setup.error:
        hint = "Run `.venv/bin/airflow info`, and mend what it names."
        yield DoctorFinding("airflow", FAIL, f"Airflow {setup.version} does not start: {setup.error}", hint)
        return
    for error in dict.fromkeys(setup.import_errors.values()):
        # One mistake in the configuration stops each of them.
        files = [file for file, cause in setup.import_errors.items() if cause == error]
        message = f"{count_noun(len(files), 'DAG file')} cannot be imported, such as {files[0]}: {error}"
        yield DoctorFinding("airflow", FAIL, message, "Mend what it names.")
    if not setup.import_errors:
        where = f" {_describe_scheduled(setup)}" if setup.scheduled else ""
        where += _BACKFILLS if setup.version == "3.3.2" else ""
        yield DoctorFinding("airflow", OK, f"Airflow {setup.version}, {count_noun(setup.dags, 'DAG')} imported.{where}")
    if setup.scheduled is Scheduled.CONNECT:
        return
    if setup.has_connection is False:
        who = "each step" if setup.scheduled is Scheduled.SUBMIT else "a step above `spark.above`"
        message = f"The connection `{CONNECTION}` does not exist: Airflow then starts {who} on YARN."
        hint = f"""Set AIRFLOW_CONN_{CONNECTION.upper()}='{{"conn_type": "spark", "host": "local[*]"}}'."""
        yield DoctorFinding("airflow", FAIL if setup.scheduled is Scheduled.SUBMIT else WARN, message, hint)
    elif setup.has_connection is None:
        message = f"Whether Airflow has the connection `{CONNECTION}` is not known: AIRFLOW_HOME is not set."
        yield DoctorFinding("airflow", OK, message)


def _describe_scheduled(setup: AirflowSetup) -> str:
    """Returns where the steps of Airflow's tasks run, and why."""
    places = {
        Scheduled.CONNECT: "on the Spark Connect server, whatever their size",
        Scheduled.SUBMIT: f"by spark-submit where `{CONNECTION}` says, whatever their size",
        Scheduled.BY_SIZE: f"above `spark.above` by spark-submit where `{CONNECTION}` says, else in the task",
    }
    return f"Steps run {places[setup.scheduled or Scheduled.BY_SIZE]}: {setup.reason}."
