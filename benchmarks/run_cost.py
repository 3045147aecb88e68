"""What a scheduled run costs beside empty tasks and beside the command line: CPU seconds of all parts of an Airflow.

`WAYS=airflow make bench-run` calls it. The seconds of a run are those of the sessions of scheduler (with all task
processes), api-server, triggerer, PostgreSQL and Spark server, less what they take in the same time while they idle.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from local_airflow.processes import Register
from local_airflow.settings import PROJECT, Request
from local_airflow.stack import LocalAirflow, down, up
from many_logs import LOG_ENTRY
from run_airflow import EMPTY_DAG
from tables import PAGES, folder
from test_tiers.cpu import measure_running

RESULTS = PAGES / "run_cost.json"
LOGS = {"one": 1, "twenty": 20, "many": 200}
MOST_TASKS = 20
PARTS = os.environ.get("PARTS", "runs,warm,idle").split(",")
_ROWS = 100
# The supervisor of an ended task lives for up to 5 s.
_SETTLE = 6
_IDLE = 60
_OURS = '''\
"""A pipeline."""

from tidefold_airflow import tidefold_dag

dag = tidefold_dag({name!r}, schedule=None, config={config!r})
'''
# As the dag-processor does it: a fork of a process that has loaded what the listener loads.
_PARSE = """\
import os, sys
from airflow.dag_processing.dagbag import DagBag
from tidefold_airflow import preload
preload.load(preload._OF_FILES)
preload._read_configuration()
for path in sys.argv[1:]:
    child = os.fork()
    if not child:
        bag = DagBag(path)
        os._exit(1 if bag.import_errors else 0)
    if os.waitpid(child, 0)[1]:
        raise SystemExit(path)
found = os.times()
print(found.children_user + found.children_system)
"""


@dataclass(frozen=True)
class Rig:
    """A live Airflow. rate: CPU seconds that it takes in a second while it idles."""

    airflow: LocalAirflow
    rate: float = 0.0

    def cpu(self, names: Sequence[str] = ("scheduler", "api-server", "triggerer", "postgres", "spark")) -> float:
        started = Register(self.airflow.request.root / "processes.json").read()
        return sum(measure_running(one.pid) for one in started if one.name in names)


def measure(rounds: int) -> None:
    """Measures as many rounds of runs, then idle dag-processors and parses. Adds them to the results."""
    with folder() as scratch:
        for name, count in LOGS.items():
            _make(scratch / name, count)
            # Of many, the first landing is measured.
            if name != "many":
                _command(scratch / name)
            shutil.copytree(scratch / name, scratch / f"{name}-command")
        if "runs" in PARTS:
            _measure_runs(scratch, rounds)
        if "warm" in PARTS:
            _measure_warm(scratch)
        if "idle" in PARTS:
            _measure_idle(scratch)


def _make(root: Path, count: int) -> None:
    names = [f"log_{number:03d}" for number in range(count)]
    for name in names:
        (root / "landing" / name).mkdir(parents=True)
    logs = "".join(LOG_ENTRY.format(name=name) for name in names)
    (root / "tidefold.yaml").write_text(f"version: 1\nstore: store\nretention: {{snapshots: 2}}\nlogs:\n{logs}")
    _land(root, 0)


def _land(root: Path, number: int, count: int | None = None) -> None:
    """Lands one file with rows of 100 keys for as many logs; None: all."""
    for path in sorted((root / "landing").iterdir())[:count]:
        first = number * _ROWS
        lines = (json.dumps(_change(path.name, first + row, row)) for row in range(_ROWS))
        (path / f"{path.name}+0+{first:010d}.json").write_text("\n".join(lines) + "\n")


def _change(log: str, offset: int, key: int) -> dict[str, Any]:
    source = {"lsn": offset, "sequence": json.dumps([None, str(offset)]), "ts_ms": offset, "snapshot": "false"}
    after = {"id": key, "text": f"text {offset}"}
    value = {"op": "c", "ts_ms": 1, "before": None, "after": after, "source": {**source, "table": log}}
    return {"topic": log, "partition": 0, "offset": offset, "timestamp": 1, "key": {"id": key}, "value": value}


def _command(root: Path) -> float:
    """Returns the CPU seconds of `tidefold run`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    call = [str(PROJECT / "tidefold"), "run", "--config", str(root / "tidefold.yaml")]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{call} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _measure_runs(scratch: Path, rounds: int) -> None:
    with Opened(scratch, "plain", LOGS) as rig:
        _warm(rig)
        for number in range(1, rounds + 1):
            for name in ("one", "twenty"):
                for root in (scratch / name, scratch / f"{name}-command"):
                    _land(root, number, 3 if name == "twenty" else None)
                _keep_with_command(rig, scratch, name)
            _keep_with_empty(rig, "nothing new", "one")
        _keep_with_command(rig, scratch, "many")


