"""Runs all checks of the doctor, each with a time limit. A check that hangs does not delay the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tidefold.config import Config, ConfigError, load_config
from tidefold.config.models.spark import is_connect
from tidefold.errors import TidefoldError, wrap_unexpected
from tidefold.operations.doctor import machine, pipeline_checks
from tidefold.operations.doctor.airflow_setup import AirflowSetup, check_airflow, probe_airflow
from tidefold.operations.doctor.buckets import check_buckets
from tidefold.operations.doctor.finding import DoctorFinding, FindingLevel, count_failed
from tidefold.operations.doctor.landed_sample import check_records, find_misfits
from tidefold.storage.outage import trying_addresses

SECONDS = 20.0
# The configuration of a command that names none. A machine may be checked before there is one.
UNNAMED = Path("tidefold.yaml")
# The import of Airflow alone takes seconds.
_SLOWER = 4.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The inputs of the doctor.

    project: the clone, with its DAGs and its lock; None: tidefold is installed as a package.
    jars: the jars that Spark needs.
    airflow: checks Airflow from inside an Airflow process; None: a separate process checks it.
    loaded: the configuration, once it is read.
    """

    project: Path | None
    config_path: Path
    jars: tuple[Path, ...]
    airflow: Callable[[], AirflowSetup] | None = None
    loaded: Config | None = None

    @property
    def config(self) -> Config:
        assert self.loaded
        return self.loaded


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """One check: `find` reads the state, and returns what is found.

    needs_config: whether it needs the configuration.
    slowness: how many times longer than other checks it may take.
    needs_store: whether it reads the store. Then it waits until the check of the store has passed.
    """

    name: str
    find: Callable[[Surroundings], Iterable[DoctorFinding]]
    needs_config: bool = True
    slowness: float = 1.0
    needs_store: bool = False


def find_airflow(around: Surroundings) -> AirflowSetup:
    """Returns the state of Airflow."""
    setup = around.airflow() if around.airflow else probe_airflow(around.project, around.config_path)
    if around.loaded is None:
        return setup
    scheduled, reason = around.config.spark.choose_scheduled(bool(setup.has_connect))
    return replace(setup, scheduled=scheduled, reason=reason)


def _find_master(around: Surroundings) -> str | None:
    return around.loaded.spark.master if around.loaded else None


def _find_need(around: Surroundings) -> str:
    return pipeline_checks.find_need_of_spark(around.loaded) if around.loaded else ""


def _find_task_memory(around: Surroundings) -> int:
    memory = machine.find_memory(around.config.spark.driver_memory)
    return memory.total - memory.driver


def find_disks(around: Surroundings) -> list[machine.DiskUsage]:
    """Returns the disks of this machine that the pipeline writes to."""
    config, base = around.config, around.config.path.parent
    store = [] if "://" in config.store else [("store", base / config.store)]
    local = [("local copies", base / folder) for folder in config.local.folders]
    return machine.find_disks([*store, *local, ("scratch files", base / "var")])


CHECKS = (
    DoctorCheck("versions", lambda a: machine.check_packages(machine.find_packages(a.project)), False),
    DoctorCheck("java", lambda a: machine.check_java(machine.find_java()), False),
    DoctorCheck("jars", lambda a: machine.check_jars(a.jars, lambda: _find_need(a)), False),
    DoctorCheck(
        "spark", lambda a: machine.check_spark(machine.find_spark(_find_master(a)), lambda: _find_need(a)), False
    ),
    DoctorCheck("memory", lambda a: machine.check_memory(machine.find_memory(a.config.spark.driver_memory))),
    DoctorCheck("buckets", lambda a: check_buckets(a.config, _find_task_memory(a)), needs_store=True),
    DoctorCheck("disk", lambda a: machine.check_disks(find_disks(a))),
    DoctorCheck("store", lambda a: pipeline_checks.check_store(a.config)),
    DoctorCheck("clock", lambda a: pipeline_checks.check_clock(a.config), needs_store=True),
    DoctorCheck("landing", lambda a: pipeline_checks.check_landing(a.config)),
    DoctorCheck("slots", lambda a: pipeline_checks.check_slots(a.config)),
    DoctorCheck("records", lambda a: check_records(find_misfits(a.config))),
    DoctorCheck("ingest", lambda a: pipeline_checks.check_waiting_files(a.config), needs_store=True),
    DoctorCheck("suites", lambda a: pipeline_checks.check_suites(a.config)),
    DoctorCheck("retention", lambda a: pipeline_checks.check_retention(a.config)),
    DoctorCheck("snapshots", lambda a: pipeline_checks.check_rewritten_rows(a.config), needs_store=True),
    DoctorCheck("alarms", lambda a: pipeline_checks.check_alarms(a.config)),
    DoctorCheck("airflow", lambda a: check_airflow(find_airflow(a)), False, _SLOWER),
)


