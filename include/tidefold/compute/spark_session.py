"""The Spark session that all jobs use; its settings come from `launch.spark_conf` by spark-submit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_session(name: str) -> SparkSession:
    """The session of this process, made on the first call."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName(f"tidefold {name}").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark
