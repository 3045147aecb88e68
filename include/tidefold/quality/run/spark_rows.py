"""Judges rows on Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidefold.compute.connect_session import find_connected, find_outage, mark_operations
from tidefold.compute.runners import on_spark
from tidefold.compute.spark_session import tag_jobs
from tidefold.domain.log_state import Column, TableSpec
from tidefold.domain.paths import data_path
from tidefold.domain.snapshot.manifest import DataFile, Manifest
from tidefold.domain.wording import EngineName, clip_text
from tidefold.errors import TidefoldError
from tidefold.quality.run.bucket_counts import bucket_counter, can_count
from tidefold.quality.run.cost import Meter
from tidefold.quality.run.count_memory import CountMemory
from tidefold.quality.run.count_task import JUDGE_AGAIN
from tidefold.quality.run.counts import CountRows
from tidefold.quality.run.engine import SqlDialect
from tidefold.quality.run.expectations import judge_counts
from tidefold.quality.run.file_rows import file_rows
from tidefold.quality.run.gx_import import load_for_spark
from tidefold.storage import Store, open_store

if TYPE_CHECKING:
    from great_expectations.core import ExpectationValidationResult
    from great_expectations.expectations.expectation import Expectation
    from pyspark.sql import DataFrame, Row, SparkSession

# How many snapshots one Spark application judges at the same time. Each needs a thread of the driver.
JUDGED_AT_ONCE = 8
# Quantiles are a sketch, to 1 in 2,000.
_DIALECT = SqlDialect("`", "unix_date({})", "unix_micros({})", "percentile_approx({}, array({}), 2000)")
_GLOB = str.maketrans({c: f"\\{c}" for c in "\\{}[]*?"})


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Reads snapshots with a Spark session. `step`: the name in the jobs of the thread that judges a log."""

    spark: SparkSession
    step: str = "quality"
    name: EngineName = EngineName.SPARK

    def read(self, store: Store, manifest: Manifest, memory: CountMemory | None = None) -> SparkRows:
        """Returns all rows of exactly the manifest's files, every column nullable. Raises TidefoldError."""
        tag_jobs(self.spark, self.step, [manifest.log])
        runner = on_spark(self.spark)
        counter = bucket_counter(store.address, manifest, runner, memory) if manifest.shown else None
        return SparkRows(partial(_read, self.spark, store, manifest), manifest.shape, counter)

    def meter(self) -> Meter:
        mark_operations()
        # A Spark Connect server counts no jobs for its sessions, and gives them no pools.
        return Meter(None if self.spark is find_connected() else self.spark.sparkContext)


@dataclass(frozen=True)
class SparkRows:
    """Rows of a snapshot as a DataFrame.

    open: returns it. Only what counts by bucket cannot do needs it.
    shape, counter: of the snapshot's files; without them Spark judges all expectations.
    """

    open: Callable[[], DataFrame]
    shape: TableSpec | None = None
    counter: CountRows | None = None

    @cached_property
    def rows(self) -> DataFrame:
        return self.open()

    def validate(self, expectations: Sequence[Expectation], form: dict[str, Any]) -> list[ExpectationValidationResult]:
        """Counts bucket by bucket where that gives the same counts; Spark does the rest, and all samples."""
        if self.shape is None or self.counter is None:
            return self._judge(expectations, form)
        can = partial(can_count, shape=self.shape)
        judged, rest = judge_counts(expectations, form, self.shape.types, self.counter, can_count=can)
        return [*judged, *self._judge(rest, form)]

    def _judge(self, expectations: Sequence[Expectation], form: dict[str, Any]) -> list[ExpectationValidationResult]:
        if not expectations:
            return []
        load_for_spark()
        import great_expectations as gx

        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False, "metric_calculations": False}
        # Not persisted: measured slower for up to a million rows, and it would crowd out the tasks of other logs.
        source = context.data_sources.add_spark("staged", persist=False)
        batch = source.add_dataframe_asset("rows").add_batch_definition_whole_dataframe("all")
        suite = context.suites.add(gx.ExpectationSuite("suite", expectations=list(expectations)))
        validation = gx.ValidationDefinition(name="gate", data=batch, suite=suite)
        return [*validation.run(batch_parameters={"dataframe": self.rows}, result_format=form).results]

    @property
    def dialect(self) -> SqlDialect:
        return _DIALECT

    @cached_property
    def table(self) -> str:
        name = f"rows_{uuid.uuid4().hex}"
        self.rows.createOrReplaceTempView(name)
        return name

    def query(self, sql: str) -> list[Row]:
        rows: list[Row] = self.rows.sparkSession.sql(sql).collect()
        return rows


def _read(spark: SparkSession, store: Store, manifest: Manifest) -> DataFrame:
    schema = ", ".join(_spark_column(column) for column in manifest.shape.table_columns)
    folder = manifest.data_folder
    paths = [store.uri(data_path(folder, f.name)).translate(_GLOB) for f in manifest.shown]
    try:
        if not paths:
            return spark.createDataFrame([], schema)
        if store.options() or any(f.deletions for f in manifest.shown):
            # Spark has no client for this store, or knows of deletions by a Delta log only: its Python workers read the
            # files, one task each.
            work = partial(_read_numbered, store.address, folder, manifest.shown, manifest.shape)
            count = len(manifest.shown)
            return spark.range(0, count, 1, count).mapInArrow(work, schema)
        reader = spark.read.schema(schema).option("ignoreMissingFiles", "false").option("ignoreCorruptFiles", "false")
        return reader.parquet(*paths)
    except Exception as error:  # Any exception of Spark must become an error of this log, never a pass.
        if outage := find_outage(error):
            raise outage from error
        line = clip_text(" ".join(str(error).split()))
        message = f"Spark cannot read `{folder}`: {line}"
        raise TidefoldError("STAGED_ROWS_UNREADABLE", message, hint=JUDGE_AGAIN) from error


def _read_numbered(
    address: str, folder: str, files: Sequence[DataFile], shape: TableSpec, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    store = open_store(address, Path("/"))
    for number in (n for batch in batches for n in batch.column(0).to_pylist()):
        yield from file_rows(store, folder, files[number], shape)


def _spark_column(column: Column) -> str:
    # tidefold's type names are Spark's, except for the one whose meaning depends on the session.
    kind = column.type.replace("timestamp", "timestamp_ltz")
    return f"`{column.name.replace('`', '``')}` {kind}"
