"""Runs begun by hand over a small pipeline (A2, A3): parameters, approvals, cleared tasks, marks, dry runs, restores.

There is little to read, so the tasks take and fold it themselves where nothing else is said. The story goes on from
test to test in one Airflow; after each step the tables are compared with plain dicts.
"""

from __future__ import annotations

import hashlib
import json

import pytest

from local_airflow.errors import LocalAirflowError
from support.airflow_shop import FAILS, LOGS, PASSES, Ran, Shop, wait_for
from support.airflow_stack import all_on_spark, java_started
from support.browser import Browser, logged_in, trigger_by_form
from tidefold.domain.log_state import State
from tidefold.operations.doctor.report import find_report
from tidefold.operations.inspect.alarm_record import find_alarm_record
from tidefold.operations.verify.proof_record import find_proof

RETENTION = ("subsume", "truncate", "local_retention", "clean")
STEPS = ("choose", "ingest", "materialize", "quality", "confirm", *RETENTION, "alarms")
ONGOING = (State.ONGOING, State.STAGED)


@pytest.fixture(scope="module")
def first(shop: Shop) -> Ran:
    """A run over the first changes, all of it on Spark; everything is published."""
    shop.change("items", dict.fromkeys(range(20), "a"))
    shop.change("notes", {1: "x"})
    with all_on_spark(shop.pipeline.config.path), java_started(shop.airflow) as java:
        run = shop.trigger().green()
    # However many logs there are.
    for step in ("ingest", "materialize", "quality"):
        assert sum(f"jobs/{step}.py" in words and "launcher.Main" not in words for words in java) == 1, java
    return run


def test_a_run_by_hand_publishes_every_log_and_announces_each_once(shop: Shop, first: Ran) -> None:
    """A3, complaint 25: the event carries what a consumer needs, and the run's last word is the table."""
    assert shop.all_equal()
    for log in ("items", "notes"):
        [event] = shop.events(log)
        assert {name: event[name] for name in ("snapshot", "version", "rows")} == {
            "snapshot": 1, "version": 0, "rows": len(shop.held[log]),
        }  # fmt: skip
        assert event["report"].endswith(f"/tidefold/logs/{log}/snapshots/1/report")


def test_numbers_of_each_step_are_sent_as_metrics(shop: Shop, first: Ran) -> None:
    """Plain StatsD, as a server would get it."""
    sent = shop.metrics()
    assert sent["airflow.tidefold.items.confirm.rows"] == len(shop.held["items"])
    assert sent["airflow.tidefold.notes.materialize.failed"] == 0
    assert {"ingest.changes", "materialize.bytes_written", "quality.seconds", "unreadable"} <= {
        name.removeprefix("airflow.tidefold.items.") for name in sent
    }


def test_lineage_names_what_was_read_and_what_is_shown(shop: Shop, first: Ran) -> None:
    """OpenLineage, complaint 25: inputs and outputs are not empty."""
    events = [e for e in shop.lineage() if e["eventType"] == "COMPLETE" and e["job"]["name"].endswith(".confirm")]
    outputs = {one["name"].rpartition("/")[2]: one for event in events for one in event["outputs"]}
    assert set(outputs) == {"items", "notes"}
    assert outputs["items"]["outputFacets"]["outputStatistics"]["rowCount"] == 20
    assert [f["name"] for f in outputs["items"]["facets"]["schema"]["fields"]] == ["id", "text"]
    inputs = {one["name"].rpartition("/")[2] for event in events for one in event["inputs"]}
    assert inputs == {"shop.public.items", "shop.public.notes"}


def test_each_task_may_be_cleared_and_nothing_happens_twice(shop: Shop, first: Ran) -> None:
    """Bad input 109, I4: the clear of a middle task after confirm is a no-op."""
    before, events = shop.ledgers(), len(shop.airflow.api.asset_events())
    for task in (*STEPS, "abort", "done"):
        first.clear(task).green()
        assert shop.ledgers() == before, task
    assert shop.all_equal()
    assert len(shop.airflow.api.asset_events()) == events


