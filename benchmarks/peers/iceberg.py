"""Apache Iceberg as a peer: MERGE into a table bucketed by its key, from a source bucketed alike, without a shuffle."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from worker import latest, read_all, serve, session

_CONF = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
    # The benchmark puts the files of the table back between two runs.
    "spark.sql.catalog.lake.cache-enabled": "false",
    # Join bucket with bucket where they lie (storage-partitioned join).
    "spark.sql.sources.v2.bucketing.enabled": "true",
    "spark.sql.sources.v2.bucketing.pushPartValues.enabled": "true",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    "spark.sql.iceberg.planning.preserve-data-grouping": "true",
}
_BUCKETS = "PARTITIONED BY (bucket(16, id))"
_ZSTD = "'format-version' = '3', 'write.parquet.compression-codec' = 'zstd'"
# The tasks of the join hold one bucket each: nothing must be shuffled or sorted again before it is written.
_TARGET = "'write.merge.distribution-mode' = 'none', 'write.spark.fanout.enabled' = 'true'"
_SOURCE = "lake.bench.source"


def prepare(told: dict[str, str]) -> Mapping[str, Callable[..., None]]:
    spark = session(told, {**_CONF, "spark.sql.catalog.lake.warehouse": told["live"]})

    def load(table: str, files: list[str]) -> None:
        """`table` names its mode: copy-on-write or merge-on-read."""
        rows = spark.read.parquet(*files)
        # Not those that tidefold keeps for itself, nor what a landed row does.
        rows.select(
            [name for name in rows.columns if not name.startswith("_") and name != "op"]
        ).createOrReplaceTempView("base")
        spark.sql(
            f"CREATE TABLE lake.bench.`{table}` USING iceberg {_BUCKETS} "
            f"TBLPROPERTIES ({_ZSTD}, {_TARGET}, 'write.merge.mode' = '{table}') "
            "AS SELECT * FROM base"
        )

    def merge(table: str, changes: str, compact: bool) -> None:
        latest(spark, changes).createOrReplaceTempView("latest")
        spark.sql(f"CREATE TABLE {_SOURCE} USING iceberg {_BUCKETS} TBLPROPERTIES ({_ZSTD}) AS SELECT * FROM latest")
        columns = spark.table(f"lake.bench.`{table}`").columns
        spark.sql(
            f"MERGE INTO lake.bench.`{table}` t USING {_SOURCE} s ON t.id = s.id "
            "WHEN MATCHED AND s._op = 1 THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in columns if name != 'id')} "
            f"WHEN NOT MATCHED AND s._op = 0 THEN INSERT ({', '.join(columns)}) "
            f"VALUES ({', '.join(f's.{name}' for name in columns)})"
        )
        if compact:
            # Every file that has a deletion vector is written again, with what was appended to its bucket.
            spark.sql(
                f"CALL lake.system.rewrite_data_files(table => 'bench.`{table}`', options => map("
                "'delete-file-threshold', '1', 'min-input-files', '2', 'max-concurrent-file-group-rewrites', '2'))"
            )

    def read(table: str) -> None:
        read_all(spark.table(f"lake.bench.`{table}`"))

    def export(table: str, path: str) -> None:
        spark.table(f"lake.bench.`{table}`").write.parquet(path)

    return {"load": load, "merge": merge, "read": read, "export": export}


if __name__ == "__main__":
    serve(prepare)
