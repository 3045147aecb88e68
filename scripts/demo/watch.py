"""Waits for runs that the scheduler makes, and tells what their tasks do."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from local_airflow.errors import LocalAirflowError
from local_airflow.stack import LocalAirflow

DAG = "tidefold_materialize"
KEEPING = ("subsume", "truncate", "local_retention", "clean")
TASKS = ("choose", "ingest", "materialize", "quality", "confirm", "read_back", *KEEPING, "abort")
# Of several instances of a task the one to tell of.
_WORST = {"success": 1, "skipped": 2, None: 3, "running": 4, "upstream_failed": 5, "failed": 6}
_ENDED = ("success", "failed", "upstream_failed", "skipped")


@dataclass(frozen=True)
class Run:
    """A finished run: `state` is success or failed, `tasks` maps a task to its last state."""

    id: str
    state: str
    begun: datetime
    tasks: dict[str, str]


def next_run(airflow: LocalAirflow, since: datetime, say: Callable[[str], None], seconds: float = 900) -> Run:
    """The first run that the scheduler began after an instant, once it has ended."""
    deadline = time.monotonic() + seconds
    said: set[tuple[str, str]] = set()
    while time.monotonic() < deadline:
        run = _first_after(airflow, since)
        if run is not None:
            states = _tell(airflow, run["dag_run_id"], said, say)
            if run["state"] in ("success", "failed"):
                return Run(run["dag_run_id"], run["state"], _instant(run["start_date"]), states)
        _still_alive(airflow)
        time.sleep(2)
    raise LocalAirflowError(f"No run ended within {seconds:.0f} s.", airflow.log("scheduler"))


def require_success(airflow: LocalAirflow, run: Run) -> None:
    """Raises with the failed task's last lines when the run is red."""
    if run.state == "success":
        return
    task = next((name for name in TASKS if run.tasks.get(name) == "failed"), "ingest")
    lines = last_try(airflow, run.id, task)
    raise LocalAirflowError("\n  ".join([f"Run {run.id} failed in task {task}. The end of its log:", *lines[-25:]]))


def last_try(airflow: LocalAirflow, run: str, task: str) -> list[str]:
    """The log lines of a task's last try."""
    one = by_name(airflow.api.tasks(DAG, run))[task]
    return airflow.api.log(DAG, run, task, max(one["try_number"], 1), one["map_index"])


def _first_after(airflow: LocalAirflow, since: datetime) -> dict[str, Any] | None:
    begun = [r for r in airflow.api.runs(DAG) if r["start_date"] and _instant(r["start_date"]) > since]
    return min(begun, key=lambda r: _instant(r["start_date"]), default=None)


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def _tell(airflow: LocalAirflow, run: str, said: set[tuple[str, str]], say: Callable[[str], None]) -> dict[str, str]:
    tasks = by_name(airflow.api.tasks(DAG, run))
    if not said:
        say(run)
        said.add((run, "began"))
    for name in TASKS:
        state = tasks[name]["state"] if name in tasks else None
        if state in _ENDED and not tasks[name]["all_ended"]:
            continue
        if state in (*_ENDED, "running", "up_for_retry") and (name, state) not in said:
            said.add((name, state))
            if state != "running":
                say(f"  {name:<16}{state:<16}{_seconds(tasks[name])}{_results(airflow, run, name, state)}")
    return {name: str(task["state"]) for name, task in tasks.items()}


def by_name(instances: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The instances of a run by task; of those that are mapped over logs one, the worst off, with the longest time."""
    found: dict[str, dict[str, Any]] = {}
    going = {one["task_id"] for one in instances if one["state"] not in _ENDED}
    for one in sorted(instances, key=lambda each: _WORST.get(each["state"], 0)):
        longest = max(found.get(one["task_id"], one)["duration"] or 0, one["duration"] or 0)
        found[one["task_id"]] = {**one, "duration": longest, "all_ended": one["task_id"] not in going}
    return found


def _seconds(task: dict[str, Any]) -> str:
    return f"{task['duration']:5.1f} s   " if task.get("duration") else " " * 10


def _results(airflow: LocalAirflow, run: str, task: str, state: str) -> str:
    return describe_results(_summary(airflow, run, task)) if state in ("success", "failed") else ""


def describe_results(summary: Mapping[str, Mapping[str, Any]]) -> str:
    """What a task did to each log, in a few words; one word where there was nothing to do for any."""
    if summary and all(what["result"] == "nothing" and not what["error"] for what in summary.values()):
        return "nothing to do"
    return ", ".join(f"{log} {_describe_log(what)}" for log, what in sorted(summary.items()))


def _describe_log(what: Mapping[str, Any]) -> str:
    engine = f" ({what['engine']})" if what.get("engine") else ""
    return f"{what['error'] or what['result']}{engine}"


def _summary(airflow: LocalAirflow, run: str, task: str) -> dict[str, Any]:
    """What a task returned; of one that is mapped, what all its instances did."""
    found: dict[str, Any] = {}
    for one in airflow.api.tasks(DAG, run):
        with suppress(LocalAirflowError):
            if one["task_id"] == task != "choose":
                found |= airflow.api.xcom(DAG, run, task, one["map_index"])
    return found


def _still_alive(airflow: LocalAirflow) -> None:
    for component in ("scheduler", "dag_processor"):
        if airflow.api.health().get(component) == "unhealthy":
            raise LocalAirflowError(f"Airflow's {component} stopped.", airflow.log(component.replace("_", "-")))
