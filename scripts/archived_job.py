"""Some of everything that jobs ask of Spark, so that its classes are loaded; see `archive_classes`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, functions

from tidefold.compute.spark_session import spark_session


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The work of a Python worker."""
    yield from batches


def run_checks(rows: DataFrame) -> None:
    """Aggregates, samples and joins, as a quality gate asks for them."""
    rows.agg(functions.count("*"), functions.sum("v"), functions.countDistinct("k"), functions.stddev("v")).collect()
    rows.groupBy("k").agg(functions.max("v")).where("k > 'a'").orderBy("k").limit(5).collect()
    rows.join(rows.select("id").distinct(), "id", "left_anti").count()


def main(folder: str) -> None:
    spark = spark_session("archive")
    schema = "id long, v double, k string, t timestamp"
    rows = spark.range(0, 1_000, 1, 4).selectExpr(
        "id", "id * 0.5D AS v", "concat('key ', id % 7) AS k", "timestamp_micros(id) AS t"
    )
    made = rows.mapInArrow(same, schema)
    made.write.format("delta").save(f"{folder}/delta")
    made.write.parquet(f"{folder}/parquet")
    run_checks(spark.read.format("delta").load(f"{folder}/delta"))
    run_checks(spark.read.parquet(f"{folder}/parquet").cache())
    spark.createDataFrame([(1, 2.0, "x", None)], schema).collect()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
