"""The comparison of readers with a reader that needs no JVM: what counts as a difference, and what does not.

Spark itself is in tests/spark/test_readers_check.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from support.pipelines import judge_all, make_pipeline, put
from tidefold.compute.runners import in_process
from tidefold.domain.paths import LogPaths
from tidefold.operations.outcome import Outcome, Status
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.snapshot.request import Fold
from tidefold.operations.verify.check_readers import check_readers
from tidefold.operations.verify.result import add_readers
from tidefold.operations.verify.verify import verify
from tidefold.read.content_checksum import compute_checksum
from tidefold.read.delta_reader import DeltaContent, parse_columns
from tidefold.spark.dispatch import run_without_spark
from tidefold.spark.steps import VerifyStep

TABLE = LogPaths("accounts").table


class PlainReader:
    """Reads with deltalake; `before` runs just before the first read."""

    def __init__(self, pipeline: Pipeline | None = None) -> None:
        self.publishes = pipeline

    def read(self, uri: str) -> DeltaContent:
        if self.publishes:
            pipeline, self.publishes = self.publishes, None
            publish(pipeline, "meanwhile", 3)
        table = DeltaTable(uri)
        rows = table.to_pyarrow_table()
        return DeltaContent(
            parse_columns(table.schema().to_json()), compute_checksum(rows.to_batches(), rows.num_columns)
        )


def publish(pipeline: Pipeline, run: str, key: int) -> None:
    put(pipeline, [{"id": key, "text": run}])
    materialize(pipeline, ["accounts"], Fold(run), in_process)
    judge_all(pipeline)
    confirm(pipeline, "accounts")


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    made = make_pipeline(tmp_path)
    put(made, [{"id": i, "text": f"a {i}"} for i in range(50)])
    publish(made, "run-1", 1)
    publish(made, "run-2", 2)
    return made


def check(pipeline: Pipeline, reader: PlainReader | None = None) -> Outcome:
    [outcome] = check_readers(pipeline, ["accounts"], reader or PlainReader())
    return outcome


def test_a_healthy_table_passes_and_a_publication_meanwhile_is_no_difference(pipeline: Pipeline) -> None:
    found = check(pipeline)
    assert (found.status, found.snapshot, found.facts["readers"]["rows"]) == (Status.WHOLE, 2, 50)
    assert check(pipeline, PlainReader(pipeline)).snapshot == 3


def test_other_rows_and_other_columns_are_found_and_the_files_are_not_blamed(pipeline: Pipeline) -> None:
    DeltaTable(pipeline.store.uri(TABLE)).update(updates={"text": "'x'"}, predicate="id = 7")
    found = check(pipeline)
    assert (found.status, found.error_code) == (Status.DAMAGED, "READERS_DIFFER")
    assert found.facts["readers"]["columns"] == ("text",)
    joined = add_readers(verify(pipeline, "accounts"), found)
    assert (joined.status, joined.error_code) == (Status.DAMAGED, "DAMAGED")
    assert joined.facts["readers"]["columns"] == ("text",)
    DeltaTable(pipeline.store.uri(TABLE)).alter.add_columns([Field("extra", PrimitiveType("long"))])
    assert "foreign: " in check(pipeline).message


def test_what_readers_get_decides_where_all_files_are_whole(pipeline: Pipeline) -> None:
    whole = verify(pipeline, "accounts")
    assert whole.status is Status.WHOLE
    healthy = check(pipeline)
    assert add_readers(whole, healthy).error is None
    DeltaTable(pipeline.store.uri(TABLE)).delete("id = 7")
    joined = add_readers(whole, check(pipeline))
    assert (joined.status, joined.error_code) == (Status.DAMAGED, "READERS_DIFFER")
    nothing = Outcome("accounts", Status.NOTHING, "")
    assert add_readers(whole, nothing) == whole


def test_without_spark_the_step_does_only_what_needs_none(pipeline: Pipeline) -> None:
    """Also where little is to be read: only Spark shows what readers on Spark get."""
    spark = pipeline.config.spark.model_copy(update={"above": "1GB"})
    small = replace(pipeline, config=pipeline.config.model_copy(update={"spark": spark}))
    found = run_without_spark(small, VerifyStep(), ["accounts", "tellers"])
    assert found.spark == ("accounts",)
    assert [(o.log, o.status) for o in found.done] == [("tellers", Status.NOTHING)]
    [outcome] = check_readers(pipeline, ["accounts"], None)
    assert outcome.error_code == "SPARK_NEEDED"
