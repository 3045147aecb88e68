"""`make test-yarn`: runs pipelines on Hadoop's mini YARN, and writes docs/contributors/benchmarks/yarn.md."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from deltalake import DeltaTable

import wrap_text
from cluster.rig import LOGS
from local_airflow.settings import PROJECT
from local_cluster.versitygw import BUCKET, VERSION
from local_cluster.yarn import HADOOP
from support.airflow_shop import Ran
from support.airflow_stack import wait_until
from yarn.rig import YarnRig, interrupt, open_rig

PAGE = PROJECT / "docs" / "contributors" / "benchmarks" / "yarn.md"
RECORD = PROJECT / "lab" / "data" / "yarn.json"
_SECONDS = 1_500
_CHANGES = {"items": 2_000, "notes": 50}


@dataclass(frozen=True)
class Played:
    """What came of a story. `wrong`: what was not as it must be; `left`: what was left over in the store."""

    name: str
    did: str
    seconds: float
    wrong: list[str]
    left: list[str]


@dataclass(frozen=True)
class Story:
    """`play` lands nothing; it runs, and returns what it did and what was wrong."""

    name: str
    play: Callable[[YarnRig], tuple[str, list[str]]]


def run_on_s3(yarn: YarnRig) -> tuple[str, list[str]]:
    before, config = len(yarn.yarn.list_applications()), yarn.write_config()
    done = yarn.call(config, "run")
    checked = yarn.call(config, "check", "verify", "--spark")
    count = len(yarn.yarn.list_applications()) - before
    wrong = [*_require(done.returncode == 0, done.stderr), *_require(checked.returncode == 0, checked.stderr)]
    wrong += _require("Spark reads the" in checked.stdout, checked.stdout)
    return f"`run`, then `verify --spark`: {count} applications", wrong + yarn.rig.find_wrong()


def run_on_disk(yarn: YarnRig) -> tuple[str, list[str]]:
    """The landed files of S3, once more, on a disk."""
    folder = yarn.root / "disk"
    shutil.rmtree(folder, ignore_errors=True)
    client = yarn.rig.client
    for one in client.list_objects_v2(Bucket=BUCKET, Prefix="landing/")["Contents"]:
        path = folder / one["Key"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(client.get_object(Bucket=BUCKET, Key=one["Key"])["Body"].read())
    done = yarn.call(yarn.write_config(store=str(folder)), "run")
    wrong = _require(done.returncode == 0, done.stderr)
    for log in LOGS if not wrong else ():
        rows = DeltaTable(str(folder / "store" / "tables" / log)).to_pyarrow_table().to_pylist()
        wrong += _require({row["id"]: row["text"] for row in rows} == yarn.rig.held[log], f"{log}: {len(rows)} rows")
    return "`run` with store and landing folders on a disk, by absolute paths", wrong


def refuse_versions(yarn: YarnRig) -> tuple[str, list[str]]:
    done = yarn.call(yarn.write_config(yarn.other_python()), "step", "ingest")
    wrong = _require(done.returncode != 0, "exit code 0")
    wrong += _require(bool(re.search("VERSION_MISMATCH.*executor on .* pyarrow 1.2 ", done.stderr)), done.stderr)
    return "`ingest` where `spark.python` has another pyarrow: refused by the executor", wrong


def interrupt_starter(yarn: YarnRig) -> tuple[str, list[str]]:
    config = yarn.write_config()
    process = yarn.start(config, "run")
    wait_until(lambda: bool(yarn.running()), 600, 0.5)
    interrupt(process)
    _, printed = process.communicate()
    wrong = _require("INTERRUPTED" in printed, printed)
    begun = time.monotonic()
    yarn.wait_until_idle()
    seconds = time.monotonic() - begun
    done = yarn.call(config, "run")
    wrong += _require(done.returncode == 0, done.stderr)
    did = f"SIGTERM during `ingest`: the application ended {seconds:.0f} s after the command; then `run` again"
    return did, wrong + yarn.rig.find_wrong()


def run_airflow(yarn: YarnRig) -> tuple[str, list[str]]:
    airflow = yarn.start_airflow(_say)
    yarn.rig.airflow = airflow
    before = len(yarn.yarn.list_applications())
    run = yarn.rig.trigger()
    _wait_patiently(run)
    wrong = _require(run.state == "success", f"run {run.state}")
    count = len(yarn.yarn.list_applications()) - before
    return (
        f"one run of the DAG: {count} applications",
        wrong + yarn.rig.find_wrong(),
    )


def _wait_patiently(run: Ran) -> None:
    """Waits for the end of a run. On a busy machine Airflow's API may be slow to answer."""
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError, AssertionError):
            run.ended()
            return
    raise TimeoutError(f"the run did not end within {_SECONDS} s")


STORIES = (
    Story("client mode, S3", run_on_s3),
    Story("client mode, disk", run_on_disk),
    Story("client mode through Airflow", run_airflow),
    Story("other versions, client mode", refuse_versions),
    Story("the command is interrupted, client mode", interrupt_starter),
)


def _require(right: bool, said: str) -> list[str]:
    return [] if right else [said.strip()[-500:] or "nothing was printed"]


def _say(line: str) -> None:
    print(f"  {line}", flush=True)


def main() -> int:
    """0: every story ended well."""
    root = Path(os.environ.get("YARN_ROOT") or PROJECT / "var" / "test-yarn")
    wanted, played = os.environ.get("STORIES", ""), []
    with open_rig(root, _say) as yarn:
        chance = random.Random(29)
        for story in STORIES:
            if not re.search(wanted, story.name):
                continue
            for log in LOGS:
                yarn.rig.change(log, _CHANGES[log], chance)
            begun = time.monotonic()
            did, wrong = story.play(yarn)
            found = Played(story.name, did, time.monotonic() - begun, wrong, yarn.find_left())
            played.append(found)
            _say(f"{found}")
            record(found)
    return 0 if played and not any(one.wrong or one.left for one in played) else 1


def record(played: Played) -> None:
    """Records a story, and writes the page again with all that were recorded."""
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    known[played.name] = asdict(played)
    RECORD.write_text(json.dumps(known, indent=1) + "\n")
    found = [Played(**known[story.name]) for story in STORIES if story.name in known]
    PAGE.write_text(wrap_text.wrap("\n".join(describe(found))))


def describe(played: list[Played]) -> list[str]:
    head = [
        "# YARN",
        "",
        f"`make test-yarn` writes this page. It starts Hadoop's mini YARN {HADOOP} (a resource manager and two node "
        f"managers, with jars of Maven Central), versitygw {VERSION}, and for one story Airflow. Containers have the "
        "address and keys of S3 as variables of their machine, and no path to the clone: the package travels with each "
        "job. Each story lands 2,050 changes of two tables, of which a tenth are deletes. Afterwards both tables are "
        "compared with plain dicts to which the same changes were applied. All processes share one machine with 2 "
        "cores and with other work, so the seconds say little.",
        "",
        "*Left over* counts claims, open uploads, and files in the store that nothing names.",
        "",
        "| story | what was done | seconds | as it must be | left over |",
        "|---|---|---|---|---|",
    ]
    for one in played:
        good = "yes" if not one.wrong else "**no: " + " ".join("; ".join(one.wrong).split()).replace("|", "/") + "**"
        left = "nothing" if not one.left else f"**{len(one.left)}: {one.left[0]}**"
        head.append(f"| {one.name} | {one.did} | {one.seconds:.0f} | {good} | {left} |")
    return [*head, ""]


if __name__ == "__main__":
    sys.exit(main())
