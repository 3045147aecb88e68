"""The quality gate over real staged tables: Spark reads, Great Expectations judges. Promises I4, I8, I19, I23, I28."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from support.planning import heavy
from support.staging import ROWS, Row, complete, give_suite, judge_one, make_pipeline, stage
from tidefold.domain.log_state import LogState
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot import transitions
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.quality.judge import judge
from tidefold.quality.run import expectations
from tidefold.quality.run.expectations import evaluate
from tidefold.quality.run.spark_rows import SparkEngine, SparkRows
from tidefold.quality.suite.check import Check
from tidefold.spark.steps import QualityStep
from tidefold.wiring import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Two logs with empty suites."""
    return make_pipeline(tmp_path, "store")


def staged_file(pipeline: Pipeline) -> Path:
    [entry] = [e for e in pipeline.store.list("snapshots") if e.path.endswith(".parquet")]
    return Path(pipeline.store.uri(entry.path))


def test_good_rows_pass_and_the_verdict_is_stored_and_bound(pipeline: Pipeline, spark: SparkSession) -> None:
    snapshot = stage(pipeline, ROWS)
    assert heavy(pipeline, ["accounts", "pairs"], QualityStep("run-1")) == ["accounts"]
    outcome = judge_one(pipeline, spark)
    assert (outcome.status, outcome.message) == ("passed", "snapshot 1 passed: 3 checks passed")
    verdict = pipeline.ledger("accounts").read().snapshots[-1].verdict
    assert verdict
    assert verdict.manifest == snapshot.manifest
    stored = json.loads(Path(outcome.facts["verdict"]).read_text())["judgement"]
    assert (stored["passed"], stored["manifest"], stored["suite"]) == (True, snapshot.manifest, verdict.suite)
    assert "3 checks passed" in Path(outcome.facts["report"]).read_text()


def test_logs_are_judged_side_by_side(pipeline: Pipeline, spark: SparkSession) -> None:
    """Each with an expectation that only Spark computes, so that Great Expectations works in two threads."""
    only_spark = {"type": "expect_column_value_lengths_to_be_between", "kwargs": {"column": "filler", "max_value": 6}}
    for log, rows in (("accounts", ROWS), ("pairs", [*ROWS, (7, 1, "far too long")])):
        give_suite(pipeline, only_spark, log=log)
        stage(pipeline, rows, log)
    outcomes = judge(pipeline, ["accounts", "pairs"], None, SparkEngine(spark), 8)
    assert [(o.log, o.status, o.error) for o in outcomes] == [
        ("accounts", "passed", None), ("pairs", "failed", None),
    ]  # fmt: skip


def test_judging_again_changes_nothing_and_needs_no_spark(pipeline: Pipeline, spark: SparkSession) -> None:
    stage(pipeline, ROWS)
    first = judge_one(pipeline, spark)
    before = pipeline.store.list("")
    assert heavy(pipeline, ["accounts"], QualityStep(None)) == []
    assert judge_one(pipeline, None) == first
    assert pipeline.store.list("") == before


def test_a_crash_between_verdict_file_and_ledger_is_healed(pipeline: Pipeline, spark: SparkSession) -> None:
    stage(pipeline, ROWS)
    ledger = Path(pipeline.store.uri(LogPaths("accounts").ledger))
    shutil.copytree(ledger, before := ledger.with_name("before"))
    first = judge_one(pipeline, spark)
    # The crash: ledger and page never came, the verdict file did.
    shutil.rmtree(ledger)
    before.rename(ledger)
    Path(first.facts["report"]).unlink()
    assert heavy(pipeline, ["accounts"], QualityStep(None)) == ["accounts"]
    assert judge_one(pipeline, None) == first
    verdict = pipeline.ledger("accounts").read().snapshots[-1].verdict
    assert verdict
    assert verdict.passed
    assert Path(first.facts["report"]).exists()


@pytest.mark.parametrize(
    ("rows", "summary"),
    [
        ([*ROWS, (7, 1, "again")], "1 of 3 checks failed: aid unique (2 duplicates)"),
        ([*ROWS, (None, 1, "keyless")], "1 of 3 checks failed: aid not null (1 null)"),
    ],
    ids=["duplicate key", "null key"],
)
def test_a_bad_key_fails(pipeline: Pipeline, spark: SparkSession, rows: list[Row], summary: str) -> None:
    stage(pipeline, rows)
    outcome = judge_one(pipeline, spark)
    assert (outcome.status, outcome.message) == ("failed", f"snapshot 1 failed: {summary}")


