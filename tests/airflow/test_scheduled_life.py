"""A life under the real scheduler (A2, A3): a first run, a suite that fails, the next run, a consumer, a backfill.

Each fixture takes the story one run further and hands it to the tests; any test alone plays what leads to it. What the
DAGs do without a scheduler is in test_dag_runs.py and test_backfill_runs.py.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from local_airflow.errors import LocalAirflowError
from support.airflow_shop import FAILS, LOGS, MATERIALIZE, PASSES, FirstRun, Ran, Shop, wait_for
from support.airflow_stack import java_started, running
from support.statsd_mapping import list_queries, map_names, read_query
from tidefold.domain.commit_times import micros
from tidefold.domain.log_state import LogState, State
from tidefold.domain.paths import LogPaths
from tidefold_airflow.ui.mount import run_path

DAY = timedelta(days=1)
BACKFILL = "tidefold_backfill"
RETENTION = tuple(f"retention.{task}" for task in ("subsume", "truncate", "local_retention", "clean"))
CONSUMER = "tidefold_consumer"


@dataclass(frozen=True)
class Refused:
    """A run whose gate failed, and the stored files before and after it."""

    run: Ran
    before: dict[str, str]
    after: dict[str, str]
    states: dict[str, LogState]


@pytest.fixture(scope="module")
def refused(shop: Shop, first: FirstRun) -> Refused:
    """The changes of two later days, with a suite for `items` that cannot pass; it is put right afterwards."""
    before = shop.files()
    shop.suite("items", FAILS)
    shop.change("items", {1: "b", 20: "b"}, at=first.day + 2 * DAY)
    shop.change("items", {2: "c", 3: None}, at=first.day + 3 * DAY)
    shop.change("notes", {2: "y"})
    run = shop.trigger().red()
    shop.suite("items", PASSES)
    assert shop.shown("notes") == shop.held["notes"]
    return Refused(run, before, shop.files(), shop.ledgers())


@pytest.fixture(scope="module")
def put_right(shop: Shop, refused: Refused) -> Ran:
    """The next run, with the suite that passes, while a consumer waits for its tables."""
    shop.airflow.api.set_paused(CONSUMER, False)
    shop.change("notes", {3: "z"})
    run = shop.trigger().green()
    assert shop.all_equal()
    return run


@pytest.fixture(scope="module")
def consumed(shop: Shop, put_right: Ran) -> dict[str, dict[str, Any]]:
    """What the consumer was told last of each log. Its runs have ended."""
    found: dict[str, dict[str, Any]] = {}

    def told() -> bool:
        runs = [Ran(shop, CONSUMER, run["dag_run_id"]).green() for run in reversed(shop.airflow.api.runs(CONSUMER))]
        found.update({event["log"]: event for run in runs for event in run.result("tell")})
        return {log: event["snapshot"] for log, event in found.items()} == _newest(shop)

    wait_for(told, lambda: json.dumps(found))
    return found


def _newest(shop: Shop) -> dict[str, int]:
    """The id of the newest snapshot of each log."""
    latest = {log: state.latest for log, state in shop.ledgers().items()}
    return {log: snapshot.id for log, snapshot in latest.items() if snapshot}


def test_the_schedulers_own_run_publishes_every_log(shop: Shop, first: FirstRun) -> None:
    assert first.run.id.startswith("scheduled__")
    steps = {task: state for task, state in first.run.tasks.items() if task not in RETENTION}
    assert set(steps) >= {"ingest", "materialize", "quality", "confirm#0", "confirm#1", "abort", "alarms"}
    assert steps.pop("abort") == "skipped"
    assert set(steps.values()) == {"success"}
    for log in LOGS:
        [snapshot] = first.states[log].snapshots
        assert (snapshot.state, snapshot.run) == (State.COMPLETED, first.run.name)
        assert snapshot.published
    assert first.run.result("confirm#0")["items"] == {"result": "published", "snapshot": 1, "error": None}


def test_each_step_of_each_log_is_a_job_of_the_warm_spark(first: FirstRun) -> None:
    """However little there is to do: the event log has its name, and no task starts a JVM."""
    for step in ("ingest", "materialize", "quality"):
        assert {one["engine"] for one in first.run.result(step).values()} == {"spark"}
        assert [log for log in LOGS if not any(job.has(step, log) for job in first.jobs)] == [], first.jobs
    assert first.java == []


def test_every_log_is_announced_once(first: FirstRun) -> None:
    """A3: the event carries what a consumer needs, and the run's last word is the table."""
    for log, rows in (("items", 20), ("notes", 1)):
        [event] = first.events[log]
        assert {name: event[name] for name in ("snapshot", "version", "rows")} == {
            "snapshot": 1, "version": 0, "rows": rows,
        }  # fmt: skip
        assert event["report"].endswith(f"/tidefold/logs/{log}/snapshots/1/report")


