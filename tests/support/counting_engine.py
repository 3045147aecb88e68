"""Spark's way to judge without Spark: the tasks that count run in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from tidefold.compute.runners import in_process
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.domain.wording import EngineName
from tidefold.quality.run.bucket_counts import bucket_counter
from tidefold.quality.run.cost import Meter
from tidefold.quality.run.count_memory import CountMemory
from tidefold.quality.run.spark_rows import SparkRows
from tidefold.storage import Store


def count_nothing(log: str) -> None:
    return


def fail() -> NoReturn:
    raise AssertionError("Spark read the rows")


@dataclass(frozen=True)
class CountingEngine:
    """Judges what can be counted by bucket. Samples are Spark's: a test switches them off.

    before: is called with the log whose rows are read.
    """

    before: Callable[[str], None] = count_nothing
    name: EngineName = EngineName.SPARK

    def read(self, store: Store, manifest: Manifest, memory: CountMemory | None = None) -> SparkRows:
        self.before(manifest.log)
        counter = bucket_counter(store.address, manifest, in_process, memory) if manifest.shown else None
        return SparkRows(fail, manifest.shape, counter)

    def meter(self) -> Meter:
        return Meter()