def test_a_compound_key_is_judged_as_a_whole(pipeline: Pipeline, spark: SparkSession) -> None:
    stage(pipeline, [(1, 1, "a"), (1, 2, "b"), (2, 1, "c")], "pairs")
    assert judge_one(pipeline, spark, "pairs").message == "snapshot 1 passed: 4 checks passed"
    pipeline.ledger("pairs").commit(lambda state: transitions.abort(state, 1, "next"))
    stage(pipeline, [(1, 1, "a"), (1, 1, "b"), (2, None, "c")], "pairs", "run-2")
    message = judge_one(pipeline, spark, "pairs").message
    assert message == "snapshot 2 failed: 2 of 4 checks failed: aid, bid unique (2 duplicates); bid not null (1 null)"


def test_fewer_rows_than_the_share_allowed_fail(pipeline: Pipeline, spark: SparkSession) -> None:
    complete(pipeline, spark, ROWS)
    stage(pipeline, ROWS[:10], run="run-2")
    outcome = judge_one(pipeline, spark)
    assert outcome.message == "snapshot 2 failed: 1 of 4 checks failed: row count 10 < 50"
    assert outcome.facts["base_rows"] == 100


def test_a_table_that_became_empty_is_judged_too(pipeline: Pipeline, spark: SparkSession) -> None:
    complete(pipeline, spark, ROWS)
    stage(pipeline, [], run="run-2")
    assert judge_one(pipeline, spark).message == "snapshot 2 failed: 1 of 4 checks failed: row count 0 < 50"


def test_rows_are_counted_in_the_files_not_in_their_statistics(pipeline: Pipeline, spark: SparkSession) -> None:
    stats = json.dumps({"numRecords": 101})
    stage(pipeline, ROWS, alter=lambda file: replace(file, rows=101, stats=stats))
    message = judge_one(pipeline, spark).message
    assert message == "snapshot 1 failed: 1 of 3 checks failed: row count of manifest 100, not 101"


def test_the_suite_of_the_log_can_fail_or_warn(pipeline: Pipeline, spark: SparkSession) -> None:
    in_set = {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "bid", "value_set": [0, 1]}}
    text = {"type": "expect_column_value_lengths_to_be_between", "kwargs": {"column": "filler", "max_value": 5}}
    stage(pipeline, ROWS)
    give_suite(pipeline, in_set, {**text, "severity": "warn", "name": "short filler"})
    outcome = judge_one(pipeline, spark)
    assert outcome.message == (
        "snapshot 1 failed: 1 of 5 checks failed: bid values to be in set (33 unexpected values); "
        "1 warning: short filler (90 unexpected values)"
    )
    [check] = [c for c in checks_of(outcome) if c["name"] == "bid values to be in set"]
    assert (check["unexpected"], check["sample"]) == (33, ["2"] * 10)


def checks_of(outcome: Outcome) -> list[dict[str, Any]]:
    checks: list[dict[str, Any]] = json.loads(Path(outcome.facts["verdict"]).read_text())["judgement"]["checks"]
    return checks


def test_warnings_alone_pass_and_another_suite_judges_again(pipeline: Pipeline, spark: SparkSession) -> None:
    expectation = {"type": "expect_column_max_to_be_between", "kwargs": {"column": "aid", "max_value": 50}}
    stage(pipeline, ROWS)
    give_suite(pipeline, expectation)
    assert judge_one(pipeline, spark).status == "failed"
    give_suite(pipeline, {**expectation, "severity": "warn"})
    assert heavy(pipeline, ["accounts"], QualityStep(None)) == ["accounts"]
    outcome = judge_one(pipeline, spark)
    assert outcome.message == "snapshot 1 passed: 3 checks passed; 1 warning: aid max to be between (99 > 50)"
    verdict = pipeline.ledger("accounts").read().snapshots[-1].verdict
    assert verdict
    assert verdict.passed


@pytest.mark.parametrize(
    ("expectation", "code", "says"),
    [
        ({"type": "expect_column_values_to_be_uniqe", "kwargs": {"column": "aid"}}, "SUITE_UNKNOWN_EXPECTATION",
         "Did you mean `expect_column_values_to_be_unique`?"),
        ({"type": "expect_column_values_to_be_unique", "kwargs": {"colum": "aid"}}, "SUITE_BAD_ARGUMENTS", "colum"),
        ({"type": "expect_column_values_to_be_between", "kwargs": {"column": "filler", "min_value": 1}},
         "CHECK_NOT_COMPUTED", "`filler values to be between` could not be computed"),
        ({"type": "expect_column_sum_to_be_between", "kwargs": {"column": "filler", "min_value": 1}},
         "CHECK_NOT_COMPUTED", "row 0"),
    ],
    ids=["unknown type", "unknown argument", "wrong column type", "wrong column type on Spark"],
)  # fmt: skip
def test_a_check_that_cannot_be_computed_is_an_error_and_no_verdict(
    pipeline: Pipeline, spark: SparkSession, expectation: dict[str, Any], code: str, says: str
) -> None:
    stage(pipeline, ROWS)
    give_suite(pipeline, expectation)
    outcome = judge_one(pipeline, spark)
    assert (outcome.status, outcome.error_code) == ("error", code)
    assert says in outcome.message
    assert pipeline.ledger("accounts").read().snapshots[-1].verdict is None
    assert pipeline.store.list("logs/accounts/quality") == []


