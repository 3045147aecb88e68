"""The usual job, by spark-submit: parse Debezium's JSON, keep the last change of each key, MERGE, judge with Great
Expectations. Its one argument is JSON: `do` (make, run or session), `landed`, `table`, `rows` and `checks`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from pyspark.sql import SparkSession

os.environ["GX_ANALYTICS_ENABLED"] = "false"


def make(spark: SparkSession, asked: dict[str, Any]) -> None:
    """Makes the table, with deletion vectors, in as many files as tidefold has."""
    rows = spark.read.parquet(asked["rows"])
    spark.conf.set("spark.databricks.delta.properties.defaults.enableDeletionVectors", "true")
    rows.repartition(asked["files"], "id").write.format("delta").save(asked["table"])


def run(spark: SparkSession, asked: dict[str, Any]) -> None:
    """One run over the files that landed."""
    merge(spark, asked)
    judge(spark, asked)


def run_session(spark: SparkSession, asked: dict[str, Any]) -> None:
    """One run after the other over the same files, each into a table of its own. Reports the time after each step."""
    for number, table in enumerate(asked["tables"]):
        for step, act in (("begin", None), ("MERGE", merge), ("gate", judge)):
            if act:
                act(spark, {**asked, "table": table})
            with open(asked["report"], "a") as report:
                cpu = sum(os.times()[:2]) + _measure_jvm()
                print(json.dumps({"number": number, "step": step, "time": time.time(), "cpu": cpu}), file=report)


def _measure_jvm() -> float:
    """Returns the CPU seconds of the JVM since its start: of `spark-submit`, it is the parent of this process."""
    with open(f"/proc/{os.getppid()}/stat") as stream:
        user, system = stream.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def merge(spark: SparkSession, asked: dict[str, Any]) -> None:
    """The last change of each key, merged."""
    row = f"STRUCT<{asked['columns']}>"
    source = "STRUCT<sequence: STRING>"
    value = f"STRUCT<before: {row}, after: {row}, source: {source}, op: STRING>"
    parsed = f"from_json(value, 'key STRUCT<id: BIGINT>, value {value}') AS m"
    spark.read.text(asked["landed"]).selectExpr(parsed).selectExpr(
        "m.key.id AS id",
        "m.value.after AS r",
        "m.value.op AS op",
        "CAST(get_json_object(m.value.source.sequence, '$[1]') AS BIGINT) AS lsn",
    ).createOrReplaceTempView("parsed")
    names = [column.split(":")[0].strip() for column in asked["columns"].split(", ")]
    values = ", ".join(f"r.{name} AS {name}" for name in names if name != "id")
    spark.sql(
        f"SELECT id, {values}, op FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY lsn DESC) AS nth"
        " FROM parsed) WHERE nth = 1"
    ).createOrReplaceTempView("latest")
    sets, inserts = ", ".join(f"t.{n} = s.{n}" for n in names), ", ".join(f"s.{n}" for n in names)
    spark.sql(
        f"MERGE INTO delta.`{asked['table']}` t USING latest s ON t.id = s.id"
        f" WHEN MATCHED AND s.op = 'd' THEN DELETE WHEN MATCHED THEN UPDATE SET {sets}"
        f" WHEN NOT MATCHED AND s.op != 'd' THEN INSERT ({', '.join(names)}) VALUES ({inserts})"
    )


def judge(spark: SparkSession, asked: dict[str, Any]) -> None:
    """The same expectations over the whole table, as Great Expectations' documentation shows it."""
    import great_expectations as gx
    from great_expectations.expectations import registry

    context = gx.get_context(mode="ephemeral")
    bars: Any = {"globally": False, "metric_calculations": False}
    context.variables.progress_bars = bars
    kinds = [registry.get_expectation_impl(kind)(**arguments) for kind, arguments in asked["checks"]]
    suite = context.suites.add(gx.ExpectationSuite("suite", expectations=kinds))
    batch = context.data_sources.add_spark("spark").add_dataframe_asset("rows")
    whole = batch.add_batch_definition_whole_dataframe("all")
    validation = gx.ValidationDefinition(name="gate", data=whole, suite=suite)
    rows = spark.read.format("delta").load(asked["table"])
    found = validation.run(batch_parameters={"dataframe": rows})
    if not found.success or len(found.results) != len(asked["checks"]):
        raise SystemExit(f"the suite failed: {found}")


def main() -> None:
    asked = json.loads(sys.argv[1])
    spark = SparkSession.builder.appName("usual").getOrCreate()
    {"make": make, "run": run, "session": run_session}[asked["do"]](spark, asked)
    spark.stop()


if __name__ == "__main__":
    main()
