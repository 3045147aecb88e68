"""A driver on the cluster has nothing of the starter's machine: what it needs travels through the store."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from support.pipelines import CONFIG, make_pipeline, put
from tidefold.cli import spark_submit
from tidefold.cli.spark_submit import SparkApplication
from tidefold.cli.terminal import Format, Terminal
from tidefold.config import Config
from tidefold.domain.paths import JobPaths
from tidefold.errors import InvalidInputError, RefusedError
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.retention.clean import clean
from tidefold.operations.snapshot.materialize import Fold
from tidefold.quality.suite.suite import load_suite
from tidefold.spark import stored_job
from tidefold.spark.steps import IngestStep, MaterializeStep
from tidefold.spark.stored_job import (
    StoredJob,
    delete_job,
    end_without_starter,
    read_request,
    receive_outcomes,
    send_job,
    send_outcomes,
)
from tidefold.spark.submit import Command, job_env, spark_conf, submit_stored_job

_SPARK = """\
spark:
  master: {master}
  above: 0B
  ship_code: true
  conf: {{spark.submit.deployMode: cluster, spark.x: s3cret}}
"""
_SUITE = "checks:\n  - not_null: text\n"
# The driver's real program. Its tasks run in its own process instead of Spark's.
_JOB = """
import os, sys
from tidefold.compute import runners
from tidefold.spark import job_main, steps
runners.on_spark = lambda session: runners.in_process
job_main.spark_session = lambda name: None
job_main.name_jobs = lambda session, step, logs: None
print("application_17_0001", flush=True)
if DIES: os._exit(9)
sys.exit(job_main.run_job(sys.argv, steps.load_job("materialize")))
"""
_LOOK = """
import tidefold
from tidefold.quality.report.verdict_store import _load_template
print(_load_template().name, tidefold.__file__)
"""


def on_cluster(folder: Path, master: str = "yarn") -> Pipeline:
    """A pipeline whose driver runs elsewhere: its folders are absolute, and `accounts` has a suite."""
    text = CONFIG.replace("store: store", f"store: {folder}/store").replace("path: landing", f"path: {folder}/landing")
    text = text.replace("    key_groups: 16", "    quality: {suite: accounts.yaml}\n    key_groups: 16", 1)
    folder.mkdir(exist_ok=True)
    (folder / "accounts.yaml").write_text(_SUITE)
    return make_pipeline(folder, text + _SPARK.format(master=master))


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    made = on_cluster(tmp_path / "here")
    for log in ("accounts", "tellers"):
        put(made, [{"id": 1, "text": "a"}], log)
    return made


def jobs_of(pipeline: Pipeline) -> list[str]:
    return [entry.path for entry in pipeline.store.list("jobs")]


def test_the_driver_reads_the_configuration_and_its_suites_from_the_store(pipeline: Pipeline, tmp_path: Path) -> None:
    job = send_job(pipeline, IngestStep(), ["accounts"])
    (pipeline.config.path.parent / "accounts.yaml").unlink()
    pipeline.config.path.unlink()
    request = read_request(pipeline.store, job.paths)
    found = request.read_config(tmp_path)
    suite = found.logs["accounts"].suite
    assert suite
    assert suite.parent == tmp_path
    assert suite.read_text() == _SUITE
    shape = found.logs["accounts"].shape
    assert [check.name for check in load_suite(suite, shape, 0.5).own] == ["text not null"]
    assert (request.logs, request.read_step()) == (("accounts",), IngestStep())
    # Everything else is as it was.
    before = pipeline.config
    same = before.logs["accounts"].quality
    logs = {**found.logs, "accounts": found.logs["accounts"].model_copy(update={"quality": same})}
    spark = found.spark.model_copy(update={"conf": before.spark.conf})
    assert found.model_copy(update={"logs": logs, "spark": spark}) == before


def test_settings_of_spark_stay_with_the_starter(pipeline: Pipeline) -> None:
    job = send_job(pipeline, IngestStep(), ["accounts"])
    assert b"s3cret" not in pipeline.store.read(job.paths.request)


def test_a_driver_with_other_versions_refuses_before_it_reads_the_rest(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_job, "find_versions", lambda: {"pyarrow": "1.2"})
    job = send_job(pipeline, IngestStep(), ["accounts"])
    request = read_request(pipeline.store, job.paths)
    request.config = request.step = type(request.config)(b"{not this version}")
    for read in (request.read_step, lambda: request.read_config(tmp_path)):
        with pytest.raises(RefusedError, match=r"VERSION_MISMATCH.*driver on .* pyarrow .*\(starter: 1\.2\)"):
            read()


def test_outcomes_return_through_the_store_once(pipeline: Pipeline) -> None:
    job = send_job(pipeline, IngestStep(), ["accounts"])
    assert receive_outcomes(pipeline.store, job) == []
    outcomes = [Outcome("accounts", Status.TAKEN, "took it")]
    send_outcomes(pipeline.store, job.paths, outcomes)
    assert receive_outcomes(pipeline.store, job) == outcomes
    delete_job(pipeline.store, job)
    assert jobs_of(pipeline) == []


def test_a_driver_that_starts_after_its_starter_ended_refuses(pipeline: Pipeline) -> None:
    job = send_job(pipeline, IngestStep(), ["accounts"])
    delete_job(pipeline.store, job)
    with pytest.raises(InvalidInputError, match=r"REQUEST_INVALID.*its starter has ended"):
        read_request(pipeline.store, job.paths)


def test_a_driver_ends_itself_when_its_request_is_gone(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_job, "_LEASH_SECONDS", 0)
    job = send_job(pipeline, IngestStep(), ["accounts"])
    codes: list[int] = []
    ended = threading.Event()
    ended.set()
    end_without_starter(pipeline.store, job.paths, ended, codes.append)
    assert codes == []
    delete_job(pipeline.store, job)
    end_without_starter(pipeline.store, job.paths, threading.Event(), codes.append)
    assert codes == [1]


@pytest.mark.parametrize("master", ["spark://a:1", "local[2]"])
def test_masters_that_run_no_driver_are_refused(pipeline: Pipeline, master: str) -> None:
    """Airflow's connection names the master, so `validate` does not see it."""
    spark = pipeline.config.spark.model_copy(update={"master": master})
    elsewhere = replace(pipeline, config=pipeline.config.model_copy(update={"spark": spark}))
    with pytest.raises(InvalidInputError, match="DEPLOY_MODE"):
        send_job(elsewhere, IngestStep(), ["accounts"])
    assert jobs_of(pipeline) == []


