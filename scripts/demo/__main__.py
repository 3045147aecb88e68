"""`make demo`: lands the sample input phase by phase, lets Airflow's scheduler do the rest, checks every table."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from demo.report import show
from demo.truth import TruthError, check
from demo.watch import next_run, require_success
from local_airflow.errors import LocalAirflowError
from local_airflow.settings import PROJECT, Request
from local_airflow.stack import LocalAirflow, down, up
from tidefold.cli.sample import PHASES, land, prepare
from tidefold.domain.paths import LogPaths
from tidefold.wiring import open_pipeline

ROOT = PROJECT / "var" / "demo"
# Runs that find nothing new take seconds, so a new phase need not wait for the next full minute.
SCHEDULE = "* * * * * */20"
# A terminal's Ctrl-C and a supervisor's signal must both stop what was started.
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


_NEXT = """
What to do next, with the tables of this demo:
  ./tidefold status --config var/demo/tidefold.yaml           where each log stands
  ./tidefold snapshot history accounts --config var/demo/tidefold.yaml   every snapshot
and with your own:
  ./tidefold init FOLDER   writes a tidefold.yaml from the files that land there
  make up                  Airflow with the DAGs and the page, until `make down`; it prints its address and password
README.md goes on from here, docs/how-to/run-in-airflow.md says what each DAG does."""


def main() -> int:
    """Runs the demonstration; 0 when every table equalled the truth after every phase."""
    for number in _STOPS:
        signal.signal(number, _interrupt)
    begun = time.monotonic()
    try:
        _run()
    except (LocalAirflowError, TruthError, FileNotFoundError) as error:
        print(f"\ndemo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo interrupted", file=sys.stderr)
        return 130
    finally:
        down(ROOT, _say)
    show(ROOT / "tidefold.yaml")
    print(f"\nAll tables equalled the database's own dump after each phase. {time.monotonic() - begun:.0f} s in all.")
    print(_NEXT)
    return 0


def _run() -> None:
    down(ROOT, _say)
    shutil.rmtree(ROOT, ignore_errors=True)
    config = prepare(ROOT)
    _say(f"{PHASES[0]}: {land(config, PHASES[0])} files landed")
    followed = landed = datetime.now(UTC)
    airflow = up(Request(ROOT, config, SCHEDULE, quick_spark=True, warm_spark=True, port=8080), _say)
    _say(f"Airflow at {airflow.api.address}, user {airflow.api.user}, password {airflow.api.password}")
    for phase in PHASES:
        if phase != PHASES[0]:
            _say(f"{phase}: {land(config, phase)} files landed")
            landed = datetime.now(UTC)
        followed = _follow(airflow, followed, landed)
        _compare(config, phase)


def _follow(airflow: LocalAirflow, followed: datetime, landed: datetime) -> datetime:
    """Follows the scheduler's runs until one has ended that began after the landing; when that one began.

    A run that was under way takes what it finds, perhaps not all of it.
    """
    while followed <= landed:
        run = next_run(airflow, followed, _say)
        require_success(airflow, run)
        followed = run.begun
    return followed


def _compare(config: Path, phase: str) -> None:
    pipeline = open_pipeline(config)
    for log, settings in pipeline.config.logs.items():
        columns = {column.name: column.type for column in settings.shape.columns}
        rows = check(pipeline.store.uri(LogPaths(log).table), log, phase, columns)
        _say(f"  {log:<12}{rows:>9,} rows equal to the database after {phase}")


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    # make and the terminal may both send one: the second must not break off the stopping.
    for number in _STOPS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
