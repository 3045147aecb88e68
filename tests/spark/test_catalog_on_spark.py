"""Published tables in Spark's own catalog: a Hive metastore on Derby, which pyspark's jars contain, and delta-spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidefold.config import load_config
from tidefold.errors import RefusedError
from tidefold.installation import find_python_path
from tidefold.spark.submit import job_env, spark_conf
from tidefold.spark.table_catalog import SparkCatalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = """\
version: 1
store: store
catalog:
  database: sales
  settings:
    spark.sql.catalogImplementation: hive
    spark.sql.warehouse.dir: {folder}/warehouse
    spark.hadoop.javax.jdo.option.ConnectionURL: "jdbc:derby:;databaseName={folder}/metastore;create=true"
logs:
  orders:
    source: {{format: json, path: landing, record: value}}
    key: [id]
    comment: "What customers ordered"
    columns:
      id: {{type: long, comment: "Number of the order"}}
      amount: long
    change_feed: true
"""
# What an analyst does: a session with the same metastore, and the table by its name.
LOOK = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]")
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
columns = spark.sql("DESCRIBE sales.orders").collect()
described = spark.sql("DESCRIBE EXTENDED sales.orders").collect()
print(json.dumps({
    "rows": sorted(tuple(row) for row in spark.sql("SELECT id, amount FROM sales.orders").collect()),
    "comments": {row.col_name: row.comment for row in columns},
    "properties": {row.key: row.value for row in spark.sql("SHOW TBLPROPERTIES sales.orders").collect()},
    "comment": [row.data_type for row in described if row.col_name == "Comment"],
    "changes": sorted(
        (row.id, row._change_type)
        for row in spark.sql("SELECT * FROM table_changes('sales.orders', 1, 1)").collect()
    ),
    "versions": spark.sql("DESCRIBE HISTORY sales.orders").count(),
}))
spark.stop()
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TIDEFOLD_SPARK_C1": "1", "PYTHONPATH": find_python_path()}
    call = [sys.executable, "-m", "tidefold.cli", *words]
    return subprocess.run(call, cwd=folder, env=env, capture_output=True, text=True, check=False)


def look(folder: Path) -> dict[str, Any]:
    config = load_config(folder / "tidefold.yaml")
    call = [sys.executable, "-c", LOOK, json.dumps(spark_conf(config, "register"))]
    done = subprocess.run(
        call, cwd=folder, env={**os.environ, **job_env(config)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def land(folder: Path, name: str, *rows: dict[str, Any]) -> None:
    (folder / "landing").mkdir(exist_ok=True)
    (folder / "landing" / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_a_run_registers_a_table_that_people_find_by_name(tmp_path: Path) -> None:
    (tmp_path / "tidefold.yaml").write_text(CONFIG.format(folder=tmp_path))
    land(tmp_path, "orders+0+0000000000.jsonl", {"id": 1, "amount": 10}, {"id": 2, "amount": 20})
    first = run(tmp_path, "run")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "orders: registered: `spark_catalog.sales.orders` is the table at" in first.stdout + first.stderr
    land(tmp_path, "orders+0+0000000002.jsonl", {"id": 2, "amount": 25})
    second = run(tmp_path, "run")
    assert second.returncode == 0, second.stdout + second.stderr
    assert "Spark" not in second.stderr
    found = look(tmp_path)
    assert found["rows"] == [[1, 10], [2, 25]]
    assert found["comments"] == {"id": "Number of the order", "amount": None}
    assert found["comment"] == ["What customers ordered"]
    properties = found["properties"]
    assert (properties["tidefold.snapshot"], properties["tidefold.verdict"]) == ("2", "passed")
    assert found["changes"] == [[2, "update_postimage"], [2, "update_preimage"]]
    # The registration made no commit of its own.
    assert found["versions"] == 2
    again = run(tmp_path, "register")
    assert "orders: already: `spark_catalog.sales.orders` was registered before" in again.stdout
    other = (tmp_path / "tidefold.yaml").read_text().replace("store: store", "store: other")
    (tmp_path / "tidefold.yaml").write_text(other)
    taken = run(tmp_path, "run")
    assert taken.returncode == 0
    assert "[CATALOG_NAME_TAKEN]" in taken.stdout + taken.stderr
    assert run(tmp_path, "register").returncode == 3


def test_a_catalog_that_ends_with_the_session_is_refused(spark: SparkSession) -> None:
    with pytest.raises(RefusedError, match="CATALOG_IN_MEMORY"):
        SparkCatalog(spark, "spark_catalog").register("sales", "orders", "/tmp/orders")
