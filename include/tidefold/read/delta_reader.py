"""Reads a whole Delta table as Spark users read it: through delta-spark, with every column scanned."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from tidefold.compute.connect_session import find_outage, mark_operations
from tidefold.errors import CorruptError
from tidefold.read.content_checksum import ContentChecksum, compute_checksum

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark has no unsigned integers of 64 bits, so sums travel as text.
_PART = "rows long, content string, columns array<string>"
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class ReaderColumn:
    """A column as readers of a Delta table see it; `type` is Delta's JSON for it."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class DeltaContent:
    """The columns of a Delta table and the checksum of its rows, as a reader gets them."""

    columns: tuple[ReaderColumn, ...]
    checksum: ContentChecksum


@dataclass(frozen=True, slots=True)
class SparkDeltaReader:
    """Reads Delta tables with a Spark session."""

    spark: SparkSession

    def read(self, uri: str) -> DeltaContent:
        """Scans the newest version of a table, without statistics, metadata or filters.

        Raises CorruptError if Spark cannot read the table.
        """
        mark_operations()
        try:
            # Spark's client for S3 has a scheme of its own.
            frame = self.spark.read.format("delta").load(re.sub("^s3://", "s3a://", uri))
            count = len(frame.columns)
            parts = frame.mapInArrow(partial(_checksum_part, count), _PART).collect()
            columns = parse_columns(frame.schema.json())
        except Exception as error:  # Whatever Spark raises is what a reader of the table would get.
            if outage := find_outage(error):
                raise outage from error
            line = " ".join(str(error).split())[:_SHOWN]
            raise CorruptError("READERS_FAIL", f"Spark cannot read `{uri}`: {line}") from error
        found = (ContentChecksum(p["rows"], int(p["content"]), tuple(map(int, p["columns"]))) for p in parts)
        return DeltaContent(columns, sum(found, ContentChecksum(0, 0, (0,) * count)))


def _checksum_part(columns: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Returns the checksum of one partition, as one row."""
    found = compute_checksum(batches, columns)
    row = {"rows": found.rows, "content": str(found.content), "columns": [str(one) for one in found.columns]}
    yield pa.RecordBatch.from_pylist([row])


def parse_columns(schema: str) -> tuple[ReaderColumn, ...]:
    """Returns the columns of a schema in the JSON that Delta and Spark share, without comments and other metadata."""
    fields = json.loads(schema)["fields"]
    return tuple(ReaderColumn(f["name"], json.dumps(f["type"], sort_keys=True), f["nullable"]) for f in fields)
