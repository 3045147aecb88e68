"""Comments of a table and of its columns are in its Delta log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from support.pipelines import CONFIG, judge_all, make_pipeline, put, table_rows
from tidefold.compute.runners import in_process
from tidefold.delta.published_table import delta_state
from tidefold.domain.paths import LogPaths
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.operations.verify.verify import VerifyRequest, verify

DESCRIBED = CONFIG.replace(
    "    columns: {id: int, text: string}\n",
    "    comment: Accounts of the bank\n    columns: {id: {type: int, comment: Number of the account}, text: string}\n",
    1,
)


def publish(pipeline: Pipeline, run: str, changes: list[dict[str, Any]]) -> Outcome:
    put(pipeline, changes)
    materialize(pipeline, ["accounts"], Fold(run), in_process)
    judge_all(pipeline)
    return confirm(pipeline, "accounts")


def table(pipeline: Pipeline) -> DeltaTable:
    return DeltaTable(pipeline.store.uri(LogPaths("accounts").table))


def test_comments_are_in_the_table(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path, DESCRIBED)
    publish(pipeline, "run-1", [{"id": 1, "text": "a"}])
    publish(pipeline, "run-2", [{"id": 2, "text": "b"}])
    assert table(pipeline).metadata().description == "Accounts of the bank"
    assert [one.metadata for one in table(pipeline).schema().fields] == [{"comment": "Number of the account"}, {}]
    assert verify(pipeline, "accounts", VerifyRequest()).status == "whole"


def test_a_comment_is_no_change_of_the_table_and_a_foreign_one_stays(tmp_path: Path) -> None:
    pipeline = make_pipeline(tmp_path)
    publish(pipeline, "run-1", [{"id": 1, "text": "a"}])
    before = delta_state(pipeline.store, LogPaths("accounts").table)
    table(pipeline).alter.set_table_description("Set by hand")
    described = make_pipeline(tmp_path, DESCRIBED.replace("    comment: Accounts of the bank\n", ""))
    publish(described, "run-2", [{"id": 1, "text": "b"}])
    after = delta_state(described.store, LogPaths("accounts").table)
    assert before
    assert after
    assert before.schema == after.schema
    assert table(described).metadata().description == "Set by hand"
    assert table(described).schema().fields[0].metadata == {"comment": "Number of the account"}
    assert table_rows(described) == {1: "b"}
