"""`tidefold snapshot as-of`: what it prints, its exit codes, and that planning and refusing need no Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.commands import attempt as call
from support.commands import call_json
from support.instants import day, kept_as_of, staged
from support.pipelines import CONFIG, contents, judge_all, make_pipeline, put
from tidefold.compute.runners import in_process
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Two days in a snapshot, two more that wait."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    made = make_pipeline(tmp_path, CONFIG.replace("store: store", "store: store\nretention: {snapshots: 2}"))
    for number in (1, 2):
        put(made, [{"id": number, "text": "a", "_ts": day(number)}])
    materialize(made, ["accounts"], Fold("run-1"), in_process)
    judge_all(made)
    confirm(made, "accounts", Confirmation(run="run-1"))
    for number in (3, 4):
        put(made, [{"id": number, "text": "a", "_ts": day(number)}])
    return made


def test_a_plan_tells_what_would_be_folded_and_changes_nothing(pipeline: Pipeline) -> None:
    before = contents(Path())
    done = call("snapshot", "as-of", "accounts", "--at", "2025-11-03T12:00:00Z", "--dry-run")
    assert done.exit_code == 0
    assert "would fold at most 1 change of 1 change set onto snapshot 1 (2 rows)" in done.stdout
    [outcome] = call_json("snapshot", "as-of", "accounts", "--at", "2025-11-03T12:00:00Z", "--dry-run")["outcomes"]
    assert (outcome["facts"]["base"], outcome["facts"]["change_sets_later"]) == (1, 1)
    assert contents(Path()) == before


@pytest.mark.parametrize(
    ("at", "code"),
    [("2025-11-03", "AS_OF_INVALID"), ("1900-01-01T00:00:00Z", "AS_OF_INVALID"), ("2999-01-01T00:00Z", "AS_OF_FUTURE")],
)
@pytest.mark.parametrize("plan", [[], ["--dry-run"]], ids=["make", "plan"])
def test_bad_input_95(pipeline: Pipeline, at: str, code: str, plan: list[str]) -> None:
    """The same code as in the form of the DAG: both ask `instant_of`."""
    done = call("snapshot", "as-of", "accounts", "--at", at, *plan)
    assert done.exit_code == 2
    assert code in done.stderr


def test_bad_input_106_a_run_that_asked_for_another_instant(pipeline: Pipeline) -> None:
    staged(pipeline, day(3), "backfill")
    done = call("snapshot", "as-of", "accounts", "--at", "2025-11-04T00:00:00Z", "--run", "backfill")
    assert (done.exit_code, "RUN_CHANGED" in done.stderr) == (3, True)
    # What the run has open is undone: it did not come through.
    assert pipeline.ledger("accounts").read().as_of_attempts == ()


def test_nothing_before_and_too_old(pipeline: Pipeline) -> None:
    done = call("snapshot", "as-of", "accounts", "--at", "2025-11-01T00:00:00Z")
    assert (done.exit_code, "nothing was committed before" in done.stdout) == (0, True)
    truncate(pipeline, "accounts")
    done = call("snapshot", "as-of", "accounts", "--at", "2025-11-02T00:00:00Z")
    assert (done.exit_code, "AS_OF_TOO_OLD" in done.stderr) == (3, True)
    assert "The oldest possible instant is 2025-11-02T00:00:01Z" in done.stderr


def test_one_that_is_kept_is_found_and_shown(pipeline: Pipeline) -> None:
    kept_as_of(pipeline, day(4), "backfill")
    answer = call_json("snapshot", "as-of", "accounts", "--at", "2025-11-04T00:00:00+00:00")
    assert (answer["exit_code"], answer["steps"]["materialize"][0]["result"]) == (0, "already")
    shown = call("snapshot", "history", "accounts").stdout
    assert "as of 2025-11-04T00:00:00Z, beside the others; tagged as-of-2025-11-04" in shown
    [snapshot, *_] = call_json("snapshot", "history", "accounts")["snapshots"]
    assert snapshot["as_of"]["at"] == day(4)


def test_status_names_what_is_open(pipeline: Pipeline) -> None:
    staged(pipeline, day(4), "backfill")
    shown = " ".join(call("status", "accounts").stdout.split())
    assert "snapshot 2, as of 2025-11-04T00:00:00Z, is STAGED under run backfill" in shown
    assert "`tidefold step abort accounts --snapshot 2` undoes it" in shown