def test_a_person_begins_a_run_of_one_log_in_the_form(shop: Shop, first: Ran, browser: Browser) -> None:
    """A3: by hand, in a browser. Only what the form names is worked on."""
    shop.change("items", {1: "b"})
    shop.change("notes", {2: "y"})
    api = shop.airflow.api
    with logged_in(browser, api.address, api.user, api.password) as page:
        trigger_by_form(page, api.address, first.dag, "items")
    run = Ran(shop, first.dag, api.runs(first.dag)[0]["dag_run_id"]).green()
    assert run.result("choose") == ["items"]
    assert shop.shown("items") == shop.held["items"]
    assert shop.shown("notes") == {1: "x"}
    assert shop.state("notes").unfolded == ()


def test_a_group_in_a_users_dag_does_the_same_between_his_own_tasks(shop: Shop, first: Ran) -> None:
    """Of changes so small Spark is asked for nothing."""
    shop.change("notes", {4: "g"})
    with java_started(shop.airflow) as java:
        run = shop.trigger("shop_group").green()
    assert not [step for step in ("ingest", "materialize", "quality") if f"jobs/{step}.py" in " ".join(java)]
    for step in ("materialize", "quality"):
        assert "; engine: in process (" in run.log(f"tidefold.{step}")
    assert shop.all_equal()
    assert run.tasks["tidefold.confirm#0"] == "success"
    assert run.result("after") == "told"


def test_a_person_may_let_a_failed_snapshot_through_and_who_and_why_is_kept(shop: Shop, first: Ran) -> None:
    """A failed gate of one log asks a person in a run of its own; the other log is published meanwhile. I8."""
    shop.suite("items", FAILS)
    shop.change("items", {2: "c"})
    shop.change("notes", {3: "z"})
    run = shop.trigger().green()
    assert shop.shown("notes") == shop.held["notes"]
    assert shop.shown("items") != shop.held["items"]
    assert run.result("confirm#0")["items"]["result"] == "asked"
    [question] = shop.questions()
    question.reached("ask", "awaiting_input").answer({"ask": ("Approve", "the source is right")}).green()
    assert shop.all_equal()
    snapshot = next(s for s in shop.state().snapshots if s.run == run.name)
    assert snapshot.verdict
    assert (snapshot.verdict.override_by, snapshot.verdict.override_why) == ("admin", "the source is right")
    assert shop.events("items")[-1]["override_by"] == "admin"


def test_who_rejects_or_gives_no_reason_aborts_it(shop: Shop, first: Ran) -> None:
    """Bad input 101: an override without a reason has the same code as on the command line."""
    before = {log: shop.shown(log) for log in LOGS}
    for log in LOGS:
        shop.suite(log, FAILS)
        shop.change(log, {3: "doubtful"})
    run = shop.trigger().green()
    answers = {"items": ("Reject", "not now", "GATE_FAILED"), "notes": ("Approve", "", "OVERRIDE_UNNAMED")}
    questions = shop.questions()
    assert len(questions) == len(LOGS)
    for question in questions:
        log = question.id.partition("__")[0]
        choice, why, said = answers[log]
        question.reached("ask", "awaiting_input").answer({"ask": (choice, why)}).red()
        assert said in question.log("ask")
    for log in LOGS:
        shop.suite(log, PASSES)
        assert [s.state for s in shop.state(log).snapshots if s.run == run.name] == [State.ABORTED]
        assert shop.shown(log) == before[log]


def test_a_step_marked_as_done_that_never_ran_is_noticed_by_the_next(shop: Shop, first: Ran) -> None:
    """Bad input 110."""
    shop.suite("items", PASSES)
    shop.change("items", {4: "d"})
    run = shop.trigger(logs=["items"])
    shop.airflow.api.set_task_state(run.dag, run.id, "quality", "success")
    run.red()
    assert "STEP_NOT_RUN" in run.log("confirm#0")
    assert [s.state for s in shop.state().snapshots if s.run == run.name] == [State.ABORTED]


def test_a_dry_run_names_what_would_go_and_removes_nothing(shop: Shop, first: Ran) -> None:
    shop.change("items", {5: "e"})
    shop.trigger(kind="full").green()
    assert shop.all_equal()  # Nothing is lost that was held back before: the suite that passes finds all of it.
    before = files(shop)
    run = shop.trigger("tidefold_maintenance", dry_run=True).green()
    assert files(shop) == before
    assert {what["result"] for task in ("subsume", "truncate") for what in run.result(task).values()} <= {
        "nothing", "planned",
    }  # fmt: skip
    assert "keeps the log after" in run.log("truncate")


