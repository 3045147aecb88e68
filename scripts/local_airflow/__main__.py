"""`python -m local_airflow up|down|airflow ...`: what `make up`, `make down` and `make airflow` call."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from local_airflow.errors import LocalAirflowError
from local_airflow.settings import PROJECT, Request
from local_airflow.stack import LocalAirflow, call_airflow, down, up
from local_cluster.stack import stop_all

VAR = PROJECT / "var"


def main() -> int:
    """Runs the command; its exit code."""
    command = argparse.ArgumentParser(prog="local_airflow", description=__doc__)
    command.add_argument("command", choices=("up", "down", "airflow"))
    command.add_argument("words", nargs=argparse.REMAINDER, help="of a command of Airflow")
    given = command.parse_args()
    try:
        if given.command == "airflow":
            return call_airflow(VAR, given.words)
        return {"up": _up, "down": _down}[given.command]()
    except LocalAirflowError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _up() -> int:
    schedule = os.environ.get("TIDEFOLD_SCHEDULE", "@hourly")
    own = _own_config()
    # The sample's jobs take seconds; a user's may take minutes and want both compilers.
    request = Request(VAR, own or _sample(), schedule, quick_spark=own is None, warm_spark=True, port=8080)
    airflow = up(request, _say)
    _print(airflow)
    return 0


def _own_config() -> Path | None:
    given = Path(os.environ.get("TIDEFOLD_CONFIG") or PROJECT / "tidefold.yaml")
    if given.exists():
        return given.resolve()
    if "TIDEFOLD_CONFIG" in os.environ:
        raise LocalAirflowError(f"TIDEFOLD_CONFIG names {given}, which does not exist.")
    return None


def _sample() -> Path:
    """The demo's pipeline with its first phase landed, so that a fresh clone has something to show."""
    from tidefold.cli.sample import land, prepare

    _say("no tidefold.yaml in the project: taking the sample input (var/sample/tidefold.yaml)")
    config = prepare(VAR / "sample")
    land(config, "phase1")
    return config


def _down() -> int:
    # The last one is a `make cluster` that was killed before it could stop what it had started.
    stopped = [*(down(root, _say) for root in (VAR, VAR / "demo")), stop_all(VAR / "cluster", _say)]
    if not any(stopped):
        _say("nothing was running")
    return 0


def _print(airflow: LocalAirflow) -> None:
    print(f"\n  address   {airflow.api.address}\n  user      {airflow.api.user}\n  password  {airflow.api.password}")
    print(f"\n  DAG tidefold_materialize runs {airflow.request.schedule} on {airflow.request.config}")
    print(f"  logs in {airflow.log('scheduler').parent}; `make down` stops everything\n")


def _say(line: str) -> None:
    print(f"  {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
