"""`spark.above`: what little there is to read is taken and folded without a JVM, with the same result."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.landing import record, text_of, weigh
from support.pipelines import CONFIG, judge_all, make_pipeline, table_rows, with_log_shape
from support.planning import weight
from tidefold.cli.app import app
from tidefold.compute.runners import in_process
from tidefold.config import QualityConfig
from tidefold.config.models.units import find_bytes
from tidefold.domain.log_state import ChangeSetLocation
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest import ingest
from tidefold.operations.requests import Fold, PointInTime, Restore
from tidefold.operations.snapshot import materialize
from tidefold.operations.snapshot.compact_log import take_tail
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.sources.landing.landing_place import DiskFolder, ListedFile
from tidefold.spark.dispatch import DispatchResult, run_without_spark
from tidefold.spark.steps import AnyStep, AuditStep, IngestStep, MaterializeStep, QualityStep

LOGS = ("accounts", "tellers")
PLENTY = "64MB"


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Two logs with as much landed for the one as for the other; whatever has rows is for Spark."""
    made = make_pipeline(tmp_path / "one", CONFIG.replace("store: store", "store: store\nspark: {above: 0B}"))
    for log in LOGS:
        land(made, log, 0, range(40))
    return made


def land(pipeline: Pipeline, log: str, start: int, keys: range) -> None:
    lines = text_of(record(start + i, key, topic=log) for i, key in enumerate(keys))
    (pipeline.config.path.parent / "landing" / log / f"{log}+0+{start:010d}.jsonl").write_bytes(lines)


def above(pipeline: Pipeline, size: str | int) -> Pipeline:
    """The same pipeline where Spark is for more than that."""
    given = find_bytes(size) if isinstance(size, str) else size
    spark = pipeline.config.spark.model_copy(update={"above": given})
    return replace(pipeline, config=pipeline.config.model_copy(update={"spark": spark}))


def step(pipeline: Pipeline, name: str, run: str = "run-1") -> DispatchResult:
    steps: dict[str, AnyStep] = {
        "ingest": IngestStep(),
        "materialize": MaterializeStep(Fold(run)),
        "quality": QualityStep(run),
        "audit": AuditStep(run),
    }
    return run_without_spark(pipeline, steps[name], LOGS)


def done(found: DispatchResult) -> list[Outcome]:
    """Everything, when none of it was left for Spark."""
    assert found.spark == ()
    assert [outcome.log for outcome in found.done] == list(LOGS)
    return list(found.done)


def published(pipeline: Pipeline, run: str = "run-1") -> None:
    for log in LOGS:
        judge_all(pipeline, log)
        assert confirm(pipeline, log, Confirmation(run=run)).status == "published"


def known(pipeline: Pipeline, log: str) -> list[Any]:
    """What a ledger says, without names that are made anew each time and without instants."""
    state = pipeline.ledger(log).read()
    sets = [replace(c, location=ChangeSetLocation("", c.location.ordinal, 0, 0, "")) for c in state.change_sets]
    landed = [replace(one, run="", instant="", changed=0.0) for one in state.landed]
    snapshots = [(s.id, s.kind, s.state, s.run, s.from_sqn, s.folds_to, s.rows) for s in state.snapshots]
    return [state.shape, state.positions, sets, landed, snapshots]


def test_rows_and_ledger_are_those_that_the_job_would_have_made(pipeline: Pipeline, tmp_path: Path) -> None:
    here, there = above(pipeline, PLENTY), make_pipeline(tmp_path / "other")
    for number in range(2):
        run = f"run-{number}"
        for one in (here, there) if number else (there,):
            for log in LOGS:
                land(one, log, 40 * number, range(20 * number, 20 * number + 40))
        done(step(here, "ingest"))
        done(step(here, "materialize", run))
        # What jobs/ingest.py and jobs/materialize.py call.
        ingest.ingest(there, LOGS, in_process)
        materialize.materialize(there, LOGS, Fold(run), in_process)
        published(here, run)
        published(there, run)
    for log in LOGS:
        assert table_rows(here, log) == table_rows(there, log)
        assert len(table_rows(here, log)) == 60
        assert known(here, log) == known(there, log)


