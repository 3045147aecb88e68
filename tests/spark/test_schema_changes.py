"""Spark reads a table whose columns changed as deltalake does, and folds across the change. S5."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from support.pipelines import judge_all, make_pipeline, put, with_log_shape
from tidefold.compute.runners import on_spark
from tidefold.domain.log_state import Column
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.domain.table.schema_evolution import Policies, Policy
from tidefold.operations.ground.schema_update import apply_configured_schema
from tidefold.operations.quality.judge import judge
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.quality.run.spark_rows import SparkEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.rotates(4, whole=True)

ID = Column("id", "int")
COLUMNS = [
    (ID, Column("n", "int")),
    (ID, Column("n", "int"), Column("more", "string")),
    (ID, Column("m", "decimal(12,2)", aliases=("n",)), Column("more", "string")),
    (ID, Column("m", "string"), Column("flag", "boolean", default="true")),
]


def test_spark_reads_every_version_as_deltalake_does(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path)
    uri = pipeline.store.uri(LogPaths("accounts").table)
    for number, columns in enumerate(COLUMNS):
        pipeline = with_log_shape(pipeline, columns=columns, policies=Policies(*[Policy.EVOLVE] * 6))
        ledger = pipeline.ledger("accounts")
        ledger.begin(pipeline.log("accounts").shape)
        apply_configured_schema(pipeline, ledger.read())
        name = columns[1].name
        put(pipeline, [{"id": i, name: str(i) if columns[1].type == "string" else i} for i in _ids(number)])
        [outcome] = materialize(
            pipeline, ["accounts"], Fold(f"r{number}", kind=KindPolicy.INCREMENTAL), on_spark(spark)
        )
        assert outcome.status == "staged", outcome
        if number == 1:
            # The gate reads files that lack the new column.
            assert judge(pipeline, ["accounts"], None, SparkEngine(spark))[0].status == "passed"
        else:
            judge_all(pipeline)
        confirm(pipeline, "accounts")
    for version in range(len(COLUMNS)):
        table = DeltaTable(uri, version=version)
        expected = sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: row["id"])
        found = spark.read.format("delta").option("versionAsOf", version).load(uri).orderBy("id")
        assert [row.asDict() for row in found.collect()] == expected
        assert len(expected) == len({i for number in range(version + 1) for i in _ids(number)})
        value = COLUMNS[version][1].name
        assert all(row[value] is not None for row in expected)


def _ids(number: int) -> list[int]:
    return list(range(40)) if number == 0 else [3, 100 + number]
