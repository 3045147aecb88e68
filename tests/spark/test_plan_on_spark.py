"""A plan on Spark: the steps of its shadow store are the jobs of a run, and its rows are those of this process."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.planned import configure, land, plan, random_file, rows, run
from tidefold.compute.runners import in_process
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.plan.plan import make_plan
from tidefold.quality.run.duckdb_rows import open_engines
from tidefold.spark import job_main
from tidefold.spark.dispatch import run_without_spark
from tidefold.spark.request import Request
from tidefold.spark.result_file import read_outcomes
from tidefold.spark.steps import AnyStep, load_job, plan_steps
from tidefold.wiring import open_pipeline, open_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.rotates(4, whole=True)


def test_a_plan_on_spark_is_the_plan_of_this_process(spark: SparkSession, tmp_path: Path) -> None:
    r, folder, on_spark = random.Random(1), tmp_path / "log", list[str]()
    pipeline = configure(folder)
    with open_engines(1) as lend, lend() as engine:
        for number, name in enumerate("ba"):
            land(folder, f"{name}.csv", *random_file(r), ("U", 9, 1, "x", *["2026-11-01 00:00:00"] * 2))
            run(pipeline, f"r{number}", engine)
        here, shadow = plan(configure(folder, order="[changed]"), engine)
        expected = rows(shadow)
    (folder / "store/plans").rename(tmp_path / "plans")
    text = (folder / "tidefold.yaml").read_text().replace("above: 1GB", "above: 0B, master: 'local[2]'")
    (folder / "tidefold.yaml").write_text(text)
    beside = open_plan(open_pipeline(folder / "tidefold.yaml", lambda text: None), "orders")
    # What the log takes after the plan has begun does not belong to it.
    land(folder, "c.csv", ("U", 9, 1, "y", *["2026-11-05 00:00:00"] * 2))
    ingest(configure(folder), ["orders"], in_process)
    (folder / "tidefold.yaml").write_text(text)

    def run_step(step: AnyStep, logs: Sequence[str]) -> list[Outcome]:
        local = run_without_spark(beside, step, logs)
        if not local.spark:
            return list(local.done)
        on_spark.append(step.name)
        result, live = folder / f"{step.name}.json", beside.plan_of
        assert live
        config = str(beside.config.path)
        job_main._run(load_job(step.name), Request(config, (*logs,), step, str(result), plan=live.state.version))
        outcomes = read_outcomes(result)
        assert outcomes
        return outcomes

    made = make_plan(beside, "orders", plan_steps(run_step), 3)
    assert on_spark == ["ingest", "materialize", "quality"]
    assert rows(beside) == expected
    for name in ("counts", "values", "examples", "edits", "rows", "edit", "gone"):
        assert getattr(made, name) == getattr(here, name)
