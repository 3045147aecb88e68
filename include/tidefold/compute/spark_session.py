"""The Spark session that all jobs use; its settings come from `submit.spark_conf` by spark-submit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidefold.compute.connect_session import find_connected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The archive of this package that executors get. `spark.submit.pyFiles` would make this driver import from it, too.
CODE_SETTING = "spark.tidefold.code"


def spark_session(name: str) -> SparkSession:
    """The session of this process: the one on a Spark Connect server, or one that the first call makes."""
    if connected := find_connected():
        return connected
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName(f"tidefold {name}").getOrCreate()
    context = spark.sparkContext
    context.setLogLevel("WARN")
    code = context.getConf().get(CODE_SETTING)
    if code and not any(file.endswith(Path(code).name) for file in context.listFiles):
        context.addPyFile(code)
    return spark