def test_an_older_snapshot_comes_back_and_the_next_run_goes_on(shop: Shop, first: Ran) -> None:
    """L3: a restore by form, first as a dry run."""
    kept = [s for s in shop.state().snapshots if s.state is State.COMPLETED]
    older, before = kept[-2], shop.ledgers()
    dry = shop.trigger("tidefold_restore", log="items", snapshot=older.id).green()
    assert dry.tasks["confirm"] == "skipped"
    assert shop.ledgers() == before
    shop.trigger("tidefold_restore", log="items", snapshot=older.id, log_position="replay", dry_run=False).green()
    assert len(shop.shown("items")) == older.rows
    assert shop.state().latest != before["items"].latest
    shop.trigger(logs=["items"]).green()
    assert shop.all_equal()


def test_a_drill_by_hand_is_recorded(shop: Shop, first: Ran) -> None:
    shop.trigger("tidefold_drill").green()
    latest = shop.state().latest
    assert latest
    assert latest.drill
    assert latest.drill.passed


def test_a_scrub_by_hand_reads_its_share_and_is_recorded(shop: Shop, first: Ran) -> None:
    run = shop.trigger("tidefold_scrub", logs=["items"], share="100%")
    run.green()
    assert run.result("scrub")["items"]["result"] == "whole"
    proof = find_proof(shop.pipeline.store, "items")
    assert proof
    assert (proof.by, proof.share, proof.proved) == ("scrub", 1.0, proof.instant)


def test_a_doctor_by_hand_names_what_it_found_and_keeps_it_for_the_page(shop: Shop, first: Ran) -> None:
    """DAG files are imported in a process of their own, and the connection is the one that the task has."""
    run = shop.trigger("tidefold_doctor", seconds=60).green()
    report = find_report(shop.pipeline.store)
    assert report
    found = {finding.check: finding for finding in report.findings}
    assert sum(run.result("doctor").values()) == len(report.findings)
    assert found["store"].level != "fail"
    assert found["airflow"].message.startswith("Airflow 3.3.2, ")


def test_a_log_that_keeps_failing_is_told_once_and_counts_again_after_a_good_run(shop: Shop, first: Ran) -> None:
    """One failed run is allowed. The other log is published all the time."""
    landing = shop.pipeline.config.path.parent / "landing" / "shop.public.notes"
    away = landing.rename(landing.with_name("away"))
    before = len(shop.told)
    for number in (1, 2, 3):
        shop.change("items", {number: f"while notes fails {number}"})
        assert shop.trigger().red().tasks["alarms"] == "success"
        assert shop.shown("items") == shop.held["items"]
    told = [alarm for message in shop.told[before:] for alarm in message["alarms"]]
    assert [(alarm["log"], alarm["kind"]) for alarm in told] == [("notes", "failures")]
    assert told[0]["message"].startswith("2 runs failed in a row, since ")
    assert "ingest: LANDING_MISSING" in told[0]["message"]
    away.rename(landing)
    shop.trigger().green()
    record = find_alarm_record(shop.pipeline.store, "notes")
    assert record
    assert (record.failures, record.sent) == (0, ())
    assert shop.metrics()["airflow.tidefold.notes.failed_runs"] == 0


def test_who_waits_for_a_table_is_started_by_its_confirm_and_by_nothing_else(shop: Shop, first: Ran) -> None:
    api = shop.airflow.api
    api.set_paused("tidefold_consumer", False)
    shop.trigger(logs=["items"]).green()  # There is nothing new: nothing is confirmed.
    assert api.runs("tidefold_consumer") == []
    shop.change("items", {6: "f"})
    shop.trigger(logs=["items"]).green()
    wait_for(lambda: [r["state"] for r in api.runs("tidefold_consumer")] == ["success"], lambda: "no run")
    [run] = api.runs("tidefold_consumer")
    # Of everything since the DAG is known: the newest of a table last.
    told = [e for e in api.xcom("tidefold_consumer", run["dag_run_id"], "tell") if e["log"] == "items"][-1]
    latest = shop.state().latest
    assert latest
    assert (told["snapshot"], told["version"], told["rows"]) == (latest.id, latest.table_version, 20)


