"""Apache Paimon as a peer: a table with a primary key in fixed buckets takes changes as plain inserts, without a join.

The column of `rowkind.field` says which rows are deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from worker import latest, read_all, serve, session

_CONF = {
    "spark.sql.extensions": "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions",
    "spark.sql.catalog.paimon": "org.apache.paimon.spark.SparkCatalog",
    # The benchmark puts the files of the table back between two runs.
    "spark.sql.catalog.paimon.cache-enabled": "false",
}
_COLUMNS = "id, amount, seen, city, text"
_TABLE = {
    "primary-key": "id",
    "bucket": "16",
    "rowkind.field": "kind",
    "file.format": "parquet",
    "file.compression": "zstd",
}


def prepare(told: dict[str, str]) -> Mapping[str, Callable[..., None]]:
    spark = session(told, {**_CONF, "spark.sql.catalog.paimon.warehouse": told["live"]})

    def load(table: str, files: list[str]) -> None:
        """`table` names its mode. That of copy-on-write compacts nothing in batch writes of Spark."""
        spark.sql("CREATE DATABASE IF NOT EXISTS paimon.bench")
        spark.read.parquet(*files).createOrReplaceTempView("base")
        options = ", ".join(f"'{name}' = '{value}'" for name, value in _TABLE.items())
        rows = f"SELECT {_COLUMNS}, '+I' AS kind FROM base"
        spark.sql(f"CREATE TABLE paimon.bench.`{table}` TBLPROPERTIES ({options}) AS {rows}")
        # The rows lie in the highest level, as after any full compaction.
        _compact(table)

    def merge(table: str, changes: str, compact: bool) -> None:
        latest(spark, changes).createOrReplaceTempView("latest")
        spark.sql(
            f"INSERT INTO paimon.bench.`{table}` "
            f"SELECT {_COLUMNS}, CASE WHEN _op = 1 THEN '-D' ELSE '+U' END AS kind FROM latest"
        )
        if compact:
            _compact(table)

    def _compact(table: str) -> None:
        spark.sql(f"CALL paimon.sys.compact(table => 'bench.`{table}`')")

    def read(table: str) -> None:
        read_all(spark.table(f"paimon.bench.`{table}`").selectExpr(*_COLUMNS.split(", ")))

    def export(table: str, path: str) -> None:
        spark.table(f"paimon.bench.`{table}`").selectExpr(*_COLUMNS.split(", ")).write.parquet(path)

    return {"load": load, "merge": merge, "read": read, "export": export}


if __name__ == "__main__":
    serve(prepare)
