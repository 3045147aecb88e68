"""The sample shows both engines at a terminal: Spark does every step of `accounts`, and its gate alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tidefold.cli.sample import PHASES, land, prepare
from tidefold.domain.wording import EngineName
from tidefold.operations.ground.outcome import Status
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.spark.dispatch import run_without_spark
from tidefold.spark.steps import AnyStep, IngestStep, MaterializeStep, QualityStep
from tidefold.wiring import open_pipeline


def test_both_engines_work_in_every_run(tmp_path: Path) -> None:
    config = prepare(tmp_path)
    for phase in PHASES:
        land(config, phase)
        pipeline = open_pipeline(config)
        logs = list(pipeline.config.logs)
        steps: list[AnyStep] = [IngestStep(), MaterializeStep(Fold(phase)), QualityStep(phase)]
        for step in steps:
            found = run_without_spark(pipeline, step, logs)
            assert "accounts" in found.spark
            assert not isinstance(step, QualityStep) or found.spark == ("accounts",)
            assert {o.details.engine for o in found.done if o.status is not Status.NOTHING} <= {EngineName.IN_PROCESS}
            do_the_rest(pipeline, step, found.spark)
        for log in logs:
            confirm(pipeline, log, Confirmation(run=phase))


def do_the_rest(pipeline: Pipeline, step: AnyStep, logs: Sequence[str]) -> None:
    """What Spark would do."""
    spark = pipeline.config.spark.model_copy(update={"above": 10**9})
    large = replace(pipeline, config=pipeline.config.model_copy(update={"spark": spark}))
    found = run_without_spark(large, step, logs)
    assert not found.spark
    assert not any(outcome.error for outcome in found.done)
