"""`make test-compose`: docker-compose.yaml in real containers by podman, over the three phases of the sample.

Needs root, podman and podman-compose. Base images are pulled; where no registry can be reached, DEBIAN_MIRROR makes
stand-ins (lab/compose/standins). CERTIFICATES: a folder with your company's `.crt` files. It writes
docs/contributors/benchmarks/compose.md.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import yaml

from demo.truth import check
from demo.watch import DAG
from local_airflow.api import AirflowApi
from local_airflow.settings import PROJECT
from support.spark_events import SparkJob, read_jobs
from tidefold.cli.sample import LOGS
from tidefold.config.load import load_config

FOLDER = PROJECT / "var" / "compose"
PAGE = PROJECT / "docs" / "contributors" / "benchmarks" / "compose.md"
PHASES = ("phase1", "phase2", "phase3")
STEPS = ("ingest", "materialize", "quality", "verify")
_MINUTES = 15


@dataclass(frozen=True)
class Stack:
    """The containers of one folder, started in the order of the file.

    Podman without systemd runs no health checks by itself, and its compose program waits for none: both happen here.
    """

    folder: Path

    @property
    def project(self) -> str:
        return self.folder.name

    def call(self, *words: str) -> str:
        return subprocess.run(words, cwd=self.folder, capture_output=True, text=True, check=True).stdout

    def start(self) -> None:
        services: dict[str, Any] = yaml.safe_load((self.folder / "docker-compose.yaml").read_text())["services"]
        needs = {name: service.get("depends_on", {}) for name, service in services.items()}
        for name in TopologicalSorter(needs).static_order():
            for other, how in needs[name].items():
                wait_until(f"{other}: {how['condition']}", lambda o=other, c=how["condition"]: self.is_in(o, c))  # type: ignore[misc]
            self.call("podman-compose", "up", "-d", "--no-deps", name)

    def is_in(self, service: str, condition: str) -> bool:
        """Whether a service has reached a condition of `depends_on`."""
        if condition == "service_healthy":
            check = ["podman", "healthcheck", "run", f"{self.project}_{service}_1"]
            return subprocess.run(check, capture_output=True, check=False).returncode == 0
        status = self.inspect(service, "{{.State.Status}} {{.State.ExitCode}}")
        return status == "exited 0" if condition == "service_completed_successfully" else status.startswith("running")

    def stop(self) -> None:
        self.call("podman-compose", "down", "--volumes")

    def inspect(self, service: str, what: str) -> str:
        return self.call("podman", "inspect", "--format", what, f"{self.project}_{service}_1").strip()

    def log_in(self) -> AirflowApi:
        """By the password that Airflow prints once."""
        path = "/opt/tidefold/var/airflow/simple_auth_manager_passwords.json.generated"
        words = self.call("podman", "exec", f"{self.project}_airflow-apiserver_1", "cat", path)
        return AirflowApi("http://localhost:8080", "admin", json.loads(words)["admin"])

    def table(self, log: str) -> str:
        """The published table's folder on the host: the object store keeps objects as files of its volume."""
        volume = self.call("podman", "volume", "inspect", "--format", "{{.Mountpoint}}", f"{self.project}_objects")
        return f"{volume.strip()}/tidefold/store/tables/{log}"

    def jobs(self) -> list[SparkJob]:
        """What the Spark Connect server ran, by its event log."""
        volume = self.call("podman", "volume", "inspect", "--format", "{{.Mountpoint}}", f"{self.project}_results")
        return read_jobs(Path(volume.strip()) / "server")


def prepare() -> Stack:
    """A fresh copy of what is committed, and what `docker/up` makes."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    folder = FOLDER / "tidefold"
    subprocess.run(["git", "clone", "--quiet", str(PROJECT), str(folder)], check=True)
    for certificate in Path(os.environ.get("CERTIFICATES", "/nowhere")).glob("*.crt"):
        shutil.copy(certificate, folder / "docker" / "certificates")
    subprocess.run([folder / "docker" / "up", "--prepare"], check=True)
    with (folder / ".env").open("a") as stream:
        stream.write("TIDEFOLD_SCHEDULE=\nTIDEFOLD_SCRUB_SCHEDULE=\n")
    if mirror := os.environ.get("DEBIAN_MIRROR"):
        subprocess.run([PROJECT / "lab/compose/standins/build", str(FOLDER), mirror], check=True)
    return Stack(folder)


def wait_until(what: str, happened: Callable[[], bool]) -> None:
    """Polls: a container's state can only be asked for."""
    deadline = time.monotonic() + _MINUTES * 60
    while not happened():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not within {_MINUTES} minutes. `podman logs` of the services says more.")
        time.sleep(3)
    print(f"{datetime.now(UTC):%X} {what}", flush=True)


