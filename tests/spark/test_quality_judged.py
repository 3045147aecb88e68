"""What a judgement compares with, over real snapshots: stored numbers, other logs, frozen instants; and audits.

Promises I4, I8, I24.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from support.planning import heavy
from support.staging import ROWS, complete, judge_one, stage
from tidefold.domain.log_state import State
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.quality.judge import audit
from tidefold.quality.run.spark_rows import SparkEngine
from tidefold.spark.steps import AuditStep
from tidefold.wiring import Pipeline, open_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = """\
version: 1
store: store
logs:
  accounts:
    source: {format: debezium-json, connector: postgresql, path: landing/accounts}
    key: [aid]
    columns: {aid: int, bid: int, filler: string}
    quality: {suite: accounts.yaml}
  branches:
    source: {format: debezium-json, connector: postgresql, path: landing/branches}
    key: [aid]
    columns: {aid: int, bid: int, filler: string}
"""
DRIFT: list[dict[str, Any]] = [
    {"sum_drift": {"column": "bid", "max_growth": 0.1}},
    {"distribution": {"column": "bid", "max_shift": 0.1}},
    {"row_count_drift": {"max_drop": 0.1, "max_growth": 0.1}},
]
REFERENCE = {"references": {"column": "bid", "to": "branches.aid"}}


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    (tmp_path / "tidefold.yaml").write_text(CONFIG)
    give(tmp_path, [])
    return open_pipeline(tmp_path / "tidefold.yaml")


def give(folder: Path, checks: list[dict[str, Any]]) -> None:
    (folder / "accounts.yaml").write_text(yaml.safe_dump({"checks": checks}))


def judgement(outcome: Outcome) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(Path(outcome.facts["verdict"]).read_text())["judgement"]
    return stored


def test_numbers_of_the_base_are_stored_and_its_rows_are_not_read_again(
    pipeline: Pipeline, spark: SparkSession, tmp_path: Path
) -> None:
    give(tmp_path, DRIFT)
    complete(pipeline, spark, ROWS)
    for file in (tmp_path / "store" / "snapshots").glob("**/*.parquet"):
        file.unlink()
    stage(pipeline, [(i, 2, "same") for i in range(120)], run="run-2")
    outcome = judge_one(pipeline, spark)
    assert outcome.message == (
        "snapshot 2 failed: 3 of 7 checks failed: sum of bid (+142.4%, allowed +10.0%); distribution of bid (67.0% of "
        "the rows moved, allowed 10.0%); row count drift (+20.0%, allowed +10.0%)"
    )
    judged = judgement(outcome)
    assert [c["compared"] for c in judged["checks"][4:]] == ["snapshot 1"] * 3
    assert [c["column"] for c in judged["statistics"]] == ["bid"]
    assert [(p["snapshot"], p["rows"], p["sums"]) for p in judged["history"]] == [(1, 100, [["bid", "99"]])]
    assert [p["name"] for p in judged["cost"]] == ["expectations", "numbers"]
    assert 0 < outcome.facts["jobs"] < 10


def test_a_suite_that_asks_for_more_than_was_stored_reads_the_base(
    pipeline: Pipeline, spark: SparkSession, tmp_path: Path
) -> None:
    complete(pipeline, spark, ROWS)
    stage(pipeline, ROWS, run="run-2")
    give(tmp_path, DRIFT)
    outcome = judge_one(pipeline, spark)
    assert outcome.status == "passed"
    assert [p["name"] for p in judgement(outcome)["cost"]] == ["expectations", "numbers", "numbers of snapshot 1"]
    give(tmp_path, [{"mean_drift": {"column": "aid", "max_drop": 0}}])
    for file in (tmp_path / "store" / "snapshots").glob("**/0000000001/**/*.parquet"):
        file.unlink()
    assert judge_one(pipeline, spark).error_code == "STAGED_ROWS_UNREADABLE"


def test_references_look_in_the_newest_completed_snapshot_and_name_it(
    pipeline: Pipeline, spark: SparkSession, tmp_path: Path
) -> None:
    give(tmp_path, [REFERENCE])
    stage(pipeline, ROWS, run="run-1")
    assert "`branches` has no completed snapshot" in judge_one(pipeline, spark).message
    complete(pipeline, spark, [(0, 0, ""), (1, 0, "")], "branches")
    stage(pipeline, [(0, 0, ""), (1, 0, ""), (2, 0, "")], "branches", "run-1")
    give(tmp_path, [{**REFERENCE, "name": "known branch"}])
    failed = judge_one(pipeline, spark)
    assert failed.message.endswith("failed: known branch (33 rows with 1 missing value)")
    [check] = judgement(failed)["checks"][3:]
    assert (check["compared"], set(check["sample"]), len(check["keys"])) == ("branches snapshot 1", {"2"}, 10)
    # The same run staged the missing branch: that counts only where it is asked for.
    give(tmp_path, [{"references": {**REFERENCE["references"], "staged": True}}])
    passed = judge_one(pipeline, spark)
    assert (passed.status, judgement(passed)["checks"][-1]["compared"]) == ("passed", "branches snapshot 2 (staged)")


def test_a_warning_warns_and_shows_the_keys_of_its_rows(
    pipeline: Pipeline, spark: SparkSession, tmp_path: Path
) -> None:
    give(tmp_path, [{"range": {"column": "bid", "max": 1}, "severity": "warn", "name": "few branches"}])
    stage(pipeline, ROWS)
    outcome = judge_one(pipeline, spark)
    assert outcome.message == "snapshot 1 passed: 3 checks passed; 1 warning: few branches (33 unexpected values)"
    check = judgement(outcome)["checks"][-1]
    assert len(check["keys"]) == 10
    assert all(int(key.removeprefix("aid=")) % 3 == 2 for key in check["keys"])


def test_an_audit_judges_again_and_changes_nothing_but_its_own_report(
    pipeline: Pipeline, spark: SparkSession, tmp_path: Path
) -> None:
    """A failed audit is no error: its result says so, and every stored byte of before stays as it was."""
    assert [o.status for o in audit(pipeline, ["accounts"], None, None)] == ["nothing"]
    complete(pipeline, spark, ROWS)
    give(tmp_path, [{"range": {"column": "bid", "max": 1}}])
    before = {e.path: pipeline.store.read(e.path) for e in pipeline.store.list("")}
    assert heavy(pipeline, ["accounts", "branches"], AuditStep("daily/1")) == ["accounts"]
    [first] = audit(pipeline, ["accounts"], "daily/1", SparkEngine(spark))
    assert first.message == "audit of snapshot 1 failed: 1 of 4 checks failed: bid at most 1 (33 unexpected values)"
    assert (first.status, first.error_code, first.facts["audit"]) == ("failed", None, True)
    after = {e.path: pipeline.store.read(e.path) for e in pipeline.store.list("")}
    assert {path: after[path] for path in before} == before
    assert sorted(Path(p).suffix for p in after.keys() - before.keys()) == [".html", ".json"]
    assert pipeline.ledger("accounts").read().snapshots[-1].state is State.COMPLETED
    # A retry of the run answers the same without Spark; the next run looks again.
    assert heavy(pipeline, ["accounts"], AuditStep("daily/1")) == []
    assert audit(pipeline, ["accounts"], "daily/1", None) == [first]
    assert heavy(pipeline, ["accounts"], AuditStep("daily/2")) == ["accounts"]
    assert judgement(first)["history"][0]["failed"] == 0


def test_ages_are_counted_to_the_claim_however_late_it_is_judged(pipeline: Pipeline, spark: SparkSession) -> None:
    """I24: a clock at the time of judging decides nothing; the instant stands in the judgement."""
    snapshot = stage(pipeline, ROWS)
    assert snapshot.started_at.startswith("2026-01-01")
    assert judgement(judge_one(pipeline, spark))["as_of"] == snapshot.started_at
