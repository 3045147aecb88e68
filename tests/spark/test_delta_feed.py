"""Tables that Spark writes: our reading of their change feed against Spark's own, without and with deletion vectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.delta_tables import fed_pipeline
from support.landing import changes_of, state_of, take
from support.spark_jvm import SparkJvm
from tidefold.sources.delta.log import DeltaLog, open_source
from tidefold.sources.delta.rows import CHANGE, read_changes
from tidefold.sources.delta.source_version import read_version
from tidefold.wiring import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.rotates(6, whole=True)

COLUMNS = '{id: int, text: string, amount: "decimal(12,2)", at: timestamp, day: date, tags: "array<string>"}'
TYPES = "id INT, text STRING, amount DECIMAL(12,2), at TIMESTAMP, day DATE, tags ARRAY<STRING>"
ROWS = "cast(id AS DECIMAL(12,2)), timestamp'2024-01-01 00:00:00.123456', date'2024-01-01', array('a', null)"
STEPS = [
    "INSERT INTO {t} SELECT cast(id AS INT), concat('t', id), {rows} FROM range(20)",
    "UPDATE {t} SET text = 'new' WHERE id = 3",
    "DELETE FROM {t} WHERE id = 4",
    "MERGE INTO {t} t USING (SELECT 5 AS id UNION ALL SELECT 50) s ON t.id = s.id "
    "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, text) VALUES (s.id, 'merged')",
    "UPDATE {t} SET id = id + 100 WHERE id IN (7, 8)",
    "OPTIMIZE {t}",
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    "DELETE FROM {t} WHERE id = 6",
    "UPDATE {t} SET text = 'newer' WHERE id IN (10, 12)",
    # A second vector of one file, and the first of a file that an update wrote.
    "DELETE FROM {t} WHERE id IN (9, 12)",
    "MERGE INTO {t} t USING (SELECT 11 AS id UNION ALL SELECT 51) s ON t.id = s.id "
    "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, text) VALUES (s.id, 'merged')",
    "OPTIMIZE {t}",
    "INSERT INTO {t} SELECT cast(id + 60 AS INT), concat('u', id), {rows} FROM range(3)",
    "DELETE FROM {t} WHERE day = '2024-01-01' AND id > 10 AND id < 18",
    # Its files have vectors.
    "RESTORE TABLE {t} TO VERSION AS OF 11",
    "DELETE FROM {t} WHERE id < 3",
    "INSERT OVERWRITE {t} SELECT 200, 'over', {rows} FROM (SELECT 1 AS id)",
]
# The first version that may have deletion vectors.
VECTORS = 8


@pytest.fixture(scope="module")
def table(spark_jvm: SparkJvm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the table `table`."""
    spark, root = spark_jvm.open_session(), tmp_path_factory.mktemp("feed")
    name = f"delta.`{root / 'table'}`"
    # Vectors, which were not there from the first, are switched on in the middle.
    properties = "'delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'false'"
    spark.sql(f"CREATE TABLE {name} ({TYPES}) USING delta TBLPROPERTIES ({properties})")
    for step in STEPS:
        spark.sql(step.format(t=name, rows=ROWS))
    return root


def sparks(spark: SparkSession, root: Path) -> list[tuple[Any, ...]]:
    """What Spark's change feed says: version, kind and row of each change."""
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    rows = feed.load(str(root / "table")).select("_commit_version", "_change_type", "id", "text").collect()
    return sorted(tuple(row) for row in rows)


def test_each_version_has_the_changes_that_spark_sees(spark: SparkSession, table: Path) -> None:
    log = DeltaLog(open_source(str(table / "table")))
    commits = [log.read_commit(version) for version in range(len(STEPS) + 1)]
    marked = [any(a.deletion_vector for a in (*one.added, *one.removed)) and not one.changes for one in commits]
    assert not any(marked[:VECTORS])
    assert sum(marked) > 4
    ours = [
        (commit.version, row[CHANGE], row["id"], row["text"])
        for commit in commits
        for row in read_changes(log, commit, read_version(log, commit.version)).to_pylist()
    ]
    assert sorted(ours) == sparks(spark, table)


@pytest.mark.parametrize("options", ["", ", from_version: 0"])
def test_the_changes_make_the_table(options: str, spark: SparkSession, table: Path, tmp_path: Path) -> None:
    """From the first version on, or from the rows that the table has."""
    pipeline = fed_pipeline(tmp_path, options, COLUMNS, str(table / "table"))
    take(pipeline)
    rows = spark.read.format("delta").load(str(table / "table")).collect()
    expected = {row["id"]: (row["text"], row["amount"], row["day"], row["tags"]) for row in rows}
    assert folded(pipeline) == expected
    assert state_of(pipeline).positions[0].next_offset == len(STEPS) + 1


def folded(pipeline: Pipeline) -> dict[int, tuple[Any, ...]]:
    """The rows by the definition: changes one after the other, by their order."""
    rows: dict[int, tuple[Any, ...]] = {}
    for row in sorted(changes_of(pipeline), key=lambda r: (r["_o0"], r["_o1"])):
        rows.pop(row["id"], None)
        if row["_op"] == 0:
            rows[row["id"]] = (row["text"], row["amount"], row["day"], row["tags"])
    return rows
