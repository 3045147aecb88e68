"""Apache Hudi as a peer: upserts into a table with a bucket index, whose buckets are found without a look-up."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame

from worker import latest, read_all, serve, session

_CONF = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
}
_OPTIONS = {
    "hoodie.table.name": "bench",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "16",
    "hoodie.bucket.index.hash.field": "id",
    "hoodie.parquet.compression.codec": "zstd",
    # The changes come squashed: the later write counts.
    "hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING",
    "hoodie.combine.before.upsert": "false",
    "hoodie.upsert.shuffle.parallelism": "4",
    "hoodie.bulkinsert.shuffle.parallelism": "16",
    "hoodie.compact.inline": "false",
}
_COMPACTED = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}


def prepare(told: dict[str, str]) -> Mapping[str, Callable[..., None]]:
    spark = session(told, _CONF)

    def write(rows: DataFrame, table: str, operation: str, mode: str, **more: str) -> None:
        kind = table.replace("-", "_").upper()
        options = {**_OPTIONS, **more, "hoodie.datasource.write.operation": operation}
        options["hoodie.datasource.write.table.type"] = kind
        rows.write.format("hudi").options(**options).mode(mode).save(f"{told['live']}/{table}")

    def rows_of(table: str) -> DataFrame:
        rows = spark.read.format("hudi").load(f"{told['live']}/{table}")
        return rows.select("id", "amount", "seen", "city", "text")

    def load(table: str, files: list[str]) -> None:
        """`table` names its type: copy-on-write or merge-on-read."""
        rows = spark.read.parquet(*files).selectExpr(
            "id", "amount", "seen", "city", "text", "false AS _hoodie_is_deleted"
        )
        write(rows, table, "bulk_insert", "overwrite")

    def merge(table: str, changes: str, compact: bool) -> None:
        rows = latest(spark, changes).selectExpr(
            "id", "amount", "seen", "city", "text", "_op = 1 AS _hoodie_is_deleted"
        )
        write(rows, table, "upsert", "append", **(_COMPACTED if compact else {}))

    def read(table: str) -> None:
        read_all(rows_of(table))

    def export(table: str, path: str) -> None:
        rows_of(table).write.parquet(path)

    return {"load": load, "merge": merge, "read": read, "export": export}


if __name__ == "__main__":
    serve(prepare)
