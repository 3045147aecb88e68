"""Spark's side of a read: a ReadPlan as the partitions of a Python data source, one for each bucket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tidefold.read.plan import ReadPlan
from tidefold.read.task import plan_schema, read_task
from tidefold.storage import open_store


class PlanReader(DataSourceReader):  # type: ignore[misc]  # pyspark is not type-checked here
    """Reads a plan. Each task opens the store and reads its own files and batches of change sets.

    It has no `pushFilters` on purpose. Spark 4.2.0 keeps the filtered partitions for every other use of the same
    DataFrame, which then silently lacks rows (docs/how-to/read.md). To read one key, use the option `key`.
    """

    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan

    def partitions(self) -> list[InputPartition]:
        """Returns the tasks, largest first. If there is nothing to read, Spark makes one empty task."""
        return [InputPartition(task) for task in sorted(self._plan.tasks, key=lambda task: -task.weight)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:
            yield from read_task(open_store(self._plan.store, Path("/")), self._plan, partition.value)


def spark_schema(plan: ReadPlan) -> StructType:
    """Returns the schema of a plan's rows, with nullability: Spark checks each batch against it."""
    return from_arrow_schema(plan_schema(plan))