def test_numbers_of_each_step_are_sent_as_metrics(first: FirstRun) -> None:
    """Plain StatsD, as a server would get it."""
    assert first.metrics["airflow.tidefold.items.confirm.rows"] == 20
    assert first.metrics["airflow.tidefold.notes.materialize.failed"] == 0
    assert first.metrics["airflow.tidefold.notes.failed_runs"] == 0
    assert {"ingest.changes", "materialize.bytes_written", "quality.seconds", "unreadable"} <= {
        name.removeprefix("airflow.tidefold.items.") for name in first.metrics
    }


def test_lineage_names_what_was_read_and_what_is_shown(first: FirstRun) -> None:
    """OpenLineage: inputs and outputs are not empty."""
    events = [e for e in first.lineage if e["eventType"] == "COMPLETE" and e["job"]["name"].endswith(".confirm")]
    outputs = {one["name"].rpartition("/")[2]: one for event in events for one in event["outputs"]}
    assert set(outputs) == {"items", "notes"}
    assert outputs["items"]["outputFacets"]["outputStatistics"]["rowCount"] == 20
    assert [f["name"] for f in outputs["items"]["facets"]["schema"]["fields"]] == ["id", "text"]
    inputs = {one["name"].rpartition("/")[2] for event in events for one in event["inputs"]}
    assert inputs == {"shop.public.items", "shop.public.notes"}
    fields = outputs["items"]["facets"]["columnLineage"]["fields"]
    assert {name: [one["field"] for one in of["inputFields"]] for name, of in fields.items()} == {
        "id": ["id"], "text": ["text"],
    }  # fmt: skip


def test_airflow_imports_the_dags_without_an_error(shop: Shop) -> None:
    api = shop.airflow.api
    assert api.import_errors() == []
    files = {file.stem for file in shop.airflow.request.dags.glob("*.py")}
    assert {dag["dag_id"] for dag in api.dags()} == {*files, "shop_waiting_approval"}
    for name, words in ((MATERIALIZE, "Publishes tables from landed changes"), ("tidefold_tail", "recovery points")):
        dag = api.get(f"/dags/{name}/details")
        assert dag["max_active_runs"] == 1
        assert words in dag["doc_md"]


def test_everything_listens_on_the_loopback_only(shop: Shop) -> None:
    processes = running(shop.airflow)
    addresses = {c.laddr.ip for p in processes for c in p.net_connections("inet") if c.status == "LISTEN"}
    assert addresses
    assert addresses <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def test_the_password_is_readable_by_its_owner_only(shop: Shop) -> None:
    assert shop.airflow.request.passwords.stat().st_mode & 0o077 == 0
    assert (shop.airflow.request.root / "postgres" / "password").stat().st_mode & 0o077 == 0


def test_a_failing_suite_turns_the_run_red_and_says_why(refused: Refused) -> None:
    """The other log is published meanwhile."""
    tasks = refused.run.tasks
    assert (tasks["confirm#0"], tasks["confirm#1"], tasks["abort"]) == ("failed", "success", "success")
    assert "GATE_FAILED" in refused.run.log("confirm#0")
    [snapshot] = [s for s in refused.states["items"].snapshots if s.run == refused.run.name]
    assert snapshot.state is State.ABORTED
    assert snapshot.verdict
    assert not snapshot.verdict.passed
    [confirm] = [one for one in refused.run.instances if (one["task_id"], one["map_index"]) == ("confirm", 0)]
    assert confirm["try_number"] == 1


def test_the_page_of_a_run_names_its_failed_tasks_once(shop: Shop, first: FirstRun, refused: Refused) -> None:
    """Of one failed copy of `confirm`, and of nothing when the run was green."""
    text = shop.airflow.api.page(run_path(MATERIALIZE, refused.run.id))
    assert "Failed tasks: confirm, alarms. Their logs name the errors." in text
    assert "Failed tasks" not in shop.airflow.api.page(run_path(MATERIALIZE, first.run.id))


