"""Runs of the sample in a real scheduler: from the trigger to the published tables, and where the seconds go.

`WAYS=airflow make bench-run` brings up Airflow (Postgres, LocalExecutor) below a scratch folder. Beside each run of
ours it measures a run of a DAG of empty tasks: as many task processes, one after the other, that only return.
The log lines of every task with their times are in var/bench/run_airflow.json.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from local_airflow.errors import tail
from local_airflow.settings import PROJECT, Request
from local_airflow.stack import LocalAirflow, down, up
from tables import PAGES, folder
from tidefold.cli import sample

RESULTS = PAGES / "run_airflow.json"
TRACES = PROJECT / "var" / "bench" / "run_airflow.json"
DAG = "tidefold_materialize"
# Only these run between the trigger and the published tables.
TO_PUBLISHED = ("choose", "ingest", "materialize", "quality", "confirm")
# The files stay as they are: Airflow need not read them again while it works.
_SELDOM = {"AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600"}
_NAMES = {
    "news": "with news",
    "empty_7": "7 empty tasks, one after the other",
    "no news": "without news",
    "empty_3": "3 empty tasks",
}
_GOALS = {"news": 15, "no news": 6}
# Without news nothing is published: what counts is the end.
_MEASURED = {"no news": "ended"}
_PARTS = {
    "scheduler": "the scheduler finds that the task before has ended",
    "start": "a process starts (for the last `confirm`: and one of two places is free)",
    "read": "the process reads the DAG file",
    "work": "the task works, imports included",
}
EMPTY_DAG = '''\
"""{count} tasks, one after the other, that do nothing."""

from airflow.sdk import DAG, task


@task
def nothing() -> None:
    """Returns."""


with DAG("empty_{count}", schedule=None, catchup=False):
    last = nothing.override(task_id="task_0")()
    for number in range(1, {count}):
        after = nothing.override(task_id=f"task_{{number}}")()
        last >> after
        last = after
'''


def measure(rounds: int) -> None:
    """Measures as many rounds, and adds them to the results beside the page.

    A round is: three landings with a run after each, then as many runs without news, each with its empty runs.
    """
    with folder() as scratch:
        config = sample.prepare(scratch / "pipeline", None)
        dags = scratch / "dags"
        dags.mkdir()
        for file in (PROJECT / "dags").glob("*.py"):
            (dags / file.name).symlink_to(file)
        for count in (3, 7):
            (dags / f"empty_{count}.py").write_text(EMPTY_DAG.format(count=count))
        airflow = up(Request(scratch / "airflow", config, "", dags=dags, more=_SELDOM), _say)
        try:
            # The first run of each warms the files' caches and the api-server.
            _run(airflow, "empty_3")
            for round_ in range(rounds):
                _begin_again(config)
                for phase in sample.PHASES:
                    sample.land(config, phase)
                    _keep("news", phase, round_, _run(airflow, DAG))
                    _keep("empty_7", phase, round_, _run(airflow, "empty_7"))
                    _keep("no news", phase, round_, _run(airflow, DAG))
                    _keep("empty_3", phase, round_, _run(airflow, "empty_3"))
        finally:
            down(scratch / "airflow", _say)


def _begin_again(config: Path) -> None:
    """A store and a landing of their own for each round: the configuration keeps its path."""
    for name in ("store", "local", "landing"):
        folder_ = config.parent / name
        if folder_.exists():
            folder_.rename(config.parent / f"{name}-{time.monotonic_ns()}")
    sample.prepare(config.parent, None)


def _run(airflow: LocalAirflow, dag: str) -> dict[str, Any]:
    """Triggers a run and waits for its end: seconds after the trigger, of the whole and of each task."""
    begun = time.time()
    run = airflow.api.trigger(dag)
    while True:
        found = next(one for one in airflow.api.runs(dag) if one["dag_run_id"] == run)
        if found["state"] in ("success", "failed"):
            break
        time.sleep(0.5)
    if found["state"] == "failed":
        raise SystemExit(f"{run} of {dag} failed:\n{_describe_failure(airflow, dag, run)}")
    tasks = [_trace(airflow, dag, run, task, begun) for task in airflow.api.tasks(dag, run) if task["start_date"]]
    tasks = sorted((t for t in tasks if t["ended"] - t["started"] > 0 and t["lines"]), key=lambda task: task["started"])
    return {
        "published": round(_find_published(tasks, dag), 2),
        "ended": round(_instant(found["end_date"]) - begun, 2),
        "tasks": tasks,
    }


def _describe_failure(airflow: LocalAirflow, dag: str, run: str) -> str:
    """The last log lines of each failed task."""
    failed = [task for task in airflow.api.tasks(dag, run) if task["state"] == "failed"]
    lines = (airflow.api.log(dag, run, t["task_id"], max(t["try_number"], 1), t["map_index"])[-30:] for t in failed)
    logs = (tail(airflow.log(component)) for component in ("api-server", "scheduler"))
    return "\n".join([*(line for some in lines for line in some), *logs])


def _find_published(tasks: Sequence[Mapping[str, Any]], dag: str) -> float:
    """Seconds until the last task that readers wait for had ended."""
    return max(task["ended"] for task in tasks if dag != DAG or task["task"] in TO_PUBLISHED)


def _trace(airflow: LocalAirflow, dag: str, run: str, task: Mapping[str, Any], begun: float) -> dict[str, Any]:
    """Seconds after the trigger of what Airflow knows of a task, and of its log lines."""
    fields = {"scheduled": "scheduled_when", "queued": "queued_when", "started": "start_date", "ended": "end_date"}
    times = {name: round(_instant(task[field]) - begun, 2) for name, field in fields.items() if task.get(field)}
    lines = list(_list_lines(airflow, dag, run, task, begun)) if task["try_number"] else []
    return {"task": task["task_id"], "index": task["map_index"], **times, "lines": lines}


def _list_lines(
    airflow: LocalAirflow, dag: str, run: str, task: Mapping[str, Any], begun: float
) -> Iterator[tuple[float, str]]:
    path = f"/dags/{dag}/dagRuns/{run}/taskInstances/{task['task_id']}/logs/{task['try_number']}"
    content = airflow.api.get(f"{path}?full_content=true&map_index={task['map_index']}")["content"]
    for entry in content:
        if isinstance(entry, dict) and entry.get("timestamp"):
            yield round(_instant(entry["timestamp"]) - begun, 2), str(entry.get("event", ""))[:100]


def _instant(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _keep(what: str, phase: str, round_: int, found: Mapping[str, Any]) -> None:
    run = {"what": what, "phase": phase, "load": round(os.getloadavg()[0], 1), **found}
    print(f"{what} {phase}: published after {run['published']} s, ended after {run['ended']} s", flush=True)
    _add(TRACES, {"round": round_, **run})
    _add(RESULTS, {**run, "tasks": [_shorten(task) for task in found["tasks"]]})


def _shorten(task: Mapping[str, Any]) -> dict[str, Any]:
    """The task without its lines, and when it had read the DAG file."""
    read = [second for second, line in task["lines"] if "parse complete" in line]
    return {**{name: value for name, value in task.items() if name != "lines"}, "read": (read or [task["started"]])[0]}


def _add(path: Path, run: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(path.read_text()) if path.exists() else []
    path.write_text(json.dumps([*kept, run]) + "\n")


def describe() -> list[str]:
    """The lines of the page about Airflow."""
    if not RESULTS.exists():
        return []
    runs = json.loads(RESULTS.read_text())
    text = (Path(__file__).parent / "run_airflow.md").read_text()
    loads = [run["load"] for run in runs]
    text = text.replace("{load}", f"{min(loads):.0f} to {max(loads):.0f}")
    return text.replace("{measured}", "\n".join(_list_tables(runs))).splitlines()


def _list_tables(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    named = {what: [run for run in runs if run["what"] == what] for what in _NAMES}
    yield "| run | runs | to the published tables | to the end of the run | goal | |"
    yield "|---|---|---|---|---|---|"
    for what, some in named.items():
        goal = _GOALS.get(what)
        taken = statistics.median(run[_MEASURED.get(what, "published")] for run in some)
        verdict = f"<= {goal} s | {'met' if taken <= goal else '**missed**'}" if goal else "|"
        yield f"| {_NAMES[what]} | {len(some)} | {_spread(some, 'published')} | {_spread(some, 'ended')} | {verdict} |"
    yield ""
    yield "| seconds to the published tables, median | a run with news | 7 empty tasks |"
    yield "|---|---|---|"
    parts = {what: [_split(run) for run in named[what]] for what in ("news", "empty_7")}
    for part in ("scheduler", "start", "read", "work"):
        cells = (f"{statistics.median(one[part] for one in parts[what]):.1f} s" for what in parts)
        yield f"| {_PARTS[part]} | {' | '.join(cells)} |"
    yield ""
    yield "| task with news, median | reads the DAG file | works |"
    yield "|---|---|---|"
    tasks = [task for run in named["news"] for task in run["tasks"]]
    for name in dict.fromkeys(task["task"] for task in tasks):
        mine = [task for task in tasks if task["task"] == name]
        read, work = ([one[b] - one[a] for one in mine] for a, b in (("started", "read"), ("read", "ended")))
        yield f"| {name} | {statistics.median(read):.1f} s | {statistics.median(work):.1f} s |"


def _split(run: Mapping[str, Any]) -> dict[str, float]:
    """Splits the seconds to the published tables along the tasks that followed one another."""
    order = [task["task"] for task in run["tasks"] if run["what"] != "news" or task["task"] in TO_PUBLISHED]
    found, ended = dict.fromkeys(_PARTS, 0.0), 0.0
    for name in dict.fromkeys(order):
        last = max((task for task in run["tasks"] if task["task"] == name), key=lambda task: task["ended"])
        found["scheduler"] += last["queued"] - ended
        found["start"] += last["started"] - last["queued"]
        found["read"] += last["read"] - last["started"]
        found["work"] += last["ended"] - last["read"]
        ended = last["ended"]
    return found


def _spread(runs: Sequence[Mapping[str, Any]], what: str) -> str:
    values = [run[what] for run in runs]
    return f"{statistics.median(values):.1f} s ({min(values):.1f} to {max(values):.1f})"


def _say(line: str) -> None:
    print(f"  {line}", flush=True)


if __name__ == "__main__":
    measure(int(os.environ.get("ROUNDS", "5")))
