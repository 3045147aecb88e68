"""SQL views on a set in real Spark sessions: they show the pointer's versions while single tables are newer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.bank_sets import ENDS, KEYS, LOGS, SET, config, count_records, land, make_bank, replay, run
from tidefold.installation import find_python_path
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.sets.set_ledger import set_ledger
from tidefold.operations.sets.views import write_views
from tidefold.spark.submit import job_env, spark_conf
from tidefold.wiring import open_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG = """
catalog:
  database: sales
  settings:
    spark.sql.catalogImplementation: hive
    spark.sql.warehouse.dir: {folder}/warehouse
    spark.hadoop.javax.jdo.option.ConnectionURL: "jdbc:derby:;databaseName={folder}/metastore;create=true"
"""
# What an analyst does: a session with the same metastore, the statements, and a query in another session.
LOOK = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]")
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
tables, statements = json.loads(sys.argv[2])
spark.sql("CREATE SCHEMA IF NOT EXISTS sales")
for log, location in tables.items():
    spark.sql(f"CREATE TABLE sales.{log} USING delta LOCATION '{location}'")
for statement in statements:
    spark.sql(statement)
other = spark.newSession()
print(json.dumps({
    log: [row.asDict() for row in other.sql(f"SELECT * FROM sales.bank_{log}").collect()] for log in tables
}))
"""


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """A published set. Then all tables are published once more, each alone, by a configuration without sets."""
    folder = tmp_path_factory.mktemp("views")
    all_records = {name: count_records(name) for name in (*LOGS, ENDS)}
    land(make_bank(folder).config.path.parent, {name: count // 2 for name, count in all_records.items()})
    run(make_bank(folder), "r1")
    land(folder, all_records)
    run(make_bank(folder, config("")), "alone")
    return make_bank(folder, config(SET))


def _expect(bank: Pipeline) -> dict[str, list[dict[str, int]]]:
    version = set_ledger(bank, "bank").read().published
    assert version
    return {log: [rows[key] for key in sorted(rows)] for log, rows in replay().rows[version.position].items()}


def test_views_of_a_session(bank: Pipeline, spark: SparkSession) -> None:
    for statement in write_views(bank, "bank"):
        spark.sql(statement)
    expected = _expect(bank)
    for log in LOGS:
        rows = spark.sql(f"SELECT * FROM bank_{log}").orderBy(KEYS[log]).collect()
        assert [row.asDict() for row in rows] == expected[log]


def test_views_of_a_metastore(bank: Pipeline, tmp_path: Path) -> None:
    path = bank.config.path
    path.write_text(config(SET) + CATALOG.format(folder=tmp_path))
    pipeline = open_pipeline(path)
    settings = spark_conf(pipeline.config, "register")
    tables = {log: pipeline.store.uri(f"tables/{log}") for log in LOGS}
    given = [json.dumps(settings), json.dumps([tables, write_views(pipeline, "bank")])]
    env = {**os.environ, **job_env(pipeline.config), "PYTHONPATH": find_python_path()}
    done = subprocess.run(
        [sys.executable, "-c", LOOK, *given], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert {log: sorted(rows, key=lambda row: row[KEYS[log]]) for log, rows in found.items()} == _expect(pipeline)