def test_a_failing_suite_leaves_what_was_there_byte_for_byte(refused: Refused) -> None:
    before = {path: digest for path, digest in refused.before.items() if "/notes/" not in path}
    assert {path: refused.after.get(path) for path in before} == before
    # Beside it only the new segments, the records that say what was refused and why, and the ledger's marks.
    new = {path for path in refused.after if path not in before and "/items/" in path and "/_tidefold/" not in path}
    records = {"ledger", "quality", "pages", "snapshots", "alarms"}
    assert {path.split("/items/")[1].split("/")[0] for path in new} <= records
    assert not [path for path in new if path.endswith(".parquet")]


def test_the_next_run_publishes_what_the_suite_held_back(shop: Shop, put_right: Ran) -> None:
    [snapshot] = [s for s in shop.state("items").snapshots if s.run == put_right.name]
    assert snapshot.published


def test_each_query_of_the_dashboard_reads_what_runs_send(shop: Shop, put_right: Ran) -> None:
    """Also its labels. What a log has published is sent by the runs after it."""
    sent = dict(map_names(name for name in shop.metrics() if name.startswith("airflow.tidefold.")))
    asked = {title: read_query(query) for title, query in list_queries().items()}
    assert len(asked) > 15
    # No log of the shop reads a topic.
    missing = {title: one for title, one in asked.items() if not one[1] <= sent.get(one[0], frozenset())}
    assert {series for series, _ in missing.values()} == {"tidefold_lag_offsets"}


def test_retention_removes_what_no_kept_snapshot_needs(shop: Shop, refused: Refused, put_right: Ran) -> None:
    """Two snapshots are kept, and `notes` has a third one."""
    assert put_right.result("retention.subsume")["notes"]["result"] == "subsumed"
    assert [s.id for s in shop.state("notes").snapshots if s.state is State.COMPLETED][:2] == [2, 3]
    of_first = [path for path in refused.after if path.startswith(LogPaths("notes").snapshot(1))]
    assert of_first
    assert not set(of_first) & set(shop.files())


def test_who_waits_for_a_table_is_started_by_its_confirm(
    shop: Shop, put_right: Ran, consumed: dict[str, dict[str, Any]]
) -> None:
    [snapshot] = [s for s in shop.state("items").snapshots if s.run == put_right.name]
    told = consumed["items"]
    assert (told["snapshot"], told["version"], told["rows"]) == (snapshot.id, snapshot.table_version, snapshot.rows)


def test_a_task_that_is_cleared_after_its_run_changes_nothing(shop: Shop, put_right: Ran) -> None:
    """Bad input 109, I4: no second event either."""
    before, events = shop.ledgers(), len(shop.airflow.api.asset_events())
    put_right.clear("quality").green()
    assert shop.ledgers() == before
    assert len(shop.airflow.api.asset_events()) == events


def test_a_run_with_nothing_new_starts_no_java_and_writes_nothing(
    shop: Shop, consumed: dict[str, dict[str, Any]]
) -> None:
    """Who waits for a table is not started."""
    before, consumers = shop.files(), shop.airflow.api.runs(CONSUMER)
    with java_started(shop.airflow) as java:
        run = shop.trigger().green()
    assert java == []
    assert "No log has anything to do." in run.log("choose")
    # What has nothing to do costs no process.
    steps = ("ingest", "materialize", "quality", "abort")
    assert {run.tasks[task] for task in steps} == {"skipped"}
    after = shop.files()
    assert {path: before.get(path) for path in after} == after
    assert shop.airflow.api.runs(CONSUMER) == consumers


def test_the_table_is_one_delta_version_a_published_snapshot(shop: Shop, put_right: Ran) -> None:
    for log in LOGS:
        latest = shop.state(log).latest
        assert latest
        versions = [p for p in shop.files(f"{LogPaths(log).table}/_delta_log") if p.endswith(".json")]
        assert latest.table_version == len(versions) - 1


