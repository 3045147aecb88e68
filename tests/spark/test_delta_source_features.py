"""Tables that Spark writes with the features of Delta: each version as Spark reads it, and `init` on the newest one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from support.spark_jvm import SparkJvm
from tidefold.sources.delta.log import DeltaLog, open_source
from tidefold.sources.delta.rows import AFTER, CHANGE, INSERT, Version, read_changes, snapshot_rows
from tidefold.sources.delta.sample import sample_table
from tidefold.sources.delta.source_version import read_files, read_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = "id INT, a INT, f FLOAT, d DECIMAL(9,2), text STRING, part STRING"
FEED = "'delta.enableChangeDataFeed' = 'true'"
NAMES = "'delta.columnMapping.mode' = 'name'"
IDS = "'delta.columnMapping.mode' = 'id'"
VECTORS = "'delta.enableDeletionVectors' = 'true'"
WIDE = "'delta.enableTypeWidening' = 'true'"
ROWS = "cast({0} + id AS INT), cast(id AS INT), cast(id / 2 AS FLOAT), cast(id AS DECIMAL(9,2)), concat('t', id)"
FILL = "INSERT INTO {t} SELECT " + ROWS.format(0) + ", concat('p ', id % 2) FROM range(12)"
MORE = "INSERT INTO {t} BY NAME SELECT cast(100 + id AS INT) AS id FROM range(5)"
WORK = [
    FILL,
    "UPDATE {t} SET {text} = 'new' WHERE id IN (3, 5)",
    "DELETE FROM {t} WHERE id IN (4, 7)",
    "UPDATE {t} SET id = id + 50 WHERE id = 8",
    MORE,
    "DELETE FROM {t} WHERE id IN (9, 102)",
]
MAP = f"ALTER TABLE {{t}} SET TBLPROPERTIES ('delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5', {NAMES})"
UNMAP = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')"
REPLACE = f"CREATE OR REPLACE TABLE {{t}} USING delta TBLPROPERTIES ({FEED}) AS SELECT 1 AS id"
OFTEN = "'delta.checkpointInterval' = '2'"
RENAME = ["ALTER TABLE {t} RENAME COLUMN text TO `other text`"]
DROP = ["ALTER TABLE {t} DROP COLUMN f", "ALTER TABLE {t} ADD COLUMN f STRING"]
WIDEN = [
    "ALTER TABLE {t} ALTER COLUMN a TYPE BIGINT",
    "ALTER TABLE {t} ALTER COLUMN f TYPE DOUBLE",
    "ALTER TABLE {t} ALTER COLUMN d TYPE DECIMAL(14,4)",
    "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
]
OPTIMIZE = ["OPTIMIZE {t}", "DELETE FROM {t} WHERE id = 0"]
CASES = {
    "plain": ([], "", [*WORK, *OPTIMIZE]),
    "partitions": ([], "part", [*WORK, "UPDATE {t} SET part = null WHERE id = 1"]),
    "vectors": ([VECTORS], "", [*WORK, *OPTIMIZE]),
    "vectors and partitions": ([VECTORS], "part", [*WORK, *OPTIMIZE]),
    "checkpoints of version 2": ([VECTORS, "'delta.checkpointPolicy' = 'v2'", OFTEN], "", WORK),
    "checkpoints": ([OFTEN], "part", WORK),
    "row tracking": (["'delta.enableRowTracking' = 'true'", VECTORS], "", WORK),
    "mapping by name": ([NAMES], "", [*WORK, *RENAME, *WORK, *DROP, "DELETE FROM {t} WHERE id = 1"]),
    "mapping by id": ([IDS, VECTORS], "part", [*WORK, *RENAME, *WORK, *DROP, "DELETE FROM {t} WHERE id = 1"]),
    "mapping later": ([], "", [*WORK, MAP, *RENAME, *WORK, "DELETE FROM {t} WHERE id = 10"]),
    "mapping off again": ([NAMES], "", [*WORK, UNMAP, *WORK]),
    "widening": ([WIDE], "", [*WORK, *WIDEN, *WORK, *OPTIMIZE]),
    "widening, vectors and mapping": ([WIDE, VECTORS, NAMES], "", [*WORK, *WIDEN, *RENAME, *WORK, *OPTIMIZE]),
    "replaced": ([VECTORS], "", [*WORK, REPLACE]),
}


def play(spark: SparkSession, folder: Path, case: str) -> None:
    properties, partition, steps = CASES[case]
    table = f"delta.`{folder}`"
    by = f"PARTITIONED BY ({partition})" if partition else ""
    spark.sql(f"CREATE TABLE {table} ({TYPES}) USING delta {by} TBLPROPERTIES ({', '.join([FEED, *properties])})")
    renamed = False
    for step in steps:
        renamed = renamed or step in RENAME
        spark.sql(step.replace("{text}", "`other text`" if renamed else "text").replace("{t}", table))


def texts(rows: list[dict[str, Any]]) -> Counter[str]:
    """Rows as they compare: Spark and Arrow have one way to write each value of these types."""
    return Counter(str(sorted((name, str(value)) for name, value in row.items())) for row in rows)


@pytest.mark.rotates(14)
@pytest.mark.parametrize("case", CASES)
def test_each_version_is_what_spark_reads(case: str, spark_jvm: SparkJvm, tmp_path: Path) -> None:
    spark = spark_jvm.open_session()
    play(spark, tmp_path / "table", case)
    log = DeltaLog(open_source(str(tmp_path / "table")))
    assert log.newest is not None
    rows: Counter[str] = Counter()
    kinds = set[str]()
    for number in range(log.newest + 1):
        table = read_version(log, number)
        found = texts(snapshot_rows(log.store, table, read_files(log, number)).to_pylist())
        of_spark = spark.read.format("delta").option("versionAsOf", number).load(str(tmp_path / "table"))
        assert found == texts([row.asDict() for row in of_spark.collect()]), number
        # The changes lead from the rows of the version before to those of this one.
        changes = read_changes(Version(log, log.read_commit(number), table)).to_pylist()
        kinds |= {change[CHANGE] for change in changes}
        for change in changes:
            kind = change.pop(CHANGE)
            rows[next(iter(texts([change])))] += 1 if kind in (INSERT, AFTER) else -1
        if log.read_commit(number).actions[-1].meta_data is None and not _changes_columns(log, number):
            assert +rows == found, number
        rows = found
    assert {INSERT, "delete"} <= kinds
    sample = sample_table(str(tmp_path / "table"), 1000)
    assert texts(sample.rows.to_pylist()) == found
    assert sample.rows.schema.names == table.schema.names
    assert not sample.unfit
    assert sample.is_replaced == (case == "replaced")


def _changes_columns(log: DeltaLog, number: int) -> bool:
    """Whether a version changes how rows look: then those of the version before are other texts."""
    return any(action.meta_data for action in log.read_commit(number).actions)


def test_columns_that_no_log_can_have_are_named(spark_jvm: SparkJvm, tmp_path: Path) -> None:
    spark = spark_jvm.open_session()
    spark.sql(
        f"CREATE TABLE delta.`{tmp_path / 'table'}` (id INT, s STRUCT<x: INT>, m MAP<STRING, INT>, "
        f"l ARRAY<STRUCT<x: INT>>, v VARIANT, t TIMESTAMP_NTZ, ok ARRAY<STRING>) USING delta"
    )
    spark.sql(
        f"INSERT INTO delta.`{tmp_path / 'table'}` SELECT 1, named_struct('x', 1), map('a', 1), "
        "array(named_struct('x', 1)), parse_json('1'), timestamp_ntz'2026-01-01 00:00:00', array('a')"
    )
    sample = sample_table(str(tmp_path / "table"), 10)
    assert [name for name, _ in sample.unfit] == ["s", "m", "l", "v"]
    assert sample.rows.schema.field("t").type == pa.timestamp("us")
    assert sample.rows.column("ok").to_pylist() == [["a"]]
