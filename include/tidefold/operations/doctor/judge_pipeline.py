"""Turns the state of the store, landing folders, configuration and Airflow into findings: one pure function each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tidefold.config import Config
from tidefold.domain.wording import count_noun, format_age
from tidefold.operations.doctor.airflow import AirflowSetup
from tidefold.operations.doctor.finding import DoctorFinding, FindingLevel
from tidefold.operations.doctor.pipeline_probes import ClockSkew, LandingProbe, StoreProbe, WaitingFiles
from tidefold.operations.outcome import ErrorInfo

OK, WARN, FAIL = FindingLevel.OK, FindingLevel.WARN, FindingLevel.FAIL
_LISTED = 3
_WAIT_SECONDS = 86_400
# With this difference, ages and `ttl` are wrong. S3 refuses requests from 15 minutes on.
_SKEW_SECONDS = (60, 900)


def judge_store(found: StoreProbe) -> Iterator[DoctorFinding]:
    """Checks that the store has the features that tidefold relies on, and is the configured one."""
    if found.error:
        message = f"[{found.error.code}] {found.error.message}"
        yield DoctorFinding(
            "store", FAIL, message, found.error.hint or "Run doctor again. If the error stays, check the store."
        )
    elif not found.is_there:
        yield DoctorFinding("store", OK, f"{found.address} does not exist yet: the first run creates it.")
    else:
        yield DoctorFinding("store", OK, f"{found.address} passed: {', '.join(found.done)}.")
        if found.store_id and not found.configured_id:
            message = "The configuration has no `store_id`, so tidefold cannot notice an empty store or another one."
            yield DoctorFinding("store", WARN, message, f"Add the line `store_id: {found.store_id}`.")


def judge_clock(found: ClockSkew) -> Iterator[DoctorFinding]:
    """Compares the clocks of the store and of this machine. No decision about data depends on them."""
    if found.error:
        message = f"The clock of the store could not be read: [{found.error.code}] {found.error.message}"
        yield DoctorFinding("clock", WARN, message, found.error.hint or "Mend the store first.")
    elif found.seconds is None:
        yield DoctorFinding("clock", OK, "The store reports no time, or does not exist yet.")
    elif abs(found.seconds) < _SKEW_SECONDS[0]:
        yield DoctorFinding("clock", OK, "The clocks of the store and of this machine agree.")
    else:
        way = "ahead of" if found.seconds > 0 else "behind"
        message = f"The clock of the store is {abs(found.seconds):,.0f} s {way} this machine's."
        level = FAIL if abs(found.seconds) >= _SKEW_SECONDS[1] else WARN
        yield DoctorFinding("clock", level, message, "Synchronize both clocks (`chronyc tracking`, `timedatectl`).")


def judge_landing(found: Iterable[LandingProbe]) -> Iterator[DoctorFinding]:
    """Checks that each landing folder exists, is readable, and contains no links."""
    good = []
    for folder in found:
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


def judge_waiting_files(found: Iterable[WaitingFiles]) -> Iterator[DoctorFinding]:
    """Finds files that landed long ago and that no ingest has seen: no ingest runs, or it reads another folder."""
    is_good = True
    for files in found:
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


def judge_suites(found: Mapping[str, ErrorInfo | None]) -> Iterator[DoctorFinding]:
    """Checks each suite file."""
    for log, error in found.items():
        if error:
            yield DoctorFinding("suites", FAIL, f"{log}: [{error.code}] {error.message}", error.hint)
    if not any(found.values()):
        yield DoctorFinding("suites", OK, f"The checks of {count_noun(len(found), 'log')} are valid.")


def judge_retention(config: Config) -> Iterator[DoctorFinding]:
    """Finds settings that let data grow without limit."""
    growing = False
    if config.retention.keep is None:
        growing = True
        message = "`retention.snapshots` is `all`: snapshots and their log are kept for ever."
        hint = "Set it to a number, such as 10; `tidefold subsume --dry-run` shows what would be deleted."
        yield DoctorFinding("retention", WARN, message, hint)
    if config.local.folders and config.local.quota_bytes is None:
        growing = True
        message = "`local` has no `quota`: local copies may fill the disk."
        yield DoctorFinding("retention", WARN, message, "Set `local.quota`, such as 20GB.")
    if not growing:
        yield DoctorFinding("retention", OK, f"The newest {config.retention.keep} snapshots are kept.")


def judge_alarms(config: Config) -> Iterator[DoctorFinding]:
    """Finds logs without alarms."""
    silent = [log.id for log in config.logs.values() if log.alarms is None]
    if silent:
        hint = "Add `alarms: {}` to the configuration: these are the defaults (docs/alarms.md)."
        yield DoctorFinding("alarms", WARN, f"No alarms: {', '.join(silent)}.", hint)
    else:
        yield DoctorFinding("alarms", OK, f"{count_noun(len(config.logs), 'log')} with alarms.")


def judge_airflow(found: AirflowSetup) -> Iterator[DoctorFinding]:
    """Checks the connection to Spark, and finds DAG files that cannot be imported."""
    if not found.version:
        yield DoctorFinding("airflow", OK, "Airflow is not installed: the command line works without it.")
        return
    if found.error:
        hint = "Run `.venv/bin/airflow info`, and mend what it names."
        yield DoctorFinding("airflow", FAIL, f"Airflow {found.version} does not start: {found.error}", hint)
        return
    for file, error in found.import_errors.items():
        yield DoctorFinding("airflow", FAIL, f"DAG file {file} cannot be imported: {error}", "Mend what it names.")
    if not found.import_errors:
        where = f" Spark runs where `{found.connection}` says, not on `spark.master`." if found.has_connection else ""
        if not found.uses_connection:
            where = f" Spark runs on the server of `spark.master`: tasks do not use `{found.connection}`."
        yield DoctorFinding("airflow", OK, f"Airflow {found.version}, {count_noun(found.dags, 'DAG')} imported.{where}")
    if not found.uses_connection:
        return
    if found.has_connection is False:
        message = f"The connection `{found.connection}` does not exist: Airflow then starts Spark on YARN."
        hint = f"""Set AIRFLOW_CONN_{found.connection.upper()}='{{"conn_type": "spark", "host": "local[*]"}}'."""
        yield DoctorFinding("airflow", FAIL, message, hint)
    elif found.has_connection is None:
        message = f"Whether Airflow has the connection `{found.connection}` is not known: AIRFLOW_HOME is not set."
        yield DoctorFinding("airflow", OK, message)