def test_airflows_own_command_makes_a_snapshot_of_each_date(shop: Shop, first: FirstRun, put_right: Ran) -> None:
    """`airflow backfill create`: tagged snapshots with the rows of the ends of two days, and the table as it was."""
    api, days = shop.airflow.api, [first.day + 2 * DAY, first.day + 3 * DAY]
    live = {log: (shop.shown(log), shop.state(log).latest, shop.state(log).change_sets) for log in LOGS}
    words = ["backfill", "create", "--dag-id", BACKFILL, "--from-date", f"{days[0]:%F}", "--to-date", f"{days[1]:%F}"]
    words += ["--dag-run-conf", json.dumps({"logs": ["items"]})]
    command = [str(Path(sys.executable).with_name("airflow")), *words]
    subprocess.run(command, env=dict(shop.airflow.env), check=True, capture_output=True)
    # The run that the scheduler would begin itself is of the second day, which has one by now.
    api.set_paused(BACKFILL, False)
    runs = [Ran(shop, BACKFILL, run["dag_run_id"]).green() for run in api.runs(BACKFILL)]
    assert sorted(run.id.partition("__")[0] for run in runs) == ["backfill", "backfill"]
    last = {**dict.fromkeys(range(20), "a"), 1: "b", 20: "b"}
    assert _rows_at(shop, days[0]) == last
    assert _rows_at(shop, days[1]) == {key: text for key, text in {**last, 2: "c"}.items() if key != 3}
    assert live == {log: (shop.shown(log), shop.state(log).latest, shop.state(log).change_sets) for log in LOGS}


def _rows_at(shop: Shop, noon: datetime) -> dict[int, str]:
    """The rows of the kept snapshot of a date."""
    state, end = shop.state("items"), noon + DAY / 2
    [made] = [s for s in state.snapshots if s.as_of and s.as_of.at == micros(end.isoformat())]
    assert (f"as-of-{end:%F}", made.id) in [(tag.name, tag.snapshot) for tag in state.tags]
    table = DeltaTable(shop.pipeline.store.uri(LogPaths("items").snapshot(made.id))).to_pyarrow_table()
    return {row["id"]: row["text"] for row in table.to_pylist()}


@pytest.mark.parametrize(
    ("dag", "conf"),
    [
        (MATERIALIZE, {"logs": ["unknown"]}),
        (MATERIALIZE, {"logs": ["../items"]}),
        (MATERIALIZE, {"logs": "items"}),
        (MATERIALIZE, {"kind": "{{ 7*7 }}"}),
        ("tidefold_maintenance", {"dry_run": "false"}),
        ("tidefold_maintenance", {"logs": ["items", "items"]}),
        ("tidefold_restore", {"log": "items", "log_position": "replay"}),
        ("tidefold_restore", {"log": "items", "snapshot": 1}),
        ("tidefold_restore", {"log": "$(id)", "snapshot": 1, "log_position": "replay"}),
        ("tidefold_restore", {"log": "items", "snapshot": 0, "log_position": "replay"}),
        ("tidefold_restore", {"log": "items", "snapshot": "1; rm -rf /", "log_position": "replay"}),
        ("tidefold_restore", {"log": "items", "snapshot": 1, "log_position": "both"}),
        ("tidefold_drill", {"logs": ["x" * 1_000_000]}),
        ("tidefold_scrub", {"share": "half"}),
        ("tidefold_scrub", {"share": 0.5}),
        (BACKFILL, {"as_of": "2025-11-05"}),
    ],
    ids=lambda value: value if isinstance(value, str) else hashlib.md5(repr(value).encode()).hexdigest()[:6],
)
def test_what_a_form_may_not_hold_begins_no_run(shop: Shop, dag: str, conf: dict[str, object]) -> None:
    """Bad input 95, 96, 102, 103, 104: refused with 400 before anything runs."""
    known = len(shop.airflow.api.runs(dag))
    with pytest.raises(LocalAirflowError, match=": 400 "):
        shop.airflow.api.trigger(dag, conf)
    assert len(shop.airflow.api.runs(dag)) == known


def test_a_range_of_dates_that_cannot_be_begins_no_backfill(shop: Shop, first: FirstRun) -> None:
    """Bad input 94, 95: it ends before it begins, or has not passed."""
    later = first.day + 7 * DAY
    for since, until in ((first.day, first.day - DAY), (later, later)):
        body: dict[str, Any] = {"dag_id": BACKFILL, "from_date": since.isoformat(), "to_date": until.isoformat()}
        with pytest.raises(LocalAirflowError, match=r": 4\d\d "):
            shop.airflow.api.call("POST", "/backfills", body)
