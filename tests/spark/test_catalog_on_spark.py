"""Published tables in Spark's own catalog: a Hive metastore on Derby, and delta-spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from tidefold.cli.app import app
from tidefold.errors import RefusedError
from tidefold.operations.catalog.register import register
from tidefold.spark.table_catalog import SparkCatalog
from tidefold.wiring import open_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.rotates(2, whole=True)

CONFIG = """\
version: 1
store: {store}
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


def configure(folder: Path, store: str, catalog: str) -> Path:
    path = folder / "tidefold.yaml"
    path.write_text(CONFIG.format(store=store) + catalog)
    return path


def call(verb: str, config: Path) -> str:
    done = CliRunner().invoke(app, [verb, "-c", str(config)], prog_name="tidefold")
    assert done.exit_code == 0, done.output
    return done.output


def land(folder: Path, name: str, *rows: dict[str, Any]) -> None:
    (folder / "landing").mkdir(exist_ok=True)
    (folder / "landing" / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_a_catalog_that_ends_with_the_session_is_refused(spark: SparkSession) -> None:
    with pytest.raises(RefusedError, match="CATALOG_IN_MEMORY"):
        SparkCatalog(spark, "spark_catalog").register("sales", "orders", "/tmp/orders")


@pytest.fixture
def registered(tmp_path: Path, metastore: str) -> Path:
    """The configuration of a table that a run has published and registered, and another run has changed."""
    config = configure(tmp_path, "store", metastore)
    land(tmp_path, "orders+0+0000000000.jsonl", {"id": 1, "amount": 10}, {"id": 2, "amount": 20})
    assert "orders: registered: `spark_catalog.sales.orders` is the table at" in call("run", config)
    land(tmp_path, "orders+0+0000000002.jsonl", {"id": 2, "amount": 25})
    assert "Spark" not in call("run", config)
    assert "orders: already: `spark_catalog.sales.orders` was registered before" in call("register", config)
    return config


def test_people_find_a_registered_table_by_name(registered: Path, metastore: str, analyst: SparkSession) -> None:
    """The run that registered it ended; another session has the same metastore."""
    rows = analyst.sql("SELECT id, amount FROM sales.orders").collect()
    assert sorted(tuple(row) for row in rows) == [(1, 10), (2, 25)]
    columns = analyst.sql("DESCRIBE sales.orders").collect()
    assert {row.col_name: row.comment for row in columns} == {"id": "Number of the order", "amount": None}
    described = analyst.sql("DESCRIBE EXTENDED sales.orders").collect()
    assert [row.data_type for row in described if row.col_name == "Comment"] == ["What customers ordered"]
    properties = {row.key: row.value for row in analyst.sql("SHOW TBLPROPERTIES sales.orders").collect()}
    assert (properties["tidefold.snapshot"], properties["tidefold.verdict"]) == ("2", "passed")
    changes = analyst.sql("SELECT * FROM table_changes('sales.orders', 1, 1)").collect()
    assert sorted((row.id, row._change_type) for row in changes) == [(2, "update_postimage"), (2, "update_preimage")]
    # The registration made no commit of its own.
    assert analyst.sql("DESCRIBE HISTORY sales.orders").count() == 2

    catalog = SparkCatalog(analyst, "spark_catalog")
    [again] = register(open_pipeline(registered), ["orders"], catalog)
    assert again.status == "already", again
    # The table of another store has the same name.
    call("run", configure(registered.parent, "other", ""))
    [taken] = register(open_pipeline(configure(registered.parent, "other", metastore)), ["orders"], catalog)
    assert taken.error
    assert (taken.error_code, taken.error.exit_code) == ("CATALOG_NAME_TAKEN", 3)
