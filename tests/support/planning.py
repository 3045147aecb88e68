"""Computes what a step would do to a log, without doing it."""

from __future__ import annotations

from collections.abc import Sequence

from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import SnapshotRequest
from tidefold.spark.steps import AuditStep, MaterializeStep, PreparedLog, QualityStep


def weight(pipeline: Pipeline, log: str, request: SnapshotRequest) -> int | None:
    """Returns how many bytes a snapshot would read."""
    [prepared] = MaterializeStep(request).prepare(pipeline, [log])
    assert isinstance(prepared, PreparedLog)
    return prepared.weight


def heavy(pipeline: Pipeline, logs: Sequence[str], step: MaterializeStep | QualityStep | AuditStep) -> list[str]:
    """Returns the logs whose rows the step would read or write. Spark does these, unless they are small."""
    return [one.log for one in step.prepare(pipeline, logs) if isinstance(one, PreparedLog) and one.weight != 0]


def pending(pipeline: Pipeline, logs: Sequence[str], request: SnapshotRequest) -> list[str]:
    """Returns the logs for which a request would merge or write rows."""
    return heavy(pipeline, logs, MaterializeStep(request))
