"""A peer's side of the talk: it runs under the peer's own Python, and knows nothing but pyspark, if the peer has it.

One request a line comes in as JSON, one answer a line goes out.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LAST = "row_number() OVER (PARTITION BY id ORDER BY _o0 DESC) AS nth"


def serve(prepare: Callable[[dict[str, str]], Mapping[str, Callable[..., None]]]) -> None:
    """Serves requests until its input ends. `prepare` starts the session and returns its actions."""
    answers = os.fdopen(os.dup(1), "w")
    # What the JVM prints must not be mixed with the answers.
    os.dup2(2, 1)
    actions = prepare(json.loads(sys.argv[1]))
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        try:
            actions[request.pop("do")](**request)
            answer = {}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:500]}
        print(json.dumps(answer), file=answers, flush=True)


def session(told: Mapping[str, str], conf: Mapping[str, str]) -> SparkSession:
    """On two threads, with the same heap and codec as all others."""
    from pyspark.sql import SparkSession

    common = {
        "spark.jars": told["jar"],
        "spark.driver.memory": told["heap"],
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": told["scratch"],
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={told['scratch']}",
        "spark.sql.warehouse.dir": told["scratch"] + "/warehouse",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for key, value in {**common, **conf}.items():
        builder = builder.config(key, value)
    started = builder.getOrCreate()
    started.sparkContext.setLogLevel("ERROR")
    return started


def latest(spark: SparkSession, changes: str) -> DataFrame:
    """The last change of each key."""
    return spark.read.parquet(changes).selectExpr("*", _LAST).where("nth = 1").drop("nth", "_o0")


def read_all(rows: DataFrame) -> None:
    """Every column of every row, for nobody."""
    rows.write.format("noop").mode("overwrite").save()
