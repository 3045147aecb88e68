"""Turns the state of store, landing folders, configuration and Airflow into findings."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tidefold.config import Config
from tidefold.config.models.spark import Scheduled
from tidefold.domain.wording import count_noun, format_age, in_units
from tidefold.operations.doctor.finding import DoctorFinding, FindingLevel
from tidefold.operations.doctor.pipeline_probes import ClockSkew, LandingProbe, RewrittenRows, StoreProbe, WaitingFiles
from tidefold.operations.ground.outcome import ErrorInfo

_LISTED = 3
_ADDRESS = re.compile(r"\w+://(?:[^/@\s]*@)?([\w.-]+:\d+)")


# The module of the plugin that runs inside Airflow and prints its findings.
_PROBE = "tidefold_airflow.observability.self_check"
CONNECTION, CONNECT_CONNECTION = "spark_default", "spark_connect_default"
_DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
# Airflow sets these variables in its own processes.
_CONTEXT = "_AIRFLOW_PROCESS_CONTEXT"
_SECONDS = 300
OK, WARN, FAIL = FindingLevel.OK, FindingLevel.WARN, FindingLevel.FAIL
_WAIT_SECONDS = 86_400
# Less than this is not worth a setting.
_REWRITTEN_BYTES = 64 << 20
# With this difference, ages and `ttl` are wrong. S3 refuses requests from 15 minutes on.
_SKEW_SECONDS = (60, 900)
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
    connection: str = CONNECTION
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


def check_store(store: StoreProbe) -> Iterator[DoctorFinding]:
    """Checks that the store has the features that tidefold relies on, and is the configured one."""
    if store.error:
        message = f"[{store.error.code}] {store.error.message}"
        yield DoctorFinding(
            "store", FAIL, message, store.error.hint or "Run doctor again. If the error stays, check the store."
        )
    elif not store.is_there:
        yield DoctorFinding("store", OK, f"{store.address} does not exist yet: the first run creates it.")
    else:
        yield DoctorFinding("store", OK, f"{store.address} passed: {', '.join(store.done)}.")
        if store.store_id and not store.configured_id:
            message = "The configuration has no `store_id`, so tidefold cannot notice an empty store or another one."
            yield DoctorFinding("store", WARN, message, f"Add the line `store_id: {store.store_id}`.")


def check_clock(skew: ClockSkew) -> Iterator[DoctorFinding]:
    """Compares the clocks of the store and of this machine. No decision about data depends on them."""
    if skew.error:
        message = f"The clock of the store could not be read: [{skew.error.code}] {skew.error.message}"
        yield DoctorFinding("clock", WARN, message, skew.error.hint or "Mend the store first.")
    elif skew.seconds is None:
        yield DoctorFinding("clock", OK, "The store reports no time, or does not exist yet.")
    elif abs(skew.seconds) < _SKEW_SECONDS[0]:
        yield DoctorFinding("clock", OK, "The clocks of the store and of this machine agree.")
    else:
        way = "ahead of" if skew.seconds > 0 else "behind"
        message = f"The clock of the store is {abs(skew.seconds):,.0f} s {way} this machine's."
        level = FAIL if abs(skew.seconds) >= _SKEW_SECONDS[1] else WARN
        yield DoctorFinding("clock", level, message, "Synchronize both clocks (`chronyc tracking`, `timedatectl`).")


def check_landing(probes: Iterable[LandingProbe]) -> Iterator[DoctorFinding]:
    """Checks that each landing folder exists, is readable, and contains no links."""
    good = []
    for folder in probes:
        where = f"{folder.log}: {folder.address}"
        if folder.error:
            hint = f"Give this user the right to read and enter {folder.address} and all files below it."
            yield DoctorFinding("landing", FAIL, f"{where} cannot be read: {folder.error}", hint)
        elif not folder.is_there:
            hint = "Create the folder, mount its disk, or correct `path` of the log."
            yield DoctorFinding("landing", WARN, f"{where} does not exist: nothing can land.", hint)
        elif folder.unsafe:
            listed = ", ".join(f"`{name}` is {kind}" for name, kind in folder.unsafe[:_LISTED])
            more = f", and {len(folder.unsafe) - _LISTED:,} more" if len(folder.unsafe) > _LISTED else ""
            hint = "Land the files themselves: tidefold follows no links."
            yield DoctorFinding("landing", FAIL, f"{where}: {listed}{more}; these are not ingested.", hint)
        else:
            good.append(folder)
    if good:
        files = sum(folder.files for folder in good)
        partly = "" if all(folder.is_all for folder in good) else " (there are more)"
        yield DoctorFinding(
            "landing", OK, f"{count_noun(len(good), 'folder')}, {count_noun(files, 'file')} checked{partly}."
        )


def check_waiting_files(waiting: Iterable[WaitingFiles]) -> Iterator[DoctorFinding]:
    """Finds files that landed long ago and that no ingest has seen: no ingest runs, or it reads another folder."""
    is_good = True
    for files in waiting:
        if files.table:
            yield DoctorFinding("table", FAIL, f"{files.log}: {files.table}.", f"`tidefold status {files.log}`.")
        if files.error:
            is_good = False
            message = f"{files.log}: [{files.error.code}] {files.error.message}"
            yield DoctorFinding("ingest", FAIL, message, files.error.hint or f"`tidefold status {files.log}`.")
        elif files.seconds > _WAIT_SECONDS:
            is_good = False
            message = f"{files.log}: {count_noun(files.count, 'landed file')} not ingested, the oldest for"
            hint = f"Unpause the DAG that ingests it, or call `tidefold run {files.log}`."
            yield DoctorFinding("ingest", WARN, f"{message} {format_age(files.seconds)}.", hint)
    if is_good:
        yield DoctorFinding("ingest", OK, "No landed file waits for more than a day.")


def check_suites(errors: Mapping[str, ErrorInfo | None]) -> Iterator[DoctorFinding]:
    """Checks each suite file."""
    for log, error in errors.items():
        if error:
            yield DoctorFinding("suites", FAIL, f"{log}: [{error.code}] {error.message}", error.hint)
    if not any(errors.values()):
        yield DoctorFinding("suites", OK, f"The checks of {count_noun(len(errors), 'log')} are valid.")


def check_retention(config: Config) -> Iterator[DoctorFinding]:
    """Finds settings that let data grow without limit."""
    growing = False
    if config.retention.keep is None:
        growing = True
        message = "`retention.snapshots` is `all`: snapshots and their log are kept for ever."
        hint = "Set it to a number, such as 10; `tidefold retain subsume --dry-run` shows what would be deleted."
        yield DoctorFinding("retention", WARN, message, hint)
    if config.local.folders and config.local.quota is None:
        growing = True
        message = "`local` has no `quota`: local copies may fill the disk."
        yield DoctorFinding("retention", WARN, message, "Set `local.quota`, such as 20GB.")
    if not growing:
        yield DoctorFinding("retention", OK, f"The newest {config.retention.keep} snapshots are kept.")


def check_rewritten_rows(found: Iterable[RewrittenRows]) -> Iterator[DoctorFinding]:
    """Says what deletion vectors would save, where it is worth a thought."""
    costly = [one for one in found if one.written >= max(_REWRITTEN_BYTES, 2 * one.expected)]
    for one in costly:
        message = (
            f"{one.log}: its newest snapshot wrote {in_units(one.written)} for {one.changes:,} changes of "
            f"{one.rows:,} rows. With `deletion_vectors: true` and `snapshots: {{kind: auto}}` the next one would "
            f"write about {in_units(one.expected)}, and later ones more. Files are written again when 15 % of their "
            "rows are marked, or `snapshots.full_every` asks for it. docs/how-to/read.md lists readers that can."
        )
        yield DoctorFinding("snapshots", OK, message)
    if not costly:
        yield DoctorFinding("snapshots", OK, "No snapshot wrote much for few changes.")


def check_alarms(config: Config) -> Iterator[DoctorFinding]:
    """Finds logs without alarms."""
    silent = [log.id for log in config.logs.values() if config.alarms_of(log.id) is None]
    if silent:
        hint = "Add `alarms: {}` to the configuration: these are the defaults (docs/how-to/watch.md)."
        yield DoctorFinding("alarms", WARN, f"No alarms: {', '.join(silent)}.", hint)
    else:
        yield DoctorFinding("alarms", OK, f"{count_noun(len(config.logs), 'log')} with alarms.")


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
        message = f"The connection `{setup.connection}` does not exist: Airflow then starts Spark on YARN."
        hint = f"""Set AIRFLOW_CONN_{setup.connection.upper()}='{{"conn_type": "spark", "host": "local[*]"}}'."""
        yield DoctorFinding("airflow", FAIL, message, hint)
    elif setup.has_connection is None:
        message = f"Whether Airflow has the connection `{setup.connection}` is not known: AIRFLOW_HOME is not set."
        yield DoctorFinding("airflow", OK, message)


def _describe_scheduled(setup: AirflowSetup) -> str:
    """Returns where the steps of Airflow's tasks run, and why."""
    places = {
        Scheduled.CONNECT: "on the Spark Connect server, whatever their size",
        Scheduled.SUBMIT: f"by spark-submit where `{setup.connection}` says, whatever their size",
        Scheduled.BY_SIZE: f"above `spark.above` by spark-submit where `{setup.connection}` says, else in the task",
    }
    return f"Steps run {places[setup.scheduled or Scheduled.BY_SIZE]}: {setup.reason}."
