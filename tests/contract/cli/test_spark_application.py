"""All steps of a command that need Spark share one process of spark-submit."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.pipelines import CONFIG, make_pipeline, put
from tidefold.cli import spark_submit
from tidefold.cli.spark_submit import SparkApplication
from tidefold.cli.terminal import Format, Terminal
from tidefold.config import Config
from tidefold.domain.snapshot.claim import WatchedAttempt
from tidefold.errors import InvalidInputError
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold
from tidefold.spark import jars, job_main
from tidefold.spark.job_main import run_job
from tidefold.spark.request import LONGEST_ARGUMENT, Request, make_argument, parse_argument
from tidefold.spark.steps import IngestStep, MaterializeStep
from tidefold.spark.submit import Command, job_env

# The job's real program. Its tasks run in its own process instead of Spark's, and one log ends it.
JOB = """
import os, sys
from tidefold.compute import runners
from tidefold.spark import job_main, steps
print("process", os.getpid(), flush=True)
runners.on_spark = lambda session: runners.in_process
job_main.spark_session = lambda name: None
job_main.name_jobs = lambda session, step, logs: None
whole = steps.load_job("materialize")
def die_or_run(spark, pipeline, step, logs):
    return os._exit(9) if DIES in logs else whole(spark, pipeline, step, logs)
job_main.load_job = lambda name: die_or_run
sys.exit(job_main.run_job(sys.argv, die_or_run))
"""


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Two logs with changes that nobody folded. Work of any size needs Spark."""
    made = make_pipeline(tmp_path, CONFIG + "spark: {above: 0B}\n")
    for log in ("accounts", "tellers"):
        put(made, [{"id": 1, "text": "a"}], log)
    monkeypatch.setattr(spark_submit, "require_java", lambda: None)
    with_job(monkeypatch, dies="")
    return made


def with_job(monkeypatch: pytest.MonkeyPatch, dies: str) -> None:
    def submit(config: Config, request: Request) -> Command:
        program = JOB.replace("DIES", repr(dies))
        return Command((sys.executable, "-c", program, make_argument(request)), dict(job_env(config)))

    monkeypatch.setattr(spark_submit, "submit_command", submit)


def run(application: SparkApplication, *logs: str) -> list[Status]:
    return [outcome.status for outcome in application.run_step(MaterializeStep(Fold("run-1")), logs)]


def processes(pipeline: Pipeline) -> list[int]:
    """The processes of spark-submit that were started, by what they printed."""
    outputs = (pipeline.config.path.parent / "var" / "log").glob("*.log")
    return [int(line.split()[1]) for path in outputs for line in path.read_text().splitlines() if "process " in line]


def are_gone(found: Sequence[int]) -> bool:
    return not any(Path(f"/proc/{process}").exists() for process in found)


def test_steps_share_one_application_that_ends_with_the_block(pipeline: Pipeline) -> None:
    with SparkApplication(Terminal(pipeline.config.path, Format.TEXT, False), pipeline) as application:
        assert run(application, "accounts") == [Status.STAGED]
        assert run(application, "tellers") == [Status.STAGED]
        assert run(application, "accounts", "tellers") == [Status.ALREADY, Status.ALREADY]
        [process] = processes(pipeline)
        assert not are_gone([process])
    assert are_gone([process])
    assert not list(pipeline.config.path.parent.glob("var/**/*.requests"))


def test_no_application_starts_without_work(pipeline: Pipeline) -> None:
    with SparkApplication(Terminal(pipeline.config.path, Format.TEXT, False), pipeline):
        pass
    assert processes(pipeline) == []


def test_after_an_application_that_died_the_next_step_starts_another(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_job(monkeypatch, dies="tellers")
    with SparkApplication(Terminal(pipeline.config.path, Format.TEXT, False), pipeline) as application:
        assert run(application, "accounts") == [Status.STAGED]
        [died] = application.run_step(MaterializeStep(Fold("run-1")), ["tellers"])
        assert died.error is not None
        assert (died.error.code, "ended with code 9" in died.message) == ("JOB_DIED", True)
        with_job(monkeypatch, dies="")
        assert run(application, "tellers") == [Status.STAGED]
    assert are_gone(processes(pipeline))


def test_an_error_ends_the_application(pipeline: Pipeline) -> None:
    def interrupted() -> None:
        with SparkApplication(Terminal(pipeline.config.path, Format.TEXT, False), pipeline) as application:
            run(application, "accounts")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert are_gone(processes(pipeline))


def run_nothing(*given: object) -> list[Outcome]:
    return []


@pytest.mark.rotates(3)
def test_a_job_whose_starter_is_gone_ends_after_its_first_request(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_main, "spark_session", lambda name: None)
    monkeypatch.setattr(job_main, "name_jobs", lambda session, step, logs: None)
    os.mkfifo(tmp_path / "requests")
    step = MaterializeStep(Fold("run-1"))
    request = Request(str(pipeline.config.path), (), step, more=str(tmp_path / "requests"))
    assert run_job(["job", make_argument(request)], run_nothing) == 0


def test_requests_that_are_too_long_for_an_argument_or_a_pipe_go_through_a_file(pipeline: Pipeline) -> None:
    terminal = Terminal(pipeline.config.path, Format.TEXT, False)
    with SparkApplication(terminal, pipeline) as application:
        assert run(application, "accounts") == [Status.STAGED]
    attempt = pipeline.ledger("accounts").read().open_attempt
    assert attempt
    watched = WatchedAttempt(attempt, 0)
    step = MaterializeStep(Fold("run-1", stalled={f"log-{number}": watched for number in range(1_000)}))
    with SparkApplication(terminal, pipeline) as application:
        done = [application.run_step(step, [log])[0].status for log in ("tellers", "accounts")]
        assert done == [Status.STAGED, Status.ALREADY]
    assert len(processes(pipeline)) == 2
    assert not list(pipeline.config.path.parent.glob("var/**/*.request"))


def test_the_file_of_a_long_request_is_private(tmp_path: Path) -> None:
    request = Request("c", tuple(f"log-{number}" for number in range(5_000)), IngestStep(), str(tmp_path / "result"))
    argument = make_argument(request)
    assert len(argument) < LONGEST_ARGUMENT
    assert Path(argument[1:]).stat().st_mode & 0o777 == 0o600
    assert parse_argument(argument) == request
    with pytest.raises(InvalidInputError, match="REQUEST_INVALID"):
        parse_argument(argument)


def test_a_step_for_which_spark_cannot_start_fails_for_each_log(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fault: the error left the run, which was then not counted as failed, and status did not know it.

    With fetched jars, and without pyspark, it was an UNEXPECTED FileNotFoundError.
    """
    monkeypatch.setattr(jars, "SPARK_SUBMIT", str(pipeline.config.path / "spark-submit"))
    with SparkApplication(Terminal(pipeline.config.path, Format.TEXT, debug=False), pipeline) as application:
        outcomes = application.run_step(MaterializeStep(Fold("run-1")), ["accounts", "tellers"])
    assert [(one.log, one.error_code) for one in outcomes] == [
        ("accounts", "SPARK_MISSING"),
        ("tellers", "SPARK_MISSING"),
    ]
    assert "starting Spark" not in capsys.readouterr().err
