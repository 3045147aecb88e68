"""Tables that Spark writes with the features of Delta: each version as Spark reads it, and `init` on the newest one.

`make test-delta` has all tables, and reads them by ingests, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.source_tables import CASES, REPLACED
from support.source_versions import (
    Rows,
    compare_version,
    open_log,
    read_newest,
    read_versions,
    small_tables,
    write_rows,
)
from support.spark_jvm import SparkJvm
from tidefold.sources.delta.sample import sample_table

SHORT = [name for name, case in CASES.items() if case.is_short]


@pytest.mark.rotates(2 * len(SHORT))
@pytest.mark.parametrize("name", SHORT)
def test_each_version_is_what_spark_reads(name: str, spark_jvm: SparkJvm, tmp_path: Path) -> None:
    case, folder, rows, kinds = CASES[name], tmp_path / "table", Rows(), set[str]()
    expected: dict[int, list[dict[str, Any]]] = {}
    with small_tables(spark_jvm.open_session()) as spark:
        for step in case.list_steps():
            spark.sql(step.replace("{t}", f"delta.`{folder}`"))
            expected |= read_versions(spark, folder, max(expected, default=-1))
    log = open_log(folder)
    for version, of_spark in expected.items():
        rows, found = compare_version(log, version, of_spark, rows)
        kinds |= found
    assert {"insert", "delete"} <= kinds
    sample = sample_table(str(folder), 1000)
    assert write_rows(sample.rows.to_pylist()) == rows
    assert sample.rows.schema.names == read_newest(log).schema.names
    assert not sample.unfit
    assert sample.is_replaced == (case.refused.get("steps") == REPLACED)
