"""Reads published Delta tables through delta-spark: schema, protocol, the rows of each file, and the bytes of files."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidefold.compute.connect_session import find_connected, find_outage
from tidefold.compute.spark_session import tag_jobs
from tidefold.errors import CorruptError
from tidefold.storage.addresses import to_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_SHOWN = 300
_EXTENSIONS = "spark.connect.extensions.relation.classes"
_NUMBERS = {"rows": "long", "places": "long", "values": "array<long>"}


@dataclass(frozen=True, slots=True)
class TableScan:
    """What is read of a table.

    columns: whose values are counted; none: rows are counted alone, which reads only the footers of files.
    hashed: paths of the files whose bytes are hashed, relative to the table.
    places: the numbers of the rows in their files are summed up. A reader has them if the table has deletion vectors.
    small: one task reads it all, without a shuffle.
    """

    columns: tuple[str, ...]
    hashed: tuple[str, ...]
    places: bool
    small: bool


@dataclass(frozen=True, slots=True)
class FileContent:
    """What a reader gets of one file.

    places: the sum of the numbers of its rows in the file; 0: not read.
    values: how many values are not null, by column.
    """

    rows: int
    places: int = 0
    values: Mapping[str, int] = field(default_factory=dict)

    def has_other_rows(self, other: FileContent) -> bool:
        """Whether the rows are others, as far as their numbers in the file show."""
        return (self.rows, self.places) != (other.rows, other.places)

    def find_other_values(self, other: FileContent) -> list[str]:
        """Returns the columns of which the other has more or fewer values."""
        return [column for column, count in self.values.items() if other.values.get(column) != count]


@dataclass(frozen=True, slots=True)
class ReaderColumn:
    """A column as readers of a Delta table see it; `type` is Delta's JSON for it."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class TableContent:
    """A Delta table as a reader gets it.

    versions, features: its protocol: the lowest versions of readers and writers, and the table features.
    files: the rows of each file, by its name.
    hashes: the sha256 of files, by name.
    """

    columns: tuple[ReaderColumn, ...]
    versions: tuple[int, int]
    features: frozenset[str]
    files: Mapping[str, FileContent]
    hashes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SparkDeltaReader:
    """Reads Delta tables with a Spark session."""

    spark: SparkSession

    def read(self, log: str, uri: str, scan: TableScan) -> TableContent:
        """Reads the newest version of a log's table, in one query. Raises CorruptError if Spark cannot read it."""
        path = to_spark(uri)
        tag_jobs(self.spark, "verify", [log])
        try:
            table = self.spark.read.format("delta").load(path)
            columns = parse_columns(table.schema.json())
            names = [column.name for column in columns if column.name in scan.columns]
            rows = self._plan(table, path, scan, names).collect()
            detail = self._describe(path, "detail")
        except Exception as error:  # Whatever Spark raises is what a reader of the table would get.
            if outage := find_outage(error):
                raise outage from error
            line = " ".join(str(error).split())[:_SHOWN]
            raise CorruptError("READERS_FAIL", f"Spark cannot read `{uri}`: {line}") from error
        return TableContent(
            columns,
            (detail["minReaderVersion"], detail["minWriterVersion"]),
            frozenset(detail["tableFeatures"]),
            {row["file"]: _parse_row(row, names) for row in rows if row["sha256"] is None},
            {row["file"]: row["sha256"] for row in rows if row["sha256"] is not None},
        )

    def describe_newest(self, uri: str) -> str:
        """Names the newest commit, such as `version 3 UPDATE`."""
        commit = self._describe(to_spark(uri), "history")
        return f"version {commit['version']} {commit['operation']}"

    def _plan(self, table: DataFrame, path: str, scan: TableScan, names: Iterable[str]) -> DataFrame:
        from pyspark.sql import functions as F

        place = (F.col("_metadata.row_index") if scan.places else F.lit(0)).cast("long")
        values = F.array(*(F.count(F.col(f"`{name.replace('`', '``')}`")) for name in names))
        numbers = (F.count("*"), F.sum(place), values)
        rows = (
            (table.coalesce(1) if scan.small else table)
            .groupBy(F.col("_metadata.file_name").alias("file"))
            .agg(
                *(value.cast(kind).alias(name) for value, (name, kind) in zip(numbers, _NUMBERS.items(), strict=True)),
                F.lit(None).cast("string").alias("sha256"),
            )
        )
        if not scan.hashed:
            return rows
        files = self.spark.read.format("binaryFile").load([f"{path}/{name}" for name in scan.hashed])
        empty = [F.lit(None).cast(kind).alias(name) for name, kind in _NUMBERS.items()]
        hashes = (files.coalesce(1) if scan.small else files).select(
            F.col("_metadata.file_name").alias("file"), *empty, F.sha2("content", 256).alias("sha256")
        )
        return rows.unionAll(hashes)

    def _describe(self, path: str, what: str) -> Row:
        """Returns the detail of a table or its newest commit, by delta-spark's Python API if the session has it."""
        extensions = self.spark.conf.get(_EXTENSIONS, "") if self.spark == find_connected() else "delta"
        if "delta" in str(extensions) and importlib.util.find_spec("delta"):
            from delta.tables import DeltaTable

            table = DeltaTable.forPath(self.spark, path)
            return (table.detail() if what == "detail" else table.history(1)).first()
        return self.spark.sql(f"DESCRIBE {what} delta.`{path.replace('`', '``')}`").first()


def _parse_row(row: Any, names: Iterable[str]) -> FileContent:
    return FileContent(row["rows"], row["places"], dict(zip(names, row["values"], strict=True)))


def parse_columns(schema: str) -> tuple[ReaderColumn, ...]:
    """Returns the columns of a schema in the JSON that Delta and Spark share, without comments and other metadata."""
    fields = json.loads(schema)["fields"]
    return tuple(ReaderColumn(f["name"], json.dumps(f["type"], sort_keys=True), f["nullable"]) for f in fields)