def test_a_small_ingest_lists_what_landed_once_and_executes_what_it_weighed(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    def look(folder: DiskFolder, known: Collection[str] = ()) -> Iterator[ListedFile]:
        for one in list_files(folder, known):
            looks.append(one.name)
            yield one

    list_files = DiskFolder.list_files
    monkeypatch.setattr(DiskFolder, "list_files", look)
    first, second = done(step(above(pipeline, PLENTY), "ingest"))
    assert [first.status, second.status] == ["taken", "taken"]
    assert sorted(looks) == [f"{log}+0+0000000000.jsonl" for log in LOGS]


def test_the_outcome_says_that_and_why(pipeline: Pipeline) -> None:
    weight = weigh(pipeline, "accounts")
    taken, _ = done(step(above(pipeline, PLENTY), "ingest"))
    assert taken.status == "taken"
    assert taken.message.endswith(f"; engine: in process ({weight:,} bytes to read)")
    assert (taken.facts["engine"], taken.facts["bytes_without_spark"]) == ("in process", weight)
    again, _ = done(step(above(pipeline, PLENTY), "ingest"))
    assert (again.status, again.message) == ("nothing", "nothing new")


def test_the_command_line_starts_no_spark_for_it(tmp_path: Path) -> None:
    made = make_pipeline(tmp_path, CONFIG.replace("store: store", f"store: store\nspark: {{above: {PLENTY}}}"))
    for log in LOGS:
        land(made, log, 0, range(3))
    for verb in ("ingest", "materialize", "quality"):
        called = CliRunner().invoke(app, ["step", verb, "--config", str(made.config.path)], prog_name="tidefold")
        assert called.exit_code == 0, called.output
        assert called.stdout.count("; engine: in process (") == len(LOGS)
        assert "starting Spark" not in called.stderr
    assert {log: made.ledger(log).read().open_attempt is not None for log in LOGS} == dict.fromkeys(LOGS, True)
    assert all(made.ledger(log).read().snapshots[-1].verdict.passed for log in LOGS)  # type: ignore[union-attr]


def test_small_logs_share_a_segment_as_on_spark(pipeline: Pipeline) -> None:
    done(step(above(pipeline, PLENTY), "ingest"))
    assert len(pipeline.store.list("changelog")) == 1


def test_small_work_needs_no_spark_unless_the_configuration_says_so(tmp_path: Path, pipeline: Pipeline) -> None:
    by_default = make_pipeline(tmp_path / "default")
    land(by_default, "accounts", 0, range(40))
    assert step(by_default, "ingest").spark == ()
    assert step(pipeline, "ingest") == DispatchResult(LOGS, ())
    done(step(above(pipeline, PLENTY), "ingest"))
    assert step(pipeline, "materialize") == DispatchResult(LOGS, ())


@pytest.mark.parametrize("name", ["ingest", "materialize"])
@pytest.mark.parametrize(("more", "spark"), [(-1, ("accounts",)), (0, ()), (1, ())], ids=["below", "exactly", "above"])
def test_as_many_bytes_as_the_limit_are_still_small(
    pipeline: Pipeline, name: str, more: int, spark: tuple[str, ...]
) -> None:
    (pipeline.config.path.parent / "landing/tellers/tellers+0+0000000000.jsonl").unlink()
    asking = Fold("run-1")
    least = weigh(pipeline, "accounts")
    if name == "materialize":
        done(step(above(pipeline, PLENTY), "ingest"))
        least = weight(pipeline, "accounts", asking) or 0
    assert least > 1
    found = step(above(pipeline, least + more), name)
    assert found.spark == spark
    assert {o.status for o in found.done if o.log == "accounts"} <= {"taken", "staged"}
    assert pipeline.ledger("accounts").exists() == (name == "materialize" or not spark)


@pytest.mark.parametrize("name", ["ingest", "materialize"])
def test_many_small_logs_together_are_not_small(pipeline: Pipeline, name: str) -> None:
    """The limit holds for their sum; what has the least to read is done here."""
    land(pipeline, "accounts", 40, range(40))
    if name == "materialize":
        done(step(above(pipeline, PLENTY), "ingest"))
    weights = {log: _weight(pipeline, name, log) for log in LOGS}
    assert weights["tellers"] < weights["accounts"]
    found = step(above(pipeline, sum(weights.values()) - 1), name)
    assert found.spark == ("accounts",)
    assert [o.log for o in found.done] == ["tellers"]
    done_then = step(above(pipeline, sum(weights.values())), name)
    assert done_then.spark == ()


def _weight(pipeline: Pipeline, name: str, log: str) -> int:
    if name == "ingest":
        return weigh(pipeline, log)
    return weight(pipeline, log, Fold("run-1")) or 0


def test_a_fold_weighs_its_changes_and_the_files_of_the_buckets_that_they_are_for(pipeline: Pipeline) -> None:
    made = above(pipeline, PLENTY)
    done(step(made, "ingest"))
    done(step(made, "materialize"))
    published(made)
    files = sum(e.bytes for e in made.store.list("snapshots/accounts") if e.path.endswith(".parquet"))
    land(made, "accounts", 40, range(1))
    done(step(made, "ingest"))
    few = weight(made, "accounts", Fold("run-2")) or 0
    land(made, "accounts", 41, range(40))
    done(step(made, "ingest"))
    assert 0 < few < files < (weight(made, "accounts", Fold("run-2")) or 0)


def test_an_error_of_one_log_leaves_the_others(pipeline: Pipeline) -> None:
    made = with_log_shape(above(pipeline, PLENTY), on_bad_record="fail")
    (made.config.path.parent / "landing/accounts/accounts+0+0000000000.jsonl").write_text("no record\n")
    bad, good = step(made, "ingest").done
    assert (good.log, good.status) == ("tellers", "taken")
    assert (bad.log, bad.error_code) == ("accounts", "BAD_RECORDS")
    assert "engine" not in bad.message


def test_an_error_that_nobody_foresaw_is_an_outcome_of_each_log(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> list[Outcome]:
        raise RuntimeError("a bug")

    monkeypatch.setattr(ingest, "execute", fails)
    assert {outcome.error_code for outcome in done(step(above(pipeline, PLENTY), "ingest"))} == {"UNFORESEEN"}


def test_a_fold_that_fails_is_aborted_and_the_other_log_is_staged(pipeline: Pipeline) -> None:
    made = above(pipeline, PLENTY)
    # One segment each.
    for log in LOGS:
        ingest.ingest(made, [log], in_process)
    [damaged] = made.ledger("accounts").read().change_sets
    path = made.config.path.parent / "store" / damaged.location.segment
    path.write_bytes(b"\0" * path.stat().st_size)
    bad, good = step(made, "materialize").done
    assert (good.log, good.status) == ("tellers", "staged")
    assert (bad.log, bad.error_code) == ("accounts", "SEGMENT_CORRUPT")
    assert made.ledger("accounts").read().open_attempt is None


def test_what_cannot_be_planned_is_an_error_without_spark(pipeline: Pipeline) -> None:
    made = above(pipeline, PLENTY)
    done(step(made, "ingest"))
    done(step(made, "materialize"))
    published(made)
    for log in LOGS:
        land(made, log, 40, range(3))
    done(step(made, "ingest"))
    [manifest] = [e.path for e in made.store.list("logs/accounts/snapshots")]
    (made.config.path.parent / "store" / manifest).write_bytes(b"{}")
    found = step(made, "materialize", "run-2")
    assert found.spark == ()
    assert [(o.log, o.status) for o in found.done] == [("accounts", "error"), ("tellers", "staged")]
    assert found.done[0].error_code == "CHECKSUM"
    assert made.ledger("accounts").read().open_attempt is None


def test_the_gate_is_small_work_too(pipeline: Pipeline) -> None:
    made = above(pipeline, PLENTY)
    done(step(made, "ingest"))
    done(step(made, "materialize"))
    for outcome in done(step(made, "quality")):
        assert outcome.status == "passed"
        assert outcome.message.endswith(
            f"; engine: in process ({outcome.facts['bytes_without_spark']:,} bytes to read)"
        )
    for log in LOGS:
        assert confirm(made, log, Confirmation(run="run-1")).status == "published"
    assert [outcome.status for outcome in done(step(made, "audit"))] == ["passed", "passed"]


@pytest.mark.parametrize(
    "check",
    [
        {"type": "expect_column_values_to_be_increasing", "kwargs": {"column": "text"}},
        {"type": "expect_column_values_to_match_regex", "kwargs": {"column": "text", "regex": "(?=a)b"}},
    ],
    ids=["an expectation that only Spark is known to judge", "a pattern that another engine reads otherwise"],
)
def test_a_suite_that_might_be_judged_otherwise_stays_on_spark(pipeline: Pipeline, check: dict[str, Any]) -> None:
    made = above(pipeline, PLENTY)
    suite = made.config.path.parent / "suite.yaml"
    suite.write_text(json.dumps({"expectations": [check]}))
    quality = QualityConfig(suite=str(suite), max_row_drop=0.5)
    log = made.config.logs["accounts"].model_copy(update={"quality": quality})
    made = replace(made, config=made.config.model_copy(update={"logs": {**made.config.logs, "accounts": log}}))
    done(step(made, "ingest"))
    done(step(made, "materialize"))
    found = step(made, "quality")
    assert found.spark == ("accounts",)
    assert [(o.log, o.status) for o in found.done] == [("tellers", "passed")]


def test_a_tail_that_comes_back_and_rows_as_of_an_instant_are_weighed_too(pipeline: Pipeline) -> None:
    made = above(pipeline, PLENTY)
    done(step(made, "ingest"))
    done(step(made, "materialize"))
    published(made)
    land(made, "accounts", 40, range(40, 50))
    done(step(made, "ingest"))
    tail = take_tail(made, "accounts", "tail-1").snapshot
    assert tail
    back = MaterializeStep(Restore("back", RestorePoint(tail, RestoreMode.SKIP)))
    assert run_without_spark(pipeline, back, ["accounts"]).spark == ("accounts",)
    found = run_without_spark(made, back, ["accounts"])
    assert (found.spark, found.done[0].status) == ((), "staged")
    judge_all(made)
    confirm(made, "accounts")
    assert len(table_rows(made)) == 50
    # Before the change at offset 5, whose source committed it at 1005 milliseconds.
    past = MaterializeStep(PointInTime("past", 1005 * 1000))
    assert run_without_spark(pipeline, past, ["tellers"]).spark == ("tellers",)
    [kept] = run_without_spark(made, past, ["tellers"]).done
    assert (kept.status, kept.facts["rows"]) == ("staged", 5)
