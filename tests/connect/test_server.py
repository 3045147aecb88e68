"""The server of `tidefold spark start`: who may use it, and what its death in the middle of a step leaves (I35)."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from typer.testing import CliRunner

from spark.test_retried_tasks import (  # noqa: F401
    test_every_task_is_lost_once_and_everything_is_taken_and_folded_once,
)
from support.airflow_stack import words_of
from support.landing_pair import PAIR, land, make
from support.pipelines import table_rows
from support.spark_events import read_jobs
from support.spark_work import KillsOnce, work_hard
from tidefold.cli.app import app
from tidefold.compute import runners
from tidefold.compute.connect_session import close_connected
from tidefold.compute.runners import Runner, TaskAnswer, TaskWork
from tidefold.compute.spark_session import name_jobs
from tidefold.config import Config
from tidefold.domain.alarms import AlarmKind, AlarmThresholds
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.ledger import read_manifest
from tidefold.operations.ground.outcome import Status
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.inspect.alarms import find_alarms
from tidefold.operations.inspect.status import status
from tidefold.operations.requests import Fold
from tidefold.operations.restore.restore import Restore
from tidefold.operations.retention.clean import clean
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.spark import local_server
from tidefold.spark.connect import run_patiently
from tidefold.spark.dispatch import run_without_spark
from tidefold.spark.local_server import LocalServer
from tidefold.spark.steps import AnyStep, IngestStep, MaterializeStep, QualityStep, VerifyStep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = {Status.TAKEN: IngestStep(), Status.STAGED: MaterializeStep(Fold("run")), Status.PASSED: QualityStep("run")}


@pytest.fixture
def patient(spark: SparkSession) -> SparkSession:
    """The session for the test of tests/spark that kills the Python worker of each task once."""
    return spark


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    made = make(tmp_path)
    for log in PAIR:
        land(tmp_path, log, 0, 50)
    return made


@pytest.fixture
def run(server: LocalServer, pipeline: Pipeline) -> Iterator[Callable[[AnyStep], list[str]]]:
    def run_step(step: AnyStep) -> list[str]:
        ends = time.monotonic() + 300
        outcomes = run_patiently(pipeline, step, PAIR, server.connection, lambda: ends, print)
        worked = [one for one in outcomes if not one.error and one.status is not Status.NOTHING]
        assert {one.details.engine for one in worked} == {"spark"}, outcomes
        return [one.status for one in outcomes]

    yield run_step
    close_connected()


def list_processes(server: LocalServer) -> list[psutil.Process]:
    """The supervisor, the server, and the Python processes of tasks."""
    family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
    return [process for process in family if words_of(process)]


def test_only_its_owner_reads_the_token_and_only_this_machine_reaches_it(
    server: LocalServer, server_config: Config
) -> None:
    assert [stat.S_IMODE((server.folder / name).stat().st_mode) for name in (".", "token", "plan.json")] == [
        0o700, 0o600, 0o600,
    ]  # fmt: skip
    processes = list_processes(server)
    assert server.token not in " ".join(word for process in processes for word in words_of(process))
    listening = [c.laddr for p in processes for c in p.net_connections("inet") if c.status == "LISTEN"]
    assert {address.ip for address in listening} <= {"127.0.0.1", "::ffff:127.0.0.1"}
    assert server.port in {address.port for address in listening}
    shown = CliRunner().invoke(app, ["spark", "status", "-c", str(server_config.path), "--format", "json"])
    found = json.loads(shown.stdout)
    assert (found["address"], found["answers"]) == (server.address, True)
    assert server.token not in shown.stdout


@pytest.mark.parametrize("victim", ["server", "worker"])
def test_a_death_in_the_middle_of_each_step_changes_no_row(
    run: Callable[[AnyStep], list[str]],
    server: LocalServer,
    pipeline: Pipeline,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    victim: str,
) -> None:
    """By kill -9 after the first task of an ingest, a fold and a gate.

    A server is started again, and the step runs once more. The task of a Python worker is run again by Spark.
    """
    whole, marks = runners.on_connect, [tmp_path / step.name for step in STEPS.values()]
    for mark, (wanted, step) in zip(marks, STEPS.items(), strict=True):
        monkeypatch.setattr(runners, "on_connect", partial(deadly, whole, mark, victim))
        assert run(step) == [wanted, wanted]
        assert mark.exists()
    for log in PAIR:
        assert confirm(pipeline, log, Confirmation(run="run")).status == Status.PUBLISHED
        assert len(table_rows(pipeline, log)) == 50
    # What a killed worker had written, and another one wrote again.
    removed = [path for outcome in clean(pipeline, PAIR) for path in outcome.facts.get("paths", ())]
    assert len(removed) <= len(STEPS) * (victim == "worker"), removed
    assert {outcome.status for outcome in clean(pipeline, PAIR)} == {Status.NOTHING}
    # One of the server that runs: those that were killed left none.
    assert len([path for path in (server.folder / "scratch").iterdir() if path.name.startswith("blockmgr")]) == 1


def test_pages_and_event_log_have_each_step_with_the_name_of_each_log(
    run: Callable[[AnyStep], list[str]], server: LocalServer
) -> None:
    """A tag for each log, also of a gate that judges its logs side by side, and a description for people."""
    before = len(read_jobs(server.folder))
    for step in STEPS.values():
        run(step)
    jobs = read_jobs(server.folder)[before:]
    for step in STEPS.values():
        assert [log for log in PAIR if not any(job.has(step.name, log) for job in jobs)] == [], jobs
    assert {job.pool.partition(" ")[2] for job in jobs} == {f"{step.name} {PAIR[0]}" for step in STEPS.values()}


def test_a_large_step_does_not_hold_up_a_small_one_of_the_same_pipeline(spark: SparkSession, tmp_path: Path) -> None:
    """The small step begins when any task of the large one ends, not when all of them have begun."""
    order = tmp_path / "order"

    def run_tasks(name: str, count: int) -> None:
        name_jobs(spark, "materialize", [name])
        tasks = [json.dumps({"name": name, "place": str(order)}) for _ in range(count)]
        assert runners.on_connect(spark)(work_hard, tasks) == [name] * count

    cores = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(1) as pool:
        large = pool.submit(run_tasks, "large", 4 * runners.PARTITIONS_PER_CORE * cores)
        while not order.exists():
            assert not wait([large], 0.1).done
        run_tasks("small", 1)
        large.result()
    lines = order.read_text().split()
    assert lines.index("small") < 0.7 * len(lines), lines


def test_delta_s_reader_reads_back_what_was_published_and_a_damaged_file_is_an_alarm(
    run: Callable[[AnyStep], list[str]], server: LocalServer, pipeline: Pipeline, tmp_path: Path
) -> None:
    """Each snapshot once. The restore of the snapshot before ends the alarm."""
    back = VerifyStep(sample=True)
    publish(run, pipeline, "run-1")
    before = len(read_jobs(server.folder))
    assert run(back) == [Status.WHOLE] * 2
    assert all(any(job.has("verify", log) for job in read_jobs(server.folder)[before:]) for log in PAIR)
    assert {one.status for one in run_without_spark(pipeline, back, PAIR, above=0).done} == {Status.NOTHING}
    for log in PAIR:
        land(tmp_path, log, 50)
    publish(run, pipeline, "run-2")
    state = pipeline.ledger(PAIR[0]).read()
    written = next(f for f in read_manifest(pipeline.store, PAIR[0], state.snapshots[-1]).shown if not f.carried)
    path = Path(pipeline.store.uri(f"{LogPaths(PAIR[0]).table}/_data/{written.name}"))
    whole = path.read_bytes()
    path.unlink()
    path.write_bytes(whole[:-200])
    assert run(back) == [Status.ERROR, Status.WHOLE]
    [found] = status(pipeline, PAIR[:1], proofs=True)
    [alarm] = [one for one in find_alarms(found, AlarmThresholds(), now()) if one.kind is AlarmKind.DAMAGE]
    assert "Spark cannot read" in alarm.message
    assert f"tidefold restore {PAIR[0]} 1 --log-position replay" in alarm.hint
    request = Restore("back", RestorePoint(1, RestoreMode.REPLAY), by="me")
    for step in (MaterializeStep(request), QualityStep("back")):
        assert run_patiently(pipeline, step, PAIR[:1], server.connection, lambda: 0, print)[0].error is None
    assert confirm(pipeline, PAIR[0], Confirmation(run="back")).status == Status.PUBLISHED
    assert run(back)[0] == Status.WHOLE
    assert not status(pipeline, PAIR[:1], proofs=True)[0].proof.readers.error  # type: ignore[union-attr]


def publish(run: Callable[[AnyStep], list[str]], pipeline: Pipeline, name: str) -> None:
    for step in (IngestStep(), MaterializeStep(Fold(name)), QualityStep(name)):
        run(step)
    for log in PAIR:
        assert confirm(pipeline, log, Confirmation(run=name)).status == Status.PUBLISHED


def deadly(whole: Callable[[Any], Runner], mark: Path, victim: str, spark: SparkSession) -> Runner:
    def run_tasks(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        return whole(spark)(KillsOnce(work, str(mark), victim), tasks)

    return run_tasks


def test_two_pipelines_run_at_once_on_one_server(server: LocalServer, tmp_path: Path) -> None:
    """Two processes of `tidefold run`, whose logs have the same names and other rows."""
    pipelines = []
    for number, name in enumerate(("one", "two")):
        (tmp_path / name).mkdir()
        pipelines.append(make(tmp_path / name))
        for log in PAIR:
            land(tmp_path / name, log, 0, 40 + number)
        config = pipelines[-1].config.path
        config.write_text(f"{config.read_text()}spark: {{master: '{server.address}', above: 0B}}\n")
    commands = [[sys.executable, "-m", "tidefold.cli", "run", "-c", str(one.config.path)] for one in pipelines]
    processes = [Popen(command, stdout=PIPE, stderr=STDOUT, text=True) for command in commands]
    for process in processes:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
        assert output.count("engine: spark") == 3 * len(PAIR), output
    for number, pipeline in enumerate(pipelines):
        for log in PAIR:
            assert set(table_rows(pipeline, log)) == set(range(40 + number))
        assert {outcome.status for outcome in clean(pipeline, PAIR)} == {Status.NOTHING}


def test_a_server_ends_with_its_supervisor_and_leaves_no_process(tmp_path: Path, pipeline: Pipeline) -> None:
    made = local_server.start(pipeline.config, quick=True)
    processes = list_processes(made)
    assert len(processes) >= 2
    assert local_server.start(pipeline.config) == made
    os.kill(made.pid, 9)
    left = psutil.wait_procs(processes, 30)[1]
    # Whoever adopts the children of a killed process may not have asked for their exit codes yet.
    assert [one for one in left if one.status() != psutil.STATUS_ZOMBIE] == []
    assert local_server.find_running(pipeline.config) is None
    assert not local_server.stop(pipeline.config)