def _warm(rig: Rig) -> None:
    """The first request of a run may take longer than a client waits: the api-server imports much."""
    for name in ("empty_3", "one"):
        try:
            _run(rig, name)
        except OSError:
            time.sleep(_IDLE)


def _measure_warm(scratch: Path) -> None:
    with Opened(scratch, "warm", ["one"], warm=True) as rig:
        _warm(rig)
        for number in (101, 102):
            _land(scratch / "one", number)
            _keep_with_empty(rig, "warm: news one", "one")
            _keep_with_empty(rig, "warm: nothing new", "one")


class Opened:
    """An Airflow with a DAG for each pipeline, and empty ones of 1 to 20 tasks."""

    def __init__(self, scratch: Path, name: str, pipelines: Sequence[str] | Mapping[str, int], warm: bool = False):
        self.root, self.warm = scratch / f"airflow-{name}", warm
        dags = self.root / "dags"
        dags.mkdir(parents=True)
        for one in pipelines:
            (dags / f"{one}.py").write_text(_OURS.format(name=one, config=str(scratch / one / "tidefold.yaml")))
        for count in range(1, MOST_TASKS + 1):
            (dags / f"empty_{count}.py").write_text(EMPTY_DAG.format(count=count))
        more = {"AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600"}
        config = scratch / "one" / "tidefold.yaml"
        self.request = Request(self.root, config, "", dags=dags, warm_spark=warm, more=more)

    def __enter__(self) -> Rig:
        rig = Rig(up(self.request, _say))
        before = rig.cpu()
        time.sleep(_IDLE / 2)
        return Rig(rig.airflow, (rig.cpu() - before) / (_IDLE / 2))

    def __exit__(self, *_: object) -> None:
        down(self.root, _say)


def _run(rig: Rig, dag: str) -> dict[str, Any]:
    """Triggers a run and waits for its end. Returns what it cost, and how long each task was queued."""
    api, before, begun = rig.airflow.api, rig.cpu(), time.time()
    run, state = api.trigger(dag), ""
    while state not in ("success", "failed"):
        time.sleep(1)
        # A busy machine may not respond in time.
        with suppress(OSError):
            state = api.get(f"/dags/{dag}/dagRuns/{quote(run)}")["state"]
    if state == "failed":
        raise SystemExit(f"{run} of {dag} failed.")
    wall = time.time() - begun
    time.sleep(_SETTLE)
    cpu = rig.cpu() - before - rig.rate * (time.time() - begun)
    tasks = [one for one in api.tasks(dag, run) if one["state"] == "success" and one["try_number"]]
    waits = [_instant(one["start_date"]) - _instant(one["queued_when"]) for one in tasks]
    return {"cpu": cpu, "wall": round(wall, 1), "tasks": len(tasks), "queued": [round(one, 2) for one in waits]}


