"""Steps of source tables that are no single statement, by name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from support.source_tables import FEED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Step = Callable[["SparkSession", Path], None]
_PARTS = "spark.databricks.delta.checkpoint.partSize"


def _named_rows(spark: SparkSession, first: int, count: int) -> DataFrame:
    texts = "concat('t', id) AS text", "concat('p ', id % 2) AS part"
    numbers = "cast(id AS INT) AS a", "cast(id / 2 AS FLOAT) AS f", "cast(id AS DECIMAL(9,2)) AS d"
    return spark.range(count).selectExpr(f"cast(id + {first} AS INT) AS id", *numbers, *texts)


def overwrite_partitions(spark: SparkSession, folder: Path) -> None:
    rows = _named_rows(spark, 300, 4).where("part = 'p 1'")
    writer = rows.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.save(str(folder))


def replace_where(spark: SparkSession, folder: Path) -> None:
    rows = _named_rows(spark, 400, 4).where("part = 'p 0'")
    rows.write.format("delta").mode("overwrite").option("replaceWhere", "part = 'p 0'").save(str(folder))


def rewrite(spark: SparkSession, folder: Path) -> None:
    rows = spark.read.format("delta").load(str(folder)).repartition(3)
    rows.write.format("delta").mode("overwrite").option("dataChange", "false").save(str(folder))


def write_many_files(spark: SparkSession, folder: Path) -> None:
    _named_rows(spark, 1_000, 600).repartition(300).write.format("delta").mode("append").save(str(folder))


def stream_append(spark: SparkSession, folder: Path) -> None:
    _stream(spark, folder, "append")


def stream_complete(spark: SparkSession, folder: Path) -> None:
    _stream(spark, folder, "complete")


def _stream(spark: SparkSession, folder: Path, mode: str) -> None:
    """Writes rows as a stream does: those of another table, in one batch, with its transaction in the commit."""
    source = folder.parent / f"source-{len(list(folder.parent.iterdir()))}"
    first = 100 * len(list(folder.parent.iterdir()))
    _named_rows(spark, first, 4).write.format("delta").save(str(source))
    rows = spark.readStream.format("delta").load(str(source))
    if mode == "complete":
        from pyspark.sql.functions import expr

        values = "max(a) AS a", "max(f) AS f", "max(d) AS d", "max(text) AS text", "max(part) AS part"
        rows = rows.groupBy("id").agg(*map(expr, values))
    writer = rows.writeStream.format("delta").outputMode(mode).trigger(availableNow=True)
    writer.option("checkpointLocation", f"{source}-state").start(str(folder)).awaitTermination()


def write_parts(spark: SparkSession, folder: Path) -> None:
    """A checkpoint of several parts at the next even version."""
    spark.conf.set(_PARTS, "2")
    try:
        for number in (700, 710):
            _named_rows(spark, number, 4).repartition(4).write.format("delta").mode("append").save(str(folder))
    finally:
        spark.conf.unset(_PARTS)


def compact_log(spark: SparkSession, folder: Path) -> None:
    """Joins commits 1 to 3 into one file, as writers of newer versions may; Delta's readers may take it."""
    log = folder / "_delta_log"
    lines = [line for number in (1, 2, 3) for line in (log / f"{number:020d}.json").read_text().splitlines()]
    (log / f"{1:020d}.{3:020d}.compacted.json").write_text("\n".join(lines))


def forget(spark: SparkSession, folder: Path) -> None:
    """Deletes what a checkpoint has made superfluous."""
    log = folder / "_delta_log"
    checkpoints = sorted(int(path.name[:20]) for path in log.glob("*.checkpoint*.parquet"))
    for path in log.glob("*.json") if checkpoints else ():
        if path.name[:20].isdigit() and int(path.name[:20]) < checkpoints[-1]:
            path.unlink()


def vacuum(spark: SparkSession, folder: Path) -> None:
    spark.sql(f"VACUUM delta.`{folder}` RETAIN 0 HOURS")


def drop(spark: SparkSession, folder: Path) -> None:
    spark.sql("CLEAR CACHE")
    shutil.rmtree(folder)


def overwrite_types(spark: SparkSession, folder: Path) -> None:
    rows = _named_rows(spark, 0, 4).selectExpr("id", "cast(a AS STRING) AS a", "text")
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(str(folder))


def clone(spark: SparkSession, folder: Path) -> None:
    """The table is a shallow clone of another one."""
    source = folder.parent / "cloned"
    _named_rows(spark, 0, 12).write.format("delta").save(str(source))
    spark.sql(f"CREATE TABLE delta.`{folder}` SHALLOW CLONE delta.`{source}` TBLPROPERTIES ({FEED})")


def compact_by_delta_rs(spark: SparkSession, folder: Path) -> None:
    DeltaTable(str(folder)).optimize.compact()


STEPS: dict[str, Step] = {
    "!dynamic overwrite": overwrite_partitions,
    "!replaceWhere": replace_where,
    "!rewrite": rewrite,
    "!many files": write_many_files,
    "!stream append": stream_append,
    "!stream complete": stream_complete,
    "!parts": write_parts,
    "!compact log": compact_log,
    "!forget": forget,
    "!vacuum": vacuum,
    "!drop": drop,
    "!other types": overwrite_types,
    "!shallow clone": clone,
    "!compact by delta-rs": compact_by_delta_rs,
}
