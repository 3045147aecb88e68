"""The demo and the compose file show both engines: Spark does every step of `accounts`, and its gate alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from local_airflow.settings import PROJECT
from tidefold.cli.sample import PHASES, land, prepare
from tidefold.domain.wording import EngineName
from tidefold.operations.outcome import Status
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import Fold
from tidefold.spark.dispatch import run_without_spark
from tidefold.spark.steps import AnyStep, IngestStep, MaterializeStep, QualityStep
from tidefold.wiring import open_pipeline


def prepare_compose(root: Path) -> Path:
    config = yaml.safe_load((PROJECT / "docker" / "sample" / "tidefold.yaml").read_text())
    path = prepare(root)
    path.write_text(yaml.safe_dump({**config, "store": "store"}))
    return path


@pytest.mark.parametrize("make", [prepare, prepare_compose])
def test_both_engines_work_in_every_run(make: Callable[[Path], Path], tmp_path: Path) -> None:
    config = make(tmp_path)
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
            confirm(pipeline, log, run_id=phase)


def do_the_rest(pipeline: Pipeline, step: AnyStep, logs: Sequence[str]) -> None:
    """What Spark would do."""
    spark = pipeline.config.spark.model_copy(update={"above": "1GB"})
    large = replace(pipeline, config=pipeline.config.model_copy(update={"spark": spark}))
    found = run_without_spark(large, step, logs)
    assert not found.spark
    assert not any(outcome.error for outcome in found.done)
