"""Measures what waits for the next run: landed files and unfolded changes. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from tidefold.domain.run_trigger import WaitingWork
from tidefold.operations.ingest.stages import plan_log
from tidefold.operations.pipeline import Pipeline


def measure_waiting(pipeline: Pipeline, logs: Sequence[str]) -> WaitingWork:
    """Returns what waits for these logs together. Raises TidefoldError."""
    files = size = 0
    landed, last = set(), {}
    for log in logs:
        planned = plan_log(pipeline, log)
        files += len(planned.plan.take)
        size += planned.weight + sum(c.location.length for c in planned.listed.begun.unfolded)
        landed |= {(log, f"{task.file.name} {task.weight}") for task in planned.plan.take}
        last[log] = planned.listed.begun.last_sqn
    return WaitingWork(files, size, frozenset(landed), last)