def test_a_store_beside_the_configuration_is_refused(pipeline: Pipeline) -> None:
    beside = replace(pipeline, config=pipeline.config.model_copy(update={"store": "store"}))
    with pytest.raises(InvalidInputError, match=r"DEPLOY_MODE.*`store`"):
        send_job(beside, IngestStep(), ["accounts"])


def test_clean_deletes_jobs_of_dead_starters_when_they_are_old(pipeline: Pipeline) -> None:
    young = send_job(pipeline, IngestStep(), ["accounts"])
    old = StoredJob(young.address, JobPaths.of(datetime.now(UTC) - timedelta(days=8), "0a"))
    pipeline.store.put_if_absent(old.paths.request, b"{}")
    send_outcomes(pipeline.store, old.paths, [])
    pipeline.store.put_if_absent("jobs/readme", b"of somebody else")
    planned = clean(pipeline, [], plan=True)[0]
    assert len(jobs_of(pipeline)) == 4
    [cleaned] = clean(pipeline, [])
    assert cleaned.status is Status.CLEANED
    assert cleaned.details.scratch == planned.details.scratch == [old.paths.outcomes, old.paths.request]  # type: ignore[attr-defined]
    assert jobs_of(pipeline) == [young.paths.request, "jobs/readme"]


def run(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, dies: bool = False) -> list[Outcome]:
    def submit(config: Config, step: str, job: StoredJob) -> Command:
        program = _JOB.replace("DIES", repr(dies))
        return Command((sys.executable, "-c", program, *job.arguments), {})

    monkeypatch.setattr(spark_submit, "check_java", lambda: None)
    monkeypatch.setattr(spark_submit, "submit_stored_job", submit)
    with SparkApplication(Terminal(pipeline.config.path, Format.TEXT, False), pipeline) as application:
        return application.run_step(MaterializeStep(Fold("run-1")), ["accounts", "tellers"])


def test_the_command_line_sends_waits_and_deletes(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [outcome.status for outcome in run(pipeline, monkeypatch)] == [Status.STAGED] * 2
    assert jobs_of(pipeline) == []
    assert not list(pipeline.config.path.parent.glob("var/results/*"))


def test_an_error_of_the_whole_job_is_the_outcome_of_each_log(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_job, "find_versions", lambda: {"pyarrow": "1.2"})
    outcomes = run(pipeline, monkeypatch)
    assert [outcome.error_code for outcome in outcomes] == ["VERSION_MISMATCH"] * 2
    assert jobs_of(pipeline) == []


def test_a_driver_that_dies_is_named_with_its_log_and_a_retry_works(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    died = run(pipeline, monkeypatch, dies=True)
    assert [outcome.error_code for outcome in died] == ["JOB_DIED"] * 2
    assert died[0].error
    assert "yarn logs -applicationId application_17_0001" in (died[0].error.hint or "")
    assert jobs_of(pipeline) == []
    assert [outcome.status for outcome in run(pipeline, monkeypatch)] == [Status.STAGED] * 2


def test_spark_gets_no_path_of_the_starter_but_what_it_sends(pipeline: Pipeline) -> None:
    settings = spark_conf(pipeline.config, "materialize")
    sent = ("spark.jars", "spark.submit.pyFiles")
    here = str(pipeline.config.path.parent)
    assert [name for name, value in settings.items() if here in value and name not in sent] == []
    assert settings["spark.submit.deployMode"] == "cluster"
    assert settings["spark.yarn.maxAppAttempts"] == "1"
    assert settings["spark.yarn.appMasterEnv.GX_ANALYTICS_ENABLED"] == "false"
    assert "spark.driver.host" not in settings
    assert job_env(pipeline.config)["PYTHONPATH"] == ""
    job = StoredJob("s3://bucket/store", JobPaths("jobs/1"))
    assert submit_stored_job(pipeline.config, "ingest", job).argv[-3:][1:] == ("s3://bucket/store", "jobs/1")


def test_on_kubernetes_the_driver_has_variables_of_its_own(tmp_path: Path) -> None:
    settings = spark_conf(on_cluster(tmp_path / "here", "'k8s://https://h:6443'").config, "ingest")
    assert settings["spark.kubernetes.driverEnv.GX_ANALYTICS_ENABLED"] == "false"


def test_the_archive_has_what_a_driver_needs(pipeline: Pipeline, tmp_path: Path) -> None:
    """It renders reports, which have a template."""
    archive = spark_conf(pipeline.config)["spark.submit.pyFiles"]
    with zipfile.ZipFile(archive) as packed:
        assert "tidefold/quality/report/report.html.j2" in packed.namelist()
    shutil.copy(archive, tmp_path / "code.zip")
    call = [sys.executable, "-c", _LOOK]
    env = {"PYTHONPATH": str(tmp_path / "code.zip")}
    done = subprocess.run(call, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["report.html.j2", f"{tmp_path}/code.zip/tidefold/__init__.py"], done.stderr
