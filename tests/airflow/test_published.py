"""What the task `published` says in its log: for each log how its run ended, and why it was not published."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowSkipException

from local_airflow.settings import PROJECT
from support.page_store import Story
from tidefold.operations.snapshot.abort import abort
from tidefold_airflow.dags.factory import Options, tidefold_group

RUN = "dag/run-1"


def test_it_says_for_each_log_why_it_was_not_published(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Airflow shows of a skipped task only `Skipping task.`"""
    story = Story(tmp_path)
    for log in ("accounts", "tellers", "branches"):
        story.land(log, range(5))
        story.ingest(log)
    story.cycle("branches", 1)
    story.stage("tellers", 1, passed=False)
    abort(story.pipeline, "tellers", "the gate said no")
    logs = ["branches", "tellers", "accounts"]
    with DAG("dag") as dag:
        tidefold_group("tidefold", logs=logs, options=Options(config=str(story.pipeline.config.path)))
    returned = {
        "tidefold.ingest": {"accounts": {"result": "error", "error": "LANDED_WAITING", "exit_code": 2}},
        "tidefold.confirm": {
            "tellers": {"result": "error", "error": "GATE_FAILED", "exit_code": 3},
            "branches": {"result": "published", "error": None},
        },
    }
    pushed: list[Any] = []
    instance = SimpleNamespace(
        task=dag.get_task("tidefold.published"), dag_id="dag", run_id="run-1",
        get_task_states=lambda **asked: {}, xcom_pull=lambda task_ids: returned.get(task_ids),
        xcom_push=lambda key, value: pushed.append(value),
    )  # fmt: skip
    task = instance.task
    task.logs = logs
    caplog.set_level(logging.INFO)
    with pytest.raises(AirflowSkipException):
        type(task).execute.__wrapped__(task, {"dag_run": instance, "ti": instance})
    assert pushed == [{"published": ["branches"], "refused": ["tellers"], "failed": ["accounts"]}]
    said = [record.getMessage() for record in caplog.records]
    assert not [line for line in said if line.startswith("branches: published")]
    [tellers] = [line for line in said if line.startswith("tellers: ")]
    assert "refused: snapshot 1 failed its quality gate: 1 of 2 checks failed: amount told" in tellers
    assert "Next: " in tellers
    [accounts] = [line for line in said if line.startswith("accounts: ")]
    assert "failed: tidefold.ingest: LANDED_WAITING. Next: " in accounts
    assert any("What follows is skipped (all is required)" in line for line in said)


def test_every_task_that_ends_as_skipped_logs_its_reason() -> None:
    """One function raises, and it logs first; `skip_this` follows `report`, which logs each log."""
    folder = PROJECT / "plugins" / "tidefold_airflow"
    raising = [path.name for path in folder.rglob("*.py") if "raise AirflowSkipException(" in path.read_text()]
    assert raising == ["base.py"]
