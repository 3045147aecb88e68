"""Runs of the DAGs without a scheduler (A2, A3): parameters, trigger rules, marks, cleared tasks, dry runs, restores.

There is so little to read that the tasks take and fold it themselves. The story goes on from test to test; after each
step the tables are compared with plain dicts. The same under a real scheduler: test_scheduled_life.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from local_airflow.settings import PROJECT
from support.airflow_shop import FAILS, MATERIALIZE, PASSES, Stock, prepare
from support.dag_test import DagTests, PlayedRun, airflow_database, find_asset_events, find_runs
from support.webhook import webhook
from tidefold.domain.log_state import State
from tidefold.operations.ingest.stop_resume import resume, stop
from tidefold.operations.inspect.alarms import find_alarm_record
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.verify.scope import find_proof
from tidefold.wiring import open_pipeline

STEPS = ("choose", "ingest", "materialize", "quality", "confirm#0", "confirm#1", "alarms")
RETENTION = tuple(f"retention.{task}" for task in ("subsume", "truncate", "local_retention", "clean"))
FIRST = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(kw_only=True)
class PlayedShop(Stock):
    """A small pipeline and its DAGs. `told` has what the webhook for alarms received."""

    dags: DagTests
    told: list[Any]

    def play(self, dag: str = MATERIALIZE, **given: Any) -> PlayedRun:
        return self.dags.play(dag, **given)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlayedShop]:
    """A failed gate waits for a person."""
    root = tmp_path_factory.mktemp("shop")
    config = prepare(root)
    files = [*(PROJECT / "dags").glob("*.py"), PROJECT / "tests" / "airflow" / "dags" / "shop_group.py"]
    with webhook() as (address, told):
        env = {
            "TIDEFOLD_CONFIG": str(config),
            "TIDEFOLD_APPROVAL_HOURS": "1",
            "TIDEFOLD_ALARM_CONN": "hook",
            "AIRFLOW_CONN_HOOK": f'{{"conn_type": "http", "host": "{address}"}}',
            "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[*]"}',
        }
        with airflow_database(root, files, **env) as tests:
            yield PlayedShop(pipeline=open_pipeline(config), dags=tests, told=told)


@pytest.fixture(scope="module")
def first(played: PlayedShop) -> PlayedRun:
    """A run over the first changes; everything is published."""
    played.change("items", dict.fromkeys(range(20), "a"))
    played.change("notes", {1: "x"})
    return played.play(at=FIRST).green()


def test_a_run_publishes_every_log_and_announces_each_once(played: PlayedShop, first: PlayedRun) -> None:
    assert played.all_equal()
    # Logs of one run are confirmed side by side.
    assert sorted((event["log"], event["snapshot"]) for event in find_asset_events()) == [("items", 1), ("notes", 1)]


def test_every_task_may_be_cleared_and_nothing_happens_twice(played: PlayedShop, first: PlayedRun) -> None:
    """Bad input 109, I4."""
    before, events = played.ledgers(), find_asset_events()
    again = played.play(at=FIRST).green()
    assert again.id == first.id
    assert {again.tasks[task] for task in STEPS} == {"success"}
    assert played.ledgers() == before
    assert played.all_equal()
    assert find_asset_events() == events


def test_only_the_logs_that_a_person_names_are_worked_on(played: PlayedShop, first: PlayedRun) -> None:
    """A3."""
    played.change("items", {1: "b"})
    played.change("notes", {2: "y"})
    assert played.play(logs=["items"]).green().results["choose"] == [["items"]]
    assert played.shown("items") == played.held["items"]
    assert played.shown("notes") == {1: "x"}
    assert played.state("notes").unfolded == ()


def test_a_group_in_a_users_dag_does_the_same_between_his_own_tasks(played: PlayedShop, first: PlayedRun) -> None:
    played.change("notes", {4: "g"})
    run = played.play("shop_group").green()
    assert played.shown("notes") == played.held["notes"]
    assert run.tasks["tidefold.confirm#0"] == "success"
    assert run.results["tidefold.published"] == {"published": ["notes"]}
    assert run.results["after"] == "told"


def test_what_follows_a_group_is_skipped_while_a_person_is_asked(played: PlayedShop, first: PlayedRun) -> None:
    """The run is green, and its task says why."""
    played.suite("notes", FAILS)
    played.change("notes", {5: "h"})
    run = played.play("shop_group").green()
    states = {task: run.tasks[task] for task in ("tidefold.confirm#0", "tidefold.published", "after")}
    assert states == dict.fromkeys(states, "skipped")
    assert run.results["tidefold.published"] == {"waits for a person": ["notes"]}
    attempt = played.state("notes").open_attempt
    assert attempt
    abort(played.pipeline, "notes", "by hand", snapshot=attempt.id)
    played.suite("notes", PASSES)


def test_a_log_that_was_stopped_on_purpose_fails_no_run(
    played: PlayedShop, first: PlayedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    stop(played.pipeline, "items", "", "ann", "a move")
    run = played.play().green()
    resume(played.pipeline, "items")
    assert "items" not in run.results["ingest"]
    said = capsys.readouterr().out
    assert "items: stopped by ann on " in said
    assert "`tidefold move resume items` ends that" in said
    assert played.all_equal()
    stop(played.pipeline, "notes", "", "ann", "a move")
    group = played.play("shop_group").green()
    resume(played.pipeline, "notes")
    # No step of a run without news names it, and it does not let what follows start.
    assert group.results["tidefold.published"] == {"stopped on purpose": ["notes"]}
    assert group.tasks["after"] == "skipped"


def test_a_failed_gate_asks_in_a_run_of_its_own_and_holds_nobody(played: PlayedShop, first: PlayedRun) -> None:
    """I8. The answers are in test_approval.py, with a real scheduler."""
    played.suite("items", FAILS)
    played.change("items", {2: "c"})
    played.change("notes", {3: "z"})
    run = played.play().green()
    assert played.shown("notes") == played.held["notes"]
    assert played.shown("items") != played.held["items"]
    assert run.results["confirm#0"]["items"]["result"] == "asked"
    attempt = played.state().open_attempt
    assert attempt
    [question] = find_runs(f"{MATERIALIZE}_approval")
    assert (question.state, question.conf) == (
        "queued", {"log": "items", "snapshot": attempt.id, "manifest": attempt.manifest},
    )  # fmt: skip
    abort(played.pipeline, "items", "by hand", snapshot=attempt.id)
    played.suite("items", PASSES)


def test_a_step_marked_as_done_that_never_ran_is_noticed_by_the_next(played: PlayedShop, first: PlayedRun) -> None:
    """Bad input 110."""
    played.change("items", {4: "d"})
    run = played.play(marked="quality", logs=["items"]).red()
    assert "STEP_NOT_RUN" in run.lines
    assert [s.state for s in played.state().snapshots if s.run == run.name] == [State.ABORTED]


def test_a_dry_run_names_what_would_go_and_removes_nothing(
    played: PlayedShop, first: PlayedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (5, 6):
        played.change("items", {number: "e"})
        played.play(marked="|".join(RETENTION), logs=["items"]).green()
    # Nothing is lost that was held back before: the suite that passes finds all of it.
    assert played.shown("items") == played.held["items"]
    before = played.files()
    run = played.play("tidefold_maintenance", dry_run=True).green()
    assert played.files() == before
    planned = {task: run.results[task]["items"]["result"] for task in ("subsume", "truncate")}
    assert planned == {"subsume": "planned", "truncate": "planned"}
    assert "items: replay keeps the log after" in capsys.readouterr().out
    played.play("tidefold_maintenance", dry_run=False).green()
    assert not set(before) <= set(played.files())


def test_an_older_snapshot_comes_back_and_the_next_run_goes_on(played: PlayedShop, first: PlayedRun) -> None:
    """L3: a restore by form, first as a dry run."""
    older = [s for s in played.state().snapshots if s.state is State.COMPLETED][-2]
    before = played.ledgers()
    dry = played.play("tidefold_restore", log="items", snapshot=older.id, log_position="replay").green()
    assert (dry.tasks["quality"], dry.tasks["confirm"], played.ledgers()) == ("skipped", "skipped", before)
    played.play("tidefold_restore", log="items", snapshot=older.id, log_position="replay", dry_run=False).green()
    assert len(played.shown("items")) == older.rows
    assert played.state().latest != before["items"].latest
    played.play(logs=["items"]).green()
    assert played.all_equal()


def test_a_drill_is_recorded(played: PlayedShop, first: PlayedRun) -> None:
    played.play("tidefold_drill").green()
    latest = played.state().latest
    assert latest
    assert latest.drill
    assert latest.drill.passed


def test_a_scrub_reads_its_share_and_is_recorded(played: PlayedShop, first: PlayedRun) -> None:
    run = played.play("tidefold_scrub", logs=["items"], share="100%").green()
    assert run.results["scrub"]["items"]["result"] == "whole"
    proof = find_proof(played.pipeline.store, "items")
    assert proof
    assert (proof.by, proof.share, proof.proved) == ("scrub", 1.0, proof.instant)


def test_a_log_that_keeps_failing_is_told_once_and_counts_again_after_a_good_run(
    played: PlayedShop, first: PlayedRun
) -> None:
    """One failed run is allowed. The other log is published all the time."""
    away = played.landing("notes").rename(played.folder / "landing" / "away")
    before = len(played.told)
    for number in (1, 2, 3):
        played.change("items", {number: f"while notes fails {number}"})
        assert "This run is red: task `ingest` failed; notes: ingest: LANDING_MISSING" in played.play().red().lines
        assert played.shown("items") == played.held["items"]
    told = [alarm for message in played.told[before:] for alarm in message["alarms"]]
    assert [(alarm["log"], alarm["kind"]) for alarm in told] == [("notes", "failures")]
    assert told[0]["message"].startswith("2 runs failed in a row, since ")
    assert "ingest: LANDING_MISSING" in told[0]["message"]
    away.rename(played.landing("notes"))
    played.play().green()
    record = find_alarm_record(played.pipeline.store, "notes")
    assert record
    assert (record.failures, record.sent) == (0, ())


def test_a_report_is_red_where_a_check_fails_and_changes_nothing(played: PlayedShop, first: PlayedRun) -> None:
    """A3: quality reports."""
    played.suite("items", FAILS)
    before = played.ledgers()
    run = played.play("tidefold_report").red()
    assert {log: what["result"] for log, what in run.results["audit"].items()} == {"items": "failed", "notes": "passed"}
    assert played.ledgers() == before
    played.suite("items", PASSES)


def test_a_tail_is_taken_where_there_is_something_new(played: PlayedShop, first: PlayedRun) -> None:
    """C10. The table is as before, and the next run publishes what the tail has."""
    before = played.shown("items")
    run = played.play("tidefold_tail").green()
    assert {what["result"] for task in ("ingest", "tail") for what in run.results[task].values()} == {"nothing"}
    played.change("items", {6: "f"})
    run = played.play("tidefold_tail").green()
    assert {log: what["result"] for log, what in run.results["tail"].items()} == {
        "items": "completed", "notes": "nothing",
    }  # fmt: skip
    assert played.shown("items") == before
    played.play().green()
    assert played.all_equal()


@pytest.mark.parametrize(
    ("snapshot", "code"), [(999, "SNAPSHOT_UNKNOWN"), (1, "WRONG_STATE")], ids=["none", "subsumed"]
)
def test_what_only_the_ledger_knows_has_the_code_of_the_command_line(
    played: PlayedShop, first: PlayedRun, snapshot: int, code: str
) -> None:
    """Bad input 100."""
    before = played.ledgers()
    run = played.play("tidefold_restore", log="items", snapshot=snapshot, log_position="replay").red()
    assert f"[{code}]" in run.lines
    assert played.ledgers() == before
