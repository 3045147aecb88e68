"""What a judgement costs: its parts, and how many rows it read and took over."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext


@dataclass(frozen=True, slots=True)
class CostPart:
    """One part of the work: the number of its checks, its wall time in seconds, and its Spark jobs."""

    name: str
    checks: int
    seconds: float
    jobs: int


@dataclass(frozen=True, slots=True)
class Reuse:
    """How many rows a gate read, and how many it took over: of counts of single rows, and of duplicates of keys.

    snapshot: whose counts were taken over.
    differs: which of them were wrong.
    """

    read: int
    taken: int
    read_keys: int
    taken_keys: int
    snapshot: int | None = None
    differs: str = ""


@dataclass(slots=True)
class Meter:
    """Measures the parts one after the other, in the thread that does the work."""

    spark: SparkContext | None = None
    parts: list[CostPart] = field(default_factory=list)

    @contextmanager
    def part(self, name: str, checks: int) -> Iterator[None]:
        group = f"tidefold-{uuid.uuid4().hex}"
        if self.spark is not None:
            self.spark.setJobGroup(group, f"quality: {name}")
            # Spark shares its cores between these pools: the tasks of a large log do not come before all others.
            self.spark.setLocalProperty("spark.scheduler.pool", threading.current_thread().name)
        begun = time.perf_counter()
        try:
            yield
        finally:
            seconds = round(time.perf_counter() - begun, 2)
            jobs = len(self.spark.statusTracker().getJobIdsForGroup(group)) if self.spark is not None else 0
            self.parts.append(CostPart(name, checks, seconds, jobs))
