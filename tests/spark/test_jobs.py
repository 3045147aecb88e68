"""The jobs as users start them: spark-submit in own processes, killed and put to sleep. I3, I19; complaint 8."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.pipelines import judge_all, make_pipeline, put, table_rows
from tidefold.compute.runners import in_process
from tidefold.domain.log_state import State
from tidefold.errors import SupersededError
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.snapshot.request import Fold
from tidefold.spark.request import Request
from tidefold.spark.steps import MaterializeStep
from tidefold.spark.submit import submit_command

_PATIENCE_SECONDS = 180


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    made = make_pipeline(tmp_path)
    put(made, [{"id": i, "text": f"a {i}"} for i in range(500)])
    return made


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    jobs: list[subprocess.Popen[str]] = []
    yield jobs
    for job in jobs:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()


def submit(pipeline: Pipeline, run: str, started: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    result = pipeline.config.path.parent / "var" / "result.json"
    request = Request(str(pipeline.config.path), ("accounts",), MaterializeStep(Fold(run)), str(result))
    command = submit_command(pipeline.config, request)
    job = subprocess.Popen(
        command.argv,
        env={**os.environ, **command.env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    started.append(job)
    return job


def wait_until_claimed(pipeline: Pipeline, job: subprocess.Popen[str]) -> None:
    """Returns in the middle of the job: it has claimed its snapshot and has not staged it."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while pipeline.ledger("accounts").read().open_attempt is None:
        assert job.poll() is None, job.communicate()[0]
        assert time.monotonic() < deadline, "the job never claimed a snapshot"


def test_a_job_leaves_its_outcomes_and_ends_with_zero(pipeline: Pipeline, started: list[subprocess.Popen[str]]) -> None:
    job = submit(pipeline, "run-1", started)
    output, _ = job.communicate(timeout=_PATIENCE_SECONDS)
    assert job.returncode == 0, output
    assert "accounts: staged: snapshot 1: 500 rows after 500 changes of 500 keys (0 deleted)" in output
    [stored] = json.loads((pipeline.config.path.parent / "var" / "result.json").read_text())["outcomes"]
    outcome = stored["outcome"]
    assert (outcome["status"], outcome["snapshot"], stored["details"]["rows"]) == ("staged", 1, 500)


def test_kill_9_in_the_middle_and_a_retry_make_one_snapshot_with_the_right_rows(
    pipeline: Pipeline, started: list[subprocess.Popen[str]]
) -> None:
    job = submit(pipeline, "run-1", started)
    wait_until_claimed(pipeline, job)
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    retry = submit(pipeline, "run-1", started)
    output, _ = retry.communicate(timeout=_PATIENCE_SECONDS)
    assert retry.returncode == 0, output
    judge_all(pipeline)
    confirm(pipeline, "accounts")
    states = [(s.id, s.state) for s in pipeline.ledger("accounts").read().snapshots]
    assert states == [(1, State.ABORTED), (2, State.COMPLETED)]
    assert table_rows(pipeline) == {i: f"a {i}" for i in range(500)}


def test_a_job_that_sleeps_through_its_retry_is_refused_when_it_wakes(
    pipeline: Pipeline, started: list[subprocess.Popen[str]]
) -> None:
    job = submit(pipeline, "run-1", started)
    wait_until_claimed(pipeline, job)
    os.killpg(job.pid, signal.SIGSTOP)
    materialize(pipeline, ["accounts"], Fold("run-1"), in_process)
    judge_all(pipeline)
    assert confirm(pipeline, "accounts").snapshot == 2
    before = [e.path for e in pipeline.store.list("tables")]
    os.killpg(job.pid, signal.SIGCONT)
    output, _ = job.communicate(timeout=_PATIENCE_SECONDS)
    assert job.returncode == SupersededError.exit_code, output
    assert "superseded by attempt 2" in output
    with pytest.raises(SupersededError):
        confirm(pipeline, "accounts", snapshot=1)
    assert [e.path for e in pipeline.store.list("tables")] == before
    assert pipeline.store.list("snapshots/accounts/0000000001") == []
    assert len(table_rows(pipeline)) == 500