def diagnose(around: Surroundings, seconds: float = SECONDS) -> list[DoctorFinding]:
    """Returns all findings, in the order of the checks. A check that fails or hangs is a finding, not an exception.

    seconds: how long a check may take.
    """
    loaded: list[Config] = []

    def check_config(around: Surroundings) -> Iterable[DoctorFinding]:
        config = load_config(around.config_path)
        loaded.append(config)
        yield DoctorFinding("configuration", FindingLevel.OK, f"{config.path}: {', '.join(config.logs)}.")

    check = DoctorCheck("configuration", check_config)
    findings = start_check(check, around, seconds)()
    if loaded:
        around = replace(around, loaded=loaded[0])
    else:
        unseen = ", ".join(check.name for check in CHECKS if check.needs_config)
        message, hint = f"Not checked, as they need the configuration: {unseen}.", "Mend the configuration first."
        if around.config_path == UNNAMED and not UNNAMED.exists():
            findings, hint = [], "`tidefold init DIR` writes one from landed files."
            message = f"There is no {UNNAMED} in this folder. {message}"
        findings.append(DoctorFinding("configuration", FindingLevel.WARN, message, hint))
    # With a Spark Connect server, or without a Spark, this machine needs no Java, no jars and no memory for it.
    is_bare = is_connect(_find_master(around) or "") or not machine.find_spark(None).has_submit
    has_jars = bool(loaded) and around.config.spark.jars != "fetched"
    unneeded = ("java", "jars", "memory") if is_bare else ("jars",) if has_jars else ()
    chosen = [check for check in CHECKS if (loaded or not check.needs_config) and check.name not in unneeded]
    with trying_addresses():
        return [*findings, *_run_checks(chosen, around, seconds)]


def _run_checks(checks: Sequence[DoctorCheck], around: Surroundings, seconds: float) -> list[DoctorFinding]:
    """Runs checks at once, those that need the store after its own. If that fails, they would say the same."""
    running = {check.name: start_check(check, around, seconds) for check in checks if not check.needs_store}
    of_store = running["store"]() if "store" in running else []
    later = [check for check in checks if check.needs_store]
    if count_failed(of_store):
        unseen = ", ".join(check.name for check in later)
        message = f"Not checked, as they need the store: {unseen}."
        of_store = [*of_store, DoctorFinding("store", FindingLevel.WARN, message, "Mend the store first.")]
    else:
        running |= {check.name: start_check(check, around, seconds) for check in later}
    running["store"] = lambda: of_store
    return [finding for check in checks if check.name in running for finding in running[check.name]()]


def start_check(check: DoctorCheck, around: Surroundings, seconds: float) -> Callable[[], list[DoctorFinding]]:
    """Starts a check in a thread. Returns a function that waits for its findings.

    The thread of a check that hangs keeps running, because a hanging call into a store cannot be stopped.
    """
    results: list[list[DoctorFinding] | TidefoldError] = []

    def look() -> None:
        try:
            results.append(list(check.find(around)))
        except Exception as error:
            results.append(wrap_unexpected(error))

    thread = threading.Thread(target=look, name=f"doctor-{check.name}", daemon=True)
    thread.start()
    limit = seconds * check.slowness
    ends = time.monotonic() + limit

    def collect() -> list[DoctorFinding]:
        thread.join(max(ends - time.monotonic(), 0.0))
        if not results:
            message = f"The check did not end within {limit:,.0f} s."
            hint = "A disk, a network or a service does not respond. Check it, or allow more time with `--seconds`."
            return [DoctorFinding(check.name, FindingLevel.FAIL, message, hint)]
        [found] = results
        if not isinstance(found, TidefoldError):
            return found
        texts = [(f"[{found.code}] {found.message}", found.hint)]
        if isinstance(found, ConfigError):
            texts = [(f"[{p.code}] line {p.line}: {p.key} {p.message}", p.hint) for p in found.problems]
        return [DoctorFinding(check.name, FindingLevel.FAIL, message, hint) for message, hint in texts]

    return collect