def test_a_killed_worker_is_replaced_and_makes_no_second_snapshot(shop: Shop, first: Ran) -> None:
    """Complaint 8: the process that runs the task dies in mid job, and with it what it started."""
    shop.change("items", {7: "g"})
    with all_on_spark(shop.pipeline.config.path):
        run = shop.trigger(logs=["items"])
        wait_for(lambda: shop.kill_worker("materialize"), lambda: json.dumps(run.tasks))
        run.green()
    made = [s for s in shop.state().snapshots if s.run == run.name]
    assert [s.state for s in made if s.state is not State.ABORTED] == [State.COMPLETED]
    assert shop.all_equal()
    assert not shop.jobs("materialize")


def test_a_report_by_hand_is_red_where_a_check_fails_and_changes_nothing(shop: Shop, first: Ran) -> None:
    """A3: quality reports."""
    shop.suite("items", FAILS)
    before = shop.ledgers()
    run = shop.trigger("tidefold_report").red()
    assert {log: what["result"] for log, what in run.result("audit").items()} == {"items": "failed", "notes": "passed"}
    assert shop.ledgers() == before
    shop.suite("items", PASSES)


@pytest.mark.parametrize(
    ("dag", "conf"),
    [
        ("tidefold_materialize", {"logs": ["unknown"]}),
        ("tidefold_materialize", {"logs": ["../items"]}),
        ("tidefold_materialize", {"logs": "items"}),
        ("tidefold_materialize", {"kind": "{{ 7*7 }}"}),
        ("tidefold_maintenance", {"dry_run": "false"}),
        ("tidefold_maintenance", {"logs": ["items", "items"]}),
        ("tidefold_restore", {"log": "items"}),
        ("tidefold_restore", {"log": "$(id)", "snapshot": 1}),
        ("tidefold_restore", {"log": "items", "snapshot": 0}),
        ("tidefold_restore", {"log": "items", "snapshot": "1; rm -rf /"}),
        ("tidefold_restore", {"log": "items", "snapshot": 1, "log_position": "both"}),
        ("tidefold_drill", {"logs": ["x" * 1_000_000]}),
        ("tidefold_scrub", {"share": "half"}),
        ("tidefold_scrub", {"share": 0.5}),
    ],
    ids=lambda value: value if isinstance(value, str) else hashlib.md5(repr(value).encode()).hexdigest()[:6],
)
def test_what_a_form_may_not_hold_begins_no_run(shop: Shop, first: Ran, dag: str, conf: dict[str, object]) -> None:
    """Bad input 96, 102, 103, 104: refused with 400 before anything runs."""
    known = len(shop.airflow.api.runs(dag))
    with pytest.raises(LocalAirflowError, match=": 400 "):
        shop.airflow.api.trigger(dag, conf)
    assert len(shop.airflow.api.runs(dag)) == known


@pytest.mark.parametrize(
    ("dag", "conf", "task", "code"),
    [
        ("tidefold_restore", {"log": "items", "snapshot": 999}, "restore", "SNAPSHOT_UNKNOWN"),
        ("tidefold_restore", {"log": "items", "snapshot": 1}, "restore", "WRONG_STATE"),
    ],
    ids=["unknown", "subsumed"],
)
def test_what_only_the_ledger_knows_has_the_code_of_the_command_line(
    shop: Shop, first: Ran, dag: str, conf: dict[str, object], task: str, code: str
) -> None:
    """Bad input 100."""
    before = shop.ledgers()
    assert f"[{code}]" in shop.trigger(dag, **conf).red().log(task)
    assert shop.ledgers() == before


def test_a_landed_file_starts_the_dag_that_waits_for_it(shop: Shop, first: Ran) -> None:
    """The last test of the module, because this DAG takes every later change of `notes`."""
    api = shop.airflow.api
    api.set_paused("shop_waiting", False)
    shop.change("notes", {90: "landed"})
    wait_for(lambda: shop.shown("notes") == shop.held["notes"], lambda: json.dumps(api.runs("shop_waiting")))
    latest = shop.state("notes").latest
    assert latest
    assert latest.run.startswith("shop_waiting/asset_triggered__")


def files(shop: Shop) -> dict[str, int]:
    return {entry.path: entry.bytes for entry in shop.pipeline.store.list("")}