def test_a_store_may_have_any_name(tmp_path: Path, spark: SparkSession) -> None:
    # Spark takes these characters for a pattern unless they are escaped.
    pipeline = make_pipeline(tmp_path, "st[o]re {a,b} *? ü")
    stage(pipeline, ROWS)
    assert judge_one(pipeline, spark).status == "passed"


def test_a_log_with_an_error_does_not_hold_up_the_others(pipeline: Pipeline, spark: SparkSession) -> None:
    stage(pipeline, ROWS)
    stage(pipeline, ROWS, "pairs")
    (pipeline.config.path.parent / "accounts.yaml").write_text("nonsense")
    assert heavy(pipeline, ["accounts", "pairs"], QualityStep(None)) == ["pairs"]
    outcomes = judge(pipeline, ["accounts", "pairs", "absent"], None, SparkEngine(spark))
    assert [(o.status, o.error_code) for o in outcomes] == [
        ("error", "SUITE_INVALID"),
        ("passed", None),
        ("error", "LOG_NOT_CONFIGURED"),
    ]


def test_only_the_snapshot_of_the_run_is_judged(pipeline: Pipeline) -> None:
    [nothing_ingested] = judge(pipeline, ["accounts"], None, None)
    stage(pipeline, ROWS)
    [other_run] = judge(pipeline, ["accounts"], "run-2", None)
    assert (nothing_ingested.status, other_run.status) == ("nothing", "nothing")
    assert heavy(pipeline, ["accounts"], QualityStep("run-2")) == []
    assert judge_one(pipeline, None).error_code == "SPARK_NEEDED"


def test_files_that_are_not_those_of_the_manifest_are_refused(pipeline: Pipeline, spark: SparkSession) -> None:
    stage(pipeline, ROWS)
    file = staged_file(pipeline)
    data = file.read_bytes()
    file.write_bytes(data[:-1])
    assert judge_one(pipeline, spark).error_code == "STAGED_FILES_DIFFER"
    file.unlink()
    assert judge_one(pipeline, spark).error_code == "STAGED_FILES_DIFFER"
    file.write_bytes(data)
    DeltaTable(file.parent.parent).delete("aid = 5")
    assert judge_one(pipeline, spark).error_code == "STAGED_FILES_DIFFER"
    first_commit = file.parent.parent / "_delta_log" / f"{0:020d}.json"
    first_commit.write_text("nonsense")
    assert judge_one(pipeline, spark).error_code == "STAGED_TABLE_UNREADABLE"
    shutil.rmtree(first_commit.parent)
    assert judge_one(pipeline, spark).error_code == "STAGED_TABLE_UNREADABLE"


def test_damaged_bytes_are_an_error_never_a_pass(pipeline: Pipeline, spark: SparkSession) -> None:
    stage(pipeline, ROWS)
    file = staged_file(pipeline)
    data = bytearray(file.read_bytes())
    data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
    file.write_bytes(bytes(data))
    assert judge_one(pipeline, spark).error_code == "CHECK_NOT_COMPUTED"
    assert pipeline.store.list("logs/accounts/quality") == []


def test_samples_of_every_type_are_text(spark: SparkSession) -> None:
    columns = {
        "boolean": True,
        "int": 1,
        "bigint": 1 << 40,
        "double": 1.5,
        "string": "<b>ü\u202e\x00",
        "date": date(2026, 1, 2),
        "timestamp": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
    }
    schema = ", ".join(f"c_{kind} {kind}" for kind in columns)
    rows = spark.createDataFrame([tuple(columns.values())], schema)
    checks = [Check(k, "expect_column_values_to_be_null", {"column": f"c_{k}"}) for k in columns]
    results = evaluate(SparkRows(lambda: rows), checks)
    assert [r.name for r in results] == list(columns)
    assert [r.sample[0][:15] for r in results] == [
        "true", "1", "1099511627776", "1.5", r"<b>ü\u202e\x00", "2026-01-02", "2026-01-02T03:0",
    ]  # fmt: skip


def of(column: str, **arguments: Any) -> dict[str, Any]:
    return {"column": column, **arguments}


