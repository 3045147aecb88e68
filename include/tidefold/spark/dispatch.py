"""Decides which logs need Spark, on the plans that are then executed. The others are done without a JVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tidefold.domain.wording import EngineName
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.spark.steps import IngestStep, PipelineStep, PreparedLog, Tell

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class DispatchResult:
    """The outcome of a step for each log.

    `spark`: logs that need Spark.
    `done`: outcomes of the others, including errors.
    `step`: the step for a job.
    """

    spark: tuple[str, ...]
    done: tuple[Outcome, ...]
    step: Any = field(default=None, compare=False)


def run_without_spark(
    pipeline: Pipeline,
    step: PipelineStep[Any],
    logs: Sequence[str],
    tell: Tell = lambda log, done, total: None,
    above: int | None = None,
) -> DispatchResult:
    """Does the step for every log without work, with an error, with files to link, or with little to read.

    above: up to how many bytes are little; None: as `spark.above` says.
    """
    prepared = step.prepare(pipeline, logs)
    done = {one.log: one for one in prepared if isinstance(one, Outcome)}
    plans = [one for one in prepared if isinstance(one, PreparedLog)]
    light = _find_light(plans, (pipeline.config.spark.above or step.limit) if above is None else above)
    weights = {one.log: one.weight for one in light}
    for outcome in step.execute(pipeline, light, tell) if light else ():
        weight = weights[outcome.log]
        done[outcome.log] = outcome.with_engine(EngineName.IN_PROCESS, weight) if weight else outcome
    spark = tuple(log for log in logs if log not in done)
    if spark:
        # The job would do it too, but nobody reads its messages while it runs.
        pipeline.before_write()
    rest = step.after(plans) if isinstance(step, IngestStep) else step
    return DispatchResult(spark, tuple(done[log] for log in logs if log in done), rest)


def _find_light(plans: Sequence[PreparedLog[P]], limit: int) -> list[PreparedLog[P]]:
    """The logs with the least to read, as many as stay within the limit together."""
    light, left = set(), limit
    for plan in sorted((one for one in plans if one.weight is not None), key=lambda one: one.weight or 0):
        left -= plan.weight or 0
        if left >= 0 or not plan.weight:
            light.add(plan.log)
    return [one for one in plans if one.log in light]
