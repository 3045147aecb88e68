"""`make test-cluster`: plays every outage on a cluster, through Airflow, and writes cluster.md."""

from __future__ import annotations

import json
import os
import random
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import wrap_text
from cluster.rig import LOGS, Rig, open_rig, wait
from local_airflow.settings import PROJECT
from local_cluster.versitygw import VERSION

PAGE = PROJECT / "docs" / "contributors" / "benchmarks" / "cluster.md"
RECORD = PROJECT / "lab" / "data" / "cluster.json"
SECONDS = int(os.environ.get("SECONDS_GONE", "60"))
_CHANGES = {"items": 20_000, "notes": 500}
_RETRIED = re.compile(
    r"Lost task|Lost executor|ExecutorLostFailure|S3 .*(?:waiting|tries again|not answer)", re.IGNORECASE
)


@dataclass(frozen=True)
class Story:
    """An outage: what happens, and what does it while a run works. `strike` returns what it did."""

    name: str
    strike: Callable[[Rig], str]


@dataclass(frozen=True)
class Played:
    """What came of a story.

    tries: of the task of Airflow that was struck, the most.
    left: what was left over after the run.
    lines: how many lines of the tasks' logs tell of lost tasks, lost executors or waits for S3.
    """

    name: str
    did: str
    state: str
    seconds: float
    tries: int
    wrong: list[str]
    left: list[str]
    lines: int

    @property
    def is_good(self) -> bool:
        return self.state == "success" and not self.wrong and not self.left


def kill_worker(job: str) -> Callable[[Rig], str]:
    def strike(rig: Rig) -> str:
        found = rig.wait_for_tasks(job)
        struck = next(name for name in ("one", "two") if found[0].pid in rig.pids_of(name))
        rig.servers.spark.kill(struck)
        return f"worker `{struck}` and its executor, while `{job}` ran its tasks; it came back after the run"

    return strike


def kill_executor(job: str) -> Callable[[Rig], str]:
    def strike(rig: Rig) -> str:
        rig.wait_for_tasks(job)[0].kill()
        return f"one of two executors, while `{job}` ran its tasks"

    return strike


def kill_driver(job: str) -> Callable[[Rig], str]:
    def strike(rig: Rig) -> str:
        rig.wait_for_tasks(job)
        found = rig.drivers(job)
        for process in found:
            process.kill()
        return f"the driver's {len(found)} processes (spark-submit, JVM, Python), while `{job}` ran its tasks"

    return strike


def take_server_away(rig: Rig) -> str:
    rig.wait_for_tasks("materialize")
    with rig.server_gone():
        wait(SECONDS)
    return f"versitygw killed, its address refused for {SECONDS} s, then started again, while `materialize` ran"


def keep_server_busy(rig: Rig) -> str:
    rig.wait_for_tasks("materialize")
    before = rig.proxy.refused
    with rig.server_busy():
        wait(SECONDS)
    return f"{rig.proxy.refused - before} requests got 503 within {SECONDS} s, while `materialize` ran"


def do_nothing(rig: Rig) -> str:
    return "nothing"


STORIES = (
    Story("no outage", do_nothing),
    Story("a worker dies while it folds", kill_worker("materialize")),
    Story("a worker dies while it ingests", kill_worker("ingest")),
    Story("an executor dies while it folds", kill_executor("materialize")),
    Story("an executor dies while the gate counts", kill_executor("quality")),
    Story("the driver dies while it ingests", kill_driver("ingest")),
    Story("the driver dies while it folds", kill_driver("materialize")),
    Story("the S3 server is gone", take_server_away),
    Story("the S3 server is busy", keep_server_busy),
)


def play(rig: Rig, story: Story, chance: random.Random) -> Played:
    """Lands changes, starts a run, strikes, waits for the end, and compares."""
    for log in LOGS:
        rig.change(log, _CHANGES[log], chance)
    begun = time.monotonic()
    run = rig.trigger()
    did = story.strike(rig)
    run.ended()
    seconds = time.monotonic() - begun
    rig.restart_workers()
    rig.wait_until_idle()
    tries = max(one["try_number"] for one in run.instances)
    lines = sum(len(_RETRIED.findall(run.log(task))) for task in ("ingest", "materialize", "quality"))
    return Played(story.name, did, run.state, seconds, tries, rig.find_wrong(), rig.find_left(), lines)


def main() -> int:
    """0: every story ended well."""
    root = Path(os.environ.get("CLUSTER_ROOT") or PROJECT / "var" / "test-cluster")
    wanted = os.environ.get("STORIES", "")
    played: list[Played] = []
    with open_rig(root, lambda line: print(f"  {line}", flush=True)) as rig:
        chance = random.Random(23)
        for story in STORIES:
            if not re.search(wanted, story.name):
                continue
            found = play(rig, story, chance)
            played.append(found)
            print(f"{found.name}: {found}", flush=True)
            record(found)
    return 0 if played and all(one.is_good for one in played) else 1


def record(played: Played) -> None:
    """Records a story, and writes the page again with all that were recorded."""
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    known[played.name] = asdict(played)
    RECORD.write_text(json.dumps(known, indent=1) + "\n")
    found = [Played(**known[story.name]) for story in STORIES if story.name in known]
    PAGE.write_text(wrap_text.wrap("\n".join(describe(found))))


def describe(played: list[Played]) -> list[str]:
    head = [
        "# Outages on a cluster",
        "",
        f"`make test-cluster` writes this page. It starts a Spark master and two workers as processes of their own, "
        f"versitygw {VERSION} behind a small proxy, and Airflow. The workers have folders of their own and no path to "
        "the code: the package travels with each job. Each story lands 20,500 changes of two tables, of which a tenth "
        "are deletes, triggers a run of the DAG in Airflow, and strikes once while tasks of Spark run. Afterwards both "
        "tables are compared with plain dicts to which the same changes were applied.",
        "",
        "*Left over* counts claims, files in the store that no ledger, manifest or table names, open uploads, and "
        "files of tidefold on the disks of workers and driver. Spark's own folders do not count: a killed worker "
        "leaves Spark's cache of jars on its disk, and a killed driver leaves `var/spark/spark-*`, which `tidefold "
        "clean` deletes after `retention.scratch_days`. An ingest that died before it recorded its results leaves an "
        "announcement of its files. `tidefold retain clean` ends it after an hour; here it is ended at once.",
        "",
        "| story | what was struck | run in Airflow | tries of a task | seconds | tables | left over |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in played:
        tables = "equal" if not one.wrong else "**" + "; ".join(one.wrong) + "**"
        left = "nothing" if not one.left else f"**{len(one.left)}: {one.left[0]}**"
        cells = [one.name, one.did, one.state, str(one.tries), f"{one.seconds:.0f}", tables, left]
        head.append(f"| {' | '.join(cells)} |")
    return [*head, ""]


if __name__ == "__main__":
    sys.exit(main())