QUERY = "SELECT * FROM {batch} WHERE a > "
# Of each sort of expectations one that holds and one that does not.
SORTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("column_values_to_be_between", of("b", max_value=9), of("b", max_value=1)),
    ("column_values_to_be_between", of("b", max_value=1, mostly=0.3), of("b", max_value=1, mostly=0.6)),
    ("column_values_to_be_unique", of("a", mostly=0.5), of("a")),
    ("compound_columns_to_be_unique", {"column_list": ["a", "b"]}, {"column_list": ["b", "t"]}),
    ("column_values_to_not_be_null", of("a"), of("b")),
    ("column_values_to_be_null", of("b", mostly=0.01), of("b")),
    ("column_values_to_not_match_regex", of("t", regex="x"), of("t", regex="t1")),
    ("column_value_lengths_to_equal", of("t", value=2), of("t", value=3)),
    ("column_pair_values_a_to_be_greater_than_b", {"column_A": "a", "column_B": "b", "or_equal": True},
     {"column_A": "b", "column_B": "a"}),
    ("column_distinct_values_to_be_in_set", of("b", value_set=[*range(5)]), of("b", value_set=[0])),
    ("column_distinct_values_to_equal_set", of("b", value_set=[*range(5)]), of("b", value_set=[0, 9])),
    ("column_distinct_values_to_contain_set", of("b", value_set=[0, 1]), of("b", value_set=[9])),
    ("column_sum_to_be_between", of("b", min_value=1), of("b", max_value=1)),
    ("column_mean_to_be_between", of("b", min_value=1), of("b", max_value=1)),
    ("column_unique_value_count_to_be_between", of("b", min_value=5), of("b", min_value=9)),
    ("column_most_common_value_to_be_in_set", of("a", value_set=[7]), of("a", value_set=[1])),
    ("table_columns_to_match_set", {"column_set": ["a", "b", "t"]}, {"column_set": ["a"]}),
    ("column_to_exist", of("a"), of("z")),
    ("unexpected_rows_expectation", {"unexpected_rows_query": QUERY + "99"}, {"unexpected_rows_query": QUERY + "20"}),
]  # fmt: skip


@pytest.mark.rotates(3)
@pytest.mark.parametrize("part", range(3))
def test_counting_first_judges_as_asking_for_samples_at_once_does(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    """I8: what the pass without samples lets through, passes with them, too: for every sort of expectations."""
    listed = [(i, i % 5, f"t{i % 3}") for i in range(30)]
    rows = spark.createDataFrame([*listed, (7, None, None)], "a int, b int, t string")
    sorts = SORTS[part::3]
    kinds = [kind if kind.startswith("unexpected") else f"expect_{kind}" for kind, _, _ in sorts]
    checks = [
        Check(f"{number} {way}", kind, kwargs)
        for number, (kind, (_, *both)) in enumerate(zip(kinds, sorts, strict=True))
        for way, kwargs in zip(("good", "bad"), both, strict=True)
    ]
    monkeypatch.setattr(expectations, "_SAMPLED", 0)  # Many fail here, and samples are shown elsewhere.
    results = evaluate(SparkRows(lambda: rows), checks)
    assert [r.name for r in results if r.passed] == [f"{number} good" for number in range(len(sorts))]
    whole = {"result_format": "BASIC", "partial_unexpected_count": 10}
    asked = [expectations.build_expectation(check, number) for number, check in enumerate(checks)]
    answers = expectations._by_position(SparkRows(lambda: rows).validate(asked, whole))
    at_once = [expectations._result(check, answers[n]) for n, check in enumerate(checks)]
    assert [(r.passed, r.unexpected) for r in results] == [(r.passed, r.unexpected) for r in at_once]


@pytest.mark.parametrize(
    ("refused", "result", "said"),
    [
        (1, "passed", "snapshot 1 passed: 3 checks passed; 1 warning: refused records 1 of 1,000 new records since"),
        (30, "failed", "snapshot 1 failed: 1 of 4 checks failed: refused records 30 of 1,000 new records since"),
    ],
)
def test_refused_records_are_told_and_too_many_fail(
    refused: int, result: str, said: str, pipeline: Pipeline, spark: SparkSession
) -> None:
    stage(pipeline, ROWS)

    def refuse(state: LogState) -> LogState:
        [landed] = state.landed
        return replace(state, landed=(replace(landed, records=1000, quarantined=refused, changes=1000 - refused),))

    pipeline.ledger("accounts").commit(refuse)
    outcome = judge_one(pipeline, spark)
    assert outcome.status == result
    assert outcome.message.startswith(said)
    assert "refused records" in Path(outcome.facts["report"]).read_text()
