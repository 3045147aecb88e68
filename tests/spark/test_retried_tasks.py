"""Spark runs a task again when the answer of its first try is lost, though all its files were written (I35)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.landing_pair import PAIR, land, make
from support.pipelines import judge_all, rows_of
from support.spark_jvm import SparkJvm
from support.spark_work import LosesItsFirstAnswer
from tidefold.compute.runners import Runner, TaskAnswer, TaskWork, on_spark
from tidefold.domain.paths import LogPaths
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.requests import Fold
from tidefold.operations.retention.clean import clean
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def patient(spark_jvm: SparkJvm) -> SparkSession:
    """Up to three failures of a task are borne. The session of the other tests lets no task fail."""
    return spark_jvm.open_session("local[2,4]")


def losing(spark: SparkSession, marks: Path) -> Runner:
    run_tasks = on_spark(spark)
    marks.mkdir()

    def run(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        first = len(list(marks.iterdir()))
        asked = [json.dumps({"task": task, "number": first + i}) for i, task in enumerate(tasks)]
        return run_tasks(LosesItsFirstAnswer(work, str(marks)), asked)

    return run


def test_every_task_is_lost_once_and_everything_is_taken_and_folded_once(patient: SparkSession, tmp_path: Path) -> None:
    pipeline = make(tmp_path)
    for log in PAIR:
        land(tmp_path, log, 0, 50)
        (tmp_path / "landing" / log / f"{log}+0+0000000050.jsonl").write_text("{bad\n")
    runner = losing(patient, tmp_path / "marks")
    outcomes = ingest(pipeline, PAIR, runner)
    assert [o.status for o in outcomes] == ["taken", "taken"], outcomes
    states = [pipeline.ledger(log).read() for log in PAIR]
    named = {c.location.segment for s in states for c in s.change_sets} | {
        e.quarantine for s in states for e in s.landed
    }
    folders = ["changelog", *(LogPaths(log).quarantine for log in PAIR)]
    assert {e.path for folder in folders for e in pipeline.store.list(folder)} == {*filter(None, named)}
    outcomes = materialize(pipeline, PAIR, Fold("run"), runner)
    assert [o.status for o in outcomes] == ["staged", "staged"], outcomes
    for log in PAIR:
        judge_all(pipeline, log)
        assert confirm(pipeline, log).status == "published"
    lost = [path for outcome in clean(pipeline, PAIR)[1:] for path in outcome.facts["paths"]]
    assert len(lost) == len(PAIR), lost
    for log in PAIR:
        assert rows_of(pipeline.store.uri(LogPaths(log).table)) == {i: f"t{1000 + i}" for i in range(50)}
    tries = [mark.stat().st_size for mark in (tmp_path / "marks").iterdir()]
    assert tries == [2, 2, 2], tries