def play_phase(stack: Stack, api: AirflowApi, phase: str) -> str:
    """Lands a phase, runs the DAG, and compares every table. Returns the row of the page."""
    landing = stack.folder / "data" / "landing"
    if phase != PHASES[0]:
        shutil.copytree(PROJECT / "tests/data/bank/landing" / phase, landing, dirs_exist_ok=True)
    begun, run = time.monotonic(), api.trigger(DAG)
    states: dict[str, str] = {}

    def ended() -> bool:
        states.update({one["dag_run_id"]: one["state"] for one in api.runs(DAG)})
        return states.get(run) in ("success", "failed")

    wait_until(f"{phase}: the run ended", ended)
    if states[run] != "success":
        raise SystemExit(f"{phase}: {json.dumps([(t['task_id'], t['state']) for t in api.tasks(DAG, run)])}")
    shape = {log: load_config(stack.folder / "data" / "tidefold.yaml").logs[log].shape for log in LOGS}
    rows = [check(stack.table(log), log, phase, {c.name: c.type for c in shape[log].columns}) for log in LOGS]
    equal = ", ".join(f"{log} {count:,}" for log, count in zip(LOGS, rows, strict=True))
    return f"| {phase} | {time.monotonic() - begun:.0f} s | {equal}: equal to the database |"


def count_jobs(jobs: list[SparkJob]) -> list[str]:
    """The rows of the page: the jobs of each step and log. Ends the program if one of them had none."""
    rows = []
    for step in STEPS:
        counts = [sum(job.has(step, log) for job in jobs) for log in LOGS]
        if not all(counts):
            raise SystemExit(f"{step}: not every log has jobs on the Spark Connect server: {counts}")
        rows.append(f"| {step} | {' | '.join(map(str, counts))} |")
    return rows


def describe(stack: Stack) -> list[str]:
    """The rows of the page: each service with its image and user."""
    names = stack.call("podman", "ps", "--all", "--format", "{{.Names}}").split()
    rows = []
    for name in sorted(name for name in names if name.startswith(f"{stack.project}_")):
        service = name.removeprefix(f"{stack.project}_").removesuffix("_1")
        facts = [stack.inspect(service, what) for what in ("{{.ImageName}}", "{{.Image}}", "{{.State.Status}}")]
        user = stack.inspect(service, "{{.Config.User}}") or "root"
        rows.append(f"| {service} | {facts[0]} | {facts[1].removeprefix('sha256:')[:12]} | {user} | {facts[2]} |")
    return rows


def write_page(stack: Stack, phases: list[str], jobs: list[str]) -> None:
    stands_in = bool(os.environ.get("DEBIAN_MIRROR"))
    commit = stack.call("git", "rev-parse", "--short=8", "HEAD").strip()
    lines = [
        "# docker-compose.yaml in containers",
        "",
        f"`make test-compose` wrote this page on {datetime.now(UTC):%Y-%m-%d}, at commit {commit}, with",
        f"{stack.call('podman', '--version').strip()} in place of Docker.",
        "Nobody has tried it with Docker itself.",
    ]
    if stands_in:
        lines += [
            "The base images are stand-ins of Debian's packages: python:3.11-slim-bookworm by",
            "debootstrap, postgres:17 with PostgreSQL 15, versitygw built by Go.",
        ]
    lines += ["", "Jobs of the Spark Connect server, by its event log (`verify` is the task `read_back`):", ""]
    lines += [f"| step | {' | '.join(LOGS)} |", "|---|" + "---|" * len(LOGS), *jobs, ""]
    lines += ["| phase | until its run ended | tables |", "|---|---|---|", *phases, ""]
    lines += ["| service | image | id | user | state at the end |", "|---|---|---|---|---|", *describe(stack)]
    PAGE.write_text("\n".join(lines) + "\n")


def main() -> int:
    stack = prepare()
    build = ["podman", "build", "--network", "host", "-t", "tidefold:0.1.0", "-f", "docker/Dockerfile", "."]
    subprocess.run(build, cwd=stack.folder, check=True)
    try:
        stack.start()
        for service in ("airflow-scheduler", "airflow-dag-processor", "airflow-triggerer"):
            wait_until(f"{service} is healthy", lambda s=service: stack.is_in(s, "service_healthy"))  # type: ignore[misc]
        api = stack.log_in()
        wait_until("the DAGs were read", lambda: DAG in {dag["dag_id"] for dag in api.dags()})
        phases = [play_phase(stack, api, phase) for phase in PHASES]
        write_page(stack, phases, count_jobs(stack.jobs()))
        print("\n".join(phases))
    finally:
        stack.stop()
    print("3 passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
