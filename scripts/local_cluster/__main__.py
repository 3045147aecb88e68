"""`python -m local_cluster up|land`: what `make cluster` and `make cluster-land` call."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

from local_airflow.errors import LocalAirflowError
from local_airflow.settings import PROJECT
from local_airflow.stack import LocalAirflow
from local_cluster.sample import land_phase, write_config
from local_cluster.stack import Servers, start_airflow, start_servers, stop_all
from tidefold.storage.safe_files import write_private

ROOT = PROJECT / "var" / "cluster"
_ENVIRONMENT = ROOT / "environment"
_NEXT = """
  Airflow   {address}   user {user}, password {password}
  Spark     http://127.0.0.1:{page}   ({master}, two workers in {workers})
  S3        {s3}, bucket tidefold; its keys are in {environment}

What to do next, in another terminal:

  make cluster-land PHASE=phase2          new changes; the DAG tidefold_materialize takes them within 5 minutes
  set -a; . {environment}; set +a         then ./tidefold status -c {config}
  kill -9 -- -{worker}                    worker `one` with all that it runs, also in the middle of a job
  {spark}/one/work                        what the workers printed, job by job

Ctrl-C stops everything. The files stay in {root}; `make clean` removes them.
"""


def main() -> int:
    """Runs the command; its exit code."""
    command = argparse.ArgumentParser(prog="local_cluster", description=__doc__)
    command.add_argument("command", choices=("up", "land"))
    command.add_argument("phase", nargs="?", default="phase2")
    given = command.parse_args()
    try:
        return _land(given.phase) if given.command == "land" else _run()
    except LocalAirflowError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _run() -> int:
    """Starts everything, and stops it by Ctrl-C or SIGTERM."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: _end(ended))
    try:
        servers = start_servers(ROOT, os.environ.get("WORKER_PYTHON") or sys.executable, _say)
        _write_environment(servers)
        config = write_config(servers)
        _say(f"{land_phase('phase1', servers.env)} files of the sample landed in S3")
        airflow = start_airflow(servers, config, os.environ.get("TIDEFOLD_SCHEDULE", "*/5 * * * *"), _say)
        _print(servers, airflow)
        ended.wait()
    except KeyboardInterrupt:
        pass
    finally:
        stop_all(ROOT, _say)
    return 0


def _end(ended: threading.Event) -> None:
    # While it starts nobody waits for the event.
    if ended.is_set():
        return
    ended.set()
    raise KeyboardInterrupt


def _land(phase: str) -> int:
    if not _ENVIRONMENT.exists():
        raise LocalAirflowError("No cluster was started here: `make cluster` starts it.")
    lines = (line.partition("=") for line in _ENVIRONMENT.read_text().splitlines())
    print(f"  {land_phase(phase, {name: value for name, _, value in lines})} files landed")
    return 0


def _write_environment(servers: Servers) -> None:
    write_private(_ENVIRONMENT, "".join(f"{name}={value}\n" for name, value in servers.env.items()))


def _print(servers: Servers, airflow: LocalAirflow) -> None:
    print(
        _NEXT.format(
            address=airflow.api.address,
            user=airflow.api.user,
            password=airflow.api.password,
            page=servers.spark.page,
            master=servers.spark.master,
            workers=_shorten(servers.spark.root),
            spark=_shorten(servers.spark.root),
            s3=servers.server.url,
            environment=_shorten(_ENVIRONMENT),
            config=_shorten(airflow.request.config),
            worker=servers.spark.find("one").pid,
            root=_shorten(ROOT),
        ),
        flush=True,
    )


def _shorten(path: Path) -> str:
    return os.path.relpath(path)


def _say(line: str) -> None:
    print(f"  {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
