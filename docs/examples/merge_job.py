"""spark-submit merge_job.py LANDING TABLE: merges landed JSON lines into a Delta table, by key and order."""

import sys

from delta.tables import DeltaTable
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as f

KEY, ORDER = ["id"], ["seq"]
COLUMNS = "id LONG, seq LONG, op STRING, amount LONG, note STRING"


def merge(spark: SparkSession, landing: str, table: str) -> None:
    """Merges every landed file. The newest change of a key decides, so that a file may be read twice."""
    changes = spark.read.schema(COLUMNS).option("mode", "FAILFAST").json(landing)
    newest = Window.partitionBy(*KEY).orderBy(*[f.col(name).desc() for name in ORDER])
    last = changes.withColumn("_n", f.row_number().over(newest)).where("_n = 1").drop("_n")
    if not DeltaTable.isDeltaTable(spark, table):
        last.limit(0).drop("op").write.format("delta").save(table)
    newer = " AND ".join(f"s.{name} > t.{name}" for name in ORDER)
    columns = {name: f"s.{name}" for name in last.columns if name != "op"}
    (
        DeltaTable.forPath(spark, table).alias("t")
        .merge(last.alias("s"), " AND ".join(f"s.{name} = t.{name}" for name in KEY))
        .whenMatchedDelete(f"s.op = 'd' AND {newer}")
        .whenMatchedUpdate(newer, set=columns)
        .whenNotMatchedInsert("s.op IS NULL OR s.op <> 'd'", values=columns)
        .execute()
    )  # fmt: skip


if __name__ == "__main__":
    merge(SparkSession.builder.getOrCreate(), *sys.argv[1:3])
