"""The jobs as users start them: spark-submit in a process of its own, killed and put to sleep. I3, I19."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from support.pipelines import judge_all, make_pipeline, put, table_rows
from tidefold.compute.runners import in_process, on_spark
from tidefold.domain.log_state import State
from tidefold.errors import SupersededError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.spark.request import Request, make_argument
from tidefold.spark.result_file import read_outcomes
from tidefold.spark.steps import MaterializeStep
from tidefold.spark.submit import submit_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE_SECONDS = 180
ROWS = {i: f"a {i}" for i in range(500)}


class Application:
    """A spark-submit that takes one request after the other through a pipe, as the command line starts it.

    pipeline: of the first request, which is done.
    result: its file of outcomes.
    told: what was printed of its outcome.
    """

    def __init__(self, folder: Path) -> None:
        self.pipeline = make_changed(folder)
        os.mkfifo(pipe := folder / "requests")
        # For reading and writing: opening does not wait, and the pipe has no end before it is closed.
        self._requests = os.open(pipe, os.O_RDWR)
        self.result = folder / "var" / "result.json"
        request = replace(make_request(self.pipeline), result=str(self.result), more=str(pipe))
        command = submit_command(self.pipeline.config, request)
        self._process = subprocess.Popen(
            command.argv,
            env={**os.environ, **command.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.told = self.read_until("accounts: ")
        # Spark's Python workers are in process groups of their own.
        children = psutil.Process(self._process.pid).children(recursive=True)
        self._workers = [child for child in children if is_worker(child)]
        assert self._workers

    def send(self, pipeline: Pipeline) -> None:
        os.write(self._requests, make_argument(make_request(pipeline)).encode() + b"\n")

    def begin(self, pipeline: Pipeline) -> None:
        """Sends a request and returns in the middle of it: its snapshot is claimed, and none of its tasks can end."""
        for worker in self._workers:
            worker.suspend()
        self.send(pipeline)
        self.read_until("folding 4 buckets")
        assert pipeline.ledger("accounts").read().open_attempt

    def read_until(self, text: str) -> str:
        """Returns the next line of the output that contains a text."""
        output: list[str] = []
        patience = threading.Timer(_PATIENCE_SECONDS, self.kill)
        patience.start()
        assert self._process.stdout
        while (line := self._process.stdout.readline()) and text not in line:
            output.append(line)
        patience.cancel()
        assert line, f"the job ended without `{text}`: {''.join(output)}"
        return line

    def sleep(self) -> None:
        os.killpg(self._process.pid, signal.SIGSTOP)

    def wake(self) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)
        for worker in self._workers:
            worker.resume()

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for worker in self._workers:
            with suppress(psutil.NoSuchProcess):
                worker.kill()

    def end(self) -> None:
        self.kill()
        os.close(self._requests)


def is_worker(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return "pyspark.daemon" in process.cmdline()
    return False


def make_changed(folder: Path) -> Pipeline:
    made = make_pipeline(folder)
    put(made, [{"id": i, "text": text} for i, text in ROWS.items()])
    return made


def make_request(pipeline: Pipeline) -> Request:
    return Request(str(pipeline.config.path), ("accounts",), MaterializeStep(Fold("run-1")))


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return make_changed(tmp_path)


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """One for all tests, of which the last one kills it."""
    made = Application(tmp_path_factory.mktemp("job"))
    yield made
    made.end()


def test_a_job_leaves_its_outcomes_and_takes_the_next_request(application: Application) -> None:
    assert "accounts: staged: snapshot 1: 500 rows after 500 changes of 500 keys (0 deleted)" in application.told
    application.send(application.pipeline)
    assert "accounts: already: " in application.read_until("accounts: ")
    [outcome] = read_outcomes(application.result)
    assert (outcome.status, outcome.snapshot, outcome.facts["rows"]) == ("staged", 1, 500)


def test_a_job_that_sleeps_through_its_retry_is_refused_when_it_wakes(
    application: Application, pipeline: Pipeline
) -> None:
    application.begin(pipeline)
    application.sleep()
    materialize(pipeline, ["accounts"], Fold("run-1"), in_process)
    judge_all(pipeline)
    assert confirm(pipeline, "accounts").snapshot == 2
    before = [e.path for e in pipeline.store.list("tables")]
    application.wake()
    assert "superseded by attempt 2" in application.read_until("accounts: ")
    with pytest.raises(SupersededError):
        confirm(pipeline, "accounts", Confirmation(snapshot=1))
    assert [e.path for e in pipeline.store.list("tables")] == before
    assert pipeline.store.list("snapshots/accounts/0000000001") == []
    assert table_rows(pipeline) == ROWS


def test_kill_9_in_the_middle_and_a_retry_make_one_snapshot_with_the_right_rows(
    application: Application, pipeline: Pipeline, spark: SparkSession
) -> None:
    application.begin(pipeline)
    application.kill()
    [retry] = materialize(pipeline, ["accounts"], Fold("run-1"), on_spark(spark))
    assert retry.status == "staged", retry
    judge_all(pipeline)
    confirm(pipeline, "accounts")
    states = [(s.id, s.state) for s in pipeline.ledger("accounts").read().snapshots]
    assert states == [(1, State.ABORTED), (2, State.COMPLETED)]
    assert table_rows(pipeline) == ROWS
