"""The Spark session that all jobs use; its settings come from `submit.spark_conf` by spark-submit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tidefold.compute.connect_session import find_connected, mark_operations, name_pool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The archive of this package that executors get. `spark.submit.pyFiles` would make this driver import from it, too.
CODE_SETTING = "spark.tidefold.code"
_DESCRIPTION = "spark.job.description"
# Of a step with more logs the first ones are named.
_NAMED = 100


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


def name_jobs(spark: SparkSession, step: str, logs: Sequence[str]) -> None:
    """Names the step and its logs in the jobs that this thread starts: Spark's pages and event log show both."""
    tag_jobs(spark, step, logs)
    if spark == find_connected():
        # They hold for the session. Threads that judge one log each are told apart by their tags.
        spark.conf.set(_DESCRIPTION, _describe(step, logs))
        spark.conf.set("spark.scheduler.pool", name_pool(step, logs))


def tag_jobs(spark: SparkSession, step: str, logs: Sequence[str]) -> None:
    """Gives the jobs that this thread starts a tag for each log, of the step and the log."""
    tags = [f"tidefold {step} {log}" for log in logs[:_NAMED]]
    if spark == find_connected():
        spark.clearTags()
        mark_operations(*tags)
        return
    context = spark.sparkContext
    context.setJobDescription(_describe(step, logs))
    context.clearJobTags()
    for tag in tags:
        context.addJobTag(tag)


def _describe(step: str, logs: Sequence[str]) -> str:
    more = f" and {len(logs) - _NAMED} more" if len(logs) > _NAMED else ""
    return f"tidefold {step}: {', '.join(logs[:_NAMED])}{more}"
