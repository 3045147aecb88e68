"""Spark runs a task again when the answer of its first try is lost, though all its files were written (I35)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from support.landing_pair import PAIR, land, make
from support.pipelines import judge_all, rows_of
from support.spark_work import LosesItsFirstAnswer
from tidefold.compute.runners import Answer, Runner, Work, on_spark
from tidefold.domain.paths import LogPaths
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.retention.clean import clean
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.snapshot.request import Fold
from tidefold.spark.submit import job_env, spark_conf


def test_every_task_is_lost_once_and_everything_is_taken_and_folded_once(tmp_path: Path) -> None:
    """In a process of its own: the session of the other tests lets no task fail."""
    code = os.pathsep.join(sys.path)
    program = [sys.executable, __file__, str(tmp_path)]
    done = subprocess.run(program, env={**os.environ, "PYTHONPATH": code}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "EACH TASK RAN TWICE" in done.stdout


def losing(pipeline: Pipeline, marks: Path) -> Runner:
    from pyspark.sql import SparkSession

    os.environ |= job_env(pipeline.config)
    os.environ["PYTHONPATH"] += os.pathsep + str(Path(__file__).parents[1])
    # Up to three failures of a task are borne.
    builder = SparkSession.builder.master("local[2,4]").appName("tidefold retries")
    for key, value in spark_conf(pipeline.config).items():
        builder = builder.config(key, value)
    run_tasks = on_spark(builder.getOrCreate())
    marks.mkdir()

    def run(work: Work, tasks: Sequence[str]) -> list[Answer]:
        first = len(list(marks.iterdir()))
        asked = [json.dumps({"task": task, "number": first + i}) for i, task in enumerate(tasks)]
        return run_tasks(LosesItsFirstAnswer(work, str(marks)), asked)

    return run


def main(root: Path) -> None:
    pipeline = make(root)
    for log in PAIR:
        land(root, log, 0, 50)
        (root / "landing" / log / f"{log}+0+0000000050.jsonl").write_text("{bad\n")
    runner = losing(pipeline, root / "marks")
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
    tries = [mark.stat().st_size for mark in (root / "marks").iterdir()]
    assert tries == [2, 2, 2], tries
    print("EACH TASK RAN TWICE", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