def _instant(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _keep_with_empty(rig: Rig, what: str, dag: str) -> None:
    """Measures a run, and after it one of as many empty tasks."""
    found = _run(rig, dag)
    _keep(what, found)
    _keep(f"empty beside {what}", _run(rig, f"empty_{min(MOST_TASKS, found['tasks'])}"))


def _keep_with_command(rig: Rig, scratch: Path, name: str) -> None:
    _keep_with_empty(rig, f"news {name}", name)
    _keep(f"command {name}", {"cpu": _command(scratch / f"{name}-command")})


def _measure_idle(scratch: Path) -> None:
    """The files of the product: with one log, with 200, and as many empty files."""
    files = sorted((PROJECT / "dags").glob("*.py"))
    dags, config = scratch / "idle" / "dags", scratch / "idle" / "tidefold.yaml"
    dags.mkdir(parents=True)
    for file in files:
        (dags / file.name).symlink_to(file)
    shutil.copy(scratch / "one" / "tidefold.yaml", config)
    request = Request(scratch / "idle", config, "", dags=dags, paused=True)
    rig = Rig(up(request, _say))
    try:
        _watch(rig, "idle one")
        for name in ("one", "many") * 3:
            shutil.copy(scratch / name / "tidefold.yaml", config)
            _keep(f"parse {name}", {"cpu": _parse(rig, files)})
        _watch(rig, "idle many")
        for number, file in enumerate(files):
            (dags / file.name).unlink()
            (dags / f"empty_{number}.py").write_text(EMPTY_DAG.format(count=number + 1))
        _watch(rig, "idle empty")
    finally:
        down(request.root, _say)


def _watch(rig: Rig, what: str) -> None:
    # All files were read at least once.
    time.sleep(_IDLE)
    before = rig.cpu(["dag-processor"])
    time.sleep(2 * _IDLE)
    _keep(what, {"cpu": (rig.cpu(["dag-processor"]) - before) / 2})


def _parse(rig: Rig, files: Sequence[Path]) -> float:
    call = [sys.executable, "-c", _PARSE, *map(str, files)]
    env = {**rig.airflow.env, "PYTHONPATH": f"{PROJECT / 'include'}:{PROJECT / 'plugins'}"}
    done = subprocess.run(call, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return float(done.stdout.split()[-1])


def _keep(what: str, found: Mapping[str, Any]) -> None:
    run = {"what": what, **found, "cpu": round(found["cpu"], 2), "load": round(os.getloadavg()[0], 1)}
    print(json.dumps(run), flush=True)
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    lines = ",\n".join(json.dumps(one) for one in [*kept, run])
    RESULTS.write_text(f"[{lines}]\n")


def describe() -> list[str]:
    """The lines of the page: each goal beside what was measured."""
    if not RESULTS.exists():
        return []
    return list(_list_lines(json.loads(RESULTS.read_text())))


# What is compared, our runs, those beside them, the goal, and the ratio before.
_COMPARED = (
    ("one log with news, against empty tasks", "news one", "empty beside news one", 2.5, "5.5"),
    ("one log with news, against `tidefold run`", "news one", "command one", 1, "2.1"),
    ("nothing new, against empty tasks", "nothing new", "empty beside nothing new", 1.5, "4"),
    ("three of 20 logs with news, against one of one", "news twenty", "news one", 2, "3"),
    ("200 logs with news, against `tidefold run`", "news many", "command many", 1.2, "3.9"),
    ("dag-processor, a minute, against as many empty files", "idle one", "idle empty", 1.2, "2.5"),
    ("parse of all DAG files with 200 logs, against one log", "parse many", "parse one", 1.5, "5.7"),
)


def _list_lines(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    named = {run["what"]: [one for one in runs if one["what"] == run["what"]] for run in runs}

    def cpu(what: str) -> float:
        return statistics.median(one["cpu"] for one in named[what])

    queued = sorted(wait for one in runs for wait in one.get("queued", ()))
    late = queued[int(len(queued) * 0.95)] if queued else 0.0
    most = max(one["tasks"] for one in named["news many"])
    yield "### What a run costs"
    yield ""
    yield "CPU seconds of scheduler with its task processes, api-server, triggerer, PostgreSQL and Spark server, less"
    yield "what they take in the same time while they idle; medians. A log is JSON of 100 changes a landing. Beside"
    yield "each run of ours ran a DAG of as many empty Python tasks. [run_cost.json](run_cost.json) has every run."
    yield ""
    yield "| what | ours | beside it | measured | goal | before | |"
    yield "|---|---|---|---|---|---|---|"
    for text, ours, beside, goal, before in (one for one in _COMPARED if {one[1], one[2]} <= named.keys()):
        ratio = cpu(ours) / cpu(beside)
        verdict = "met" if ratio <= goal else "**missed**"
        cells = f"{cpu(ours):.2f} s | {cpu(beside):.2f} s | {ratio:.2f} x | <= {goal} x | {before} x"
        yield f"| {text} | {cells} | {verdict} |"
    verdict = "met" if most <= MOST_TASKS else "**missed**"
    yield f"| task processes of 200 logs with news | | | {most} | <= {MOST_TASKS} | 208 | {verdict} |"
    verdict = "met" if late <= 0.5 else "**missed**"
    loads = [one["load"] for one in runs if one.get("queued")]
    text = (
        f"queued to started, 95th percentile of {len(queued)} tasks, at a load of {min(loads):.0f} to {max(loads):.0f}"
    )
    yield f"| {text} | | | {late:.2f} s | <= 0.5 s, at a load below 2 | 4.0 s | {verdict} |"
    yield ""
    if "idle empty" not in named:
        yield "Not measured yet: the idle dag-processor, and a parse of all DAG files with 200 logs (`PARTS=idle`)."
        yield ""
    yield "On a warm Spark Connect server, whose seconds count:"
    yield ""
    yield "| run | ours | as many empty tasks |"
    yield "|---|---|---|"
    warm = (("one log with news", "warm: news one"), ("nothing new", "warm: nothing new"))
    for text, what in (one for one in warm if one[1] in named):
        yield f"| {text} | {cpu(what):.2f} s | {cpu(f'empty beside {what}'):.2f} s |"
    yield ""


def _say(line: str) -> None:
    print(f"  {line}", flush=True)


if __name__ == "__main__":
    measure(int(os.environ.get("ROUNDS", "3")))
