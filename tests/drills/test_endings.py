"""A user's own DAG around tidefold's tasks, in a live Airflow: each ending of a run, each task failed once, and a kill
of scheduler, triggerer and workers while a person is asked.

Issue 52. What was seen is in docs/contributors/endings.md.
"""

from __future__ import annotations

import json
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local_airflow.processes import Register, members
from local_airflow.settings import PROJECT, Request
from local_airflow.stack import LocalAirflow, _airflow, down, up
from support import airflow_shop as small
from support.airflow_shop import FAILS, LOGS, PASSES, Ran, Shop, wait_for
from support.airflow_stack import SELDOM
from tidefold.domain.log_state import State
from tidefold.domain.paths import LogPaths
from tidefold.wiring import open_pipeline

_DAG = """\
from datetime import timedelta

from airflow.sdk import DAG, task
from airflow.sdk.exceptions import AirflowFailException

from tidefold_airflow import Options, table_asset, tidefold_group
from tidefold_airflow.operators import base, spark


def _fail_as_asked(self, context):
    if context["dag_run"].conf.get("fail") == context["ti"].task_id.rpartition(".")[2]:
        raise AirflowFailException("as asked")


base.TidefoldLogOperator.pre_execute = spark.TidefoldSparkOperator.pre_execute = _fail_as_asked

for name, approval, require in (("own", None, "all"), ("own_any", None, "any"), ("asking", timedelta(hours=1), "all")):
    with DAG(name, schedule=None, max_active_runs=1) as dag:

        @task
        def before():
            return "landed"

        @task
        def after():
            return "told"

        options = Options({config!r}, approval=approval, look_every=timedelta(seconds=30))
        before() >> tidefold_group(options=options, require=require) >> after()
    globals()[name] = dag

with DAG("told", schedule=[table_asset("items", {config!r})]) as told:

    @task
    def refresh():
        return "told"

    refresh()
"""
TASKS = (
    "choose", "ingest", "materialize", "quality", "confirm", "read_back", "subsume", "truncate", "local_retention",
    "clean", "published", "abort", "alarms",
)  # fmt: skip
_GROUP = {"subsume", "truncate", "local_retention", "clean"}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    root = tmp_path_factory.mktemp("endings")
    config = small.prepare(root)
    dags = root / "dags"
    dags.mkdir()
    (dags / "own.py").write_text(_DAG.format(config=str(config)))
    for name in ("tidefold_restore.py", "tidefold_resume.py"):
        (dags / name).symlink_to(PROJECT / "dags" / name)
    nobody = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    request = Request(root, config, "", dags=dags, quick_spark=True, warm_spark=True, more=SELDOM)
    made = Shop(open_pipeline(config), airflow=up(request, print), statsd=nobody)
    try:
        yield made
    finally:
        down(root, print)


def _key(task: str) -> str:
    return f"tidefold.retention.{task}" if task in _GROUP else f"tidefold.{task}"


def _run(shop: Shop, dag: str = "own", **conf: Any) -> Ran:
    ran = shop.trigger(dag, **conf).ended()
    seen = {name.removeprefix("tidefold."): state for name, state in ran.tasks.items()}
    print(json.dumps({"dag": dag, "conf": conf, "run": ran.state, "tasks": seen}), flush=True)
    return ran


def _states(ran: Ran) -> dict[str, str]:
    tasks = ran.tasks
    whole = tasks.get("tidefold.confirm", "")
    return {log: tasks.get(f"tidefold.confirm#{number}", whole) for number, log in enumerate(LOGS)}


def _change(shop: Shop, number: int, *logs: str) -> None:
    for log in logs or LOGS:
        shop.change(log, {number: f"text {number}"})


def test_published_then_nothing_new(shop: Shop) -> None:
    _change(shop, 1)
    ran = _run(shop)
    assert (ran.state, ran.tasks["after"], _states(ran)) == ("success", "success", dict.fromkeys(LOGS, "success"))
    assert ran.result("tidefold.published") == {"published": list(LOGS)}
    assert ran.tasks["tidefold.abort"] == "skipped"
    assert shop.all_equal()
    assert len(shop.events("items")) == 1
    ran = _run(shop)
    assert (ran.state, ran.tasks["after"]) == ("success", "success")
    assert set(_states(ran).values()) == {"skipped"}
    assert ran.result("tidefold.published") == {"nothing new": list(LOGS)}
    assert len(shop.events("items")) == 1
    wait_for(lambda: len(shop.airflow.api.runs("told")) == 1, lambda: "the asset started nothing")


@pytest.mark.parametrize("task", TASKS)
def test_a_failure_of_each_task_makes_the_run_red_and_abort_waits(shop: Shop, task: str) -> None:
    _change(shop, 100 + TASKS.index(task))
    ran = _run(shop, fail=task)
    found = {one["task_id"]: one for one in ran.instances}
    failed = {name for name, state in ran.tasks.items() if state == "failed"}
    also = {"tidefold.confirm"} if task == "quality" else set()
    assert {name.partition("#")[0] for name in failed} == {_key(task), "tidefold.alarms", *also}
    assert ran.state == "failed"
    # What comes after the publication leaves what was published, and does not stop what follows.
    stops = task in (*TASKS[:6], "published")
    assert ran.tasks["after"] in (("upstream_failed", "skipped") if stops else ("success",))
    abort = found["tidefold.abort"]
    if abort["start_date"]:
        ends = [one["end_date"] for one in ran.instances if one["task_id"].rpartition(".")[2] in TASKS[2:5]]
        assert all(end is None or end <= abort["start_date"] for end in ends)
    if task in ("quality", "confirm"):
        assert abort["state"] == "success"
    assert shop.state().open_attempt is None


def test_what_was_skipped_stays_skipped(shop: Shop) -> None:
    _change(shop, 200)
    _run(shop)
    assert shop.all_equal()
    ran = _run(shop, fail="alarms")
    assert ran.state == "failed"
    assert ran.tasks["tidefold.materialize"] == ran.tasks["tidefold.abort"] == "skipped"


def test_stopped_on_purpose(shop: Shop) -> None:
    completed = [one.id for one in shop.state().snapshots if one.state is State.COMPLETED]
    form = {"log": "items", "snapshot": completed[0], "log_position": "stay", "dry_run": False}
    shop.trigger("tidefold_restore", **form).green()
    _change(shop, 210)
    ran = _run(shop)
    assert (ran.state, ran.tasks["after"]) == ("success", "success")
    assert _states(ran) == {"items": "skipped", "notes": "success"}
    assert ran.result("tidefold.published") == {"published": ["notes"], "stopped on purpose": ["items"]}
    said = ran.log("tidefold.confirm#0")
    assert "stopped" in said
    assert "`tidefold move resume items`" in said
    form = {"log": "notes", "snapshot": shop.state("notes").snapshots[-1].id, "log_position": "stay", "dry_run": False}
    shop.trigger("tidefold_restore", **form).green()
    ran = _run(shop)
    assert (ran.state, ran.tasks["after"]) == ("success", "skipped")
    for log in LOGS:
        shop.trigger("tidefold_resume", log=log).green()
    assert _run(shop).state == "success"
    assert shop.all_equal()


def test_waits_for_a_person_who_answers_after_scheduler_triggerer_and_workers_were_killed(shop: Shop) -> None:
    shop.suite("items", FAILS)
    _change(shop, 300)
    ran = _run(shop, "asking")
    assert (ran.state, ran.tasks["after"]) == ("success", "skipped")
    assert _states(ran) == {"items": "skipped", "notes": "success"}
    assert "waits for a person: items" in ran.log("tidefold.published")
    before = len(shop.events("items"))
    [asked] = shop.airflow.api.runs("asking.tidefold_approval")
    question = Ran(shop, "asking.tidefold_approval", asked["dag_run_id"]).reached("ask", "awaiting_input")
    _kill(shop.airflow, "scheduler", "triggerer")
    wait_for(lambda: shop.airflow.api.health().get("scheduler") == "healthy", lambda: str(shop.airflow.api.health()))
    # Other logs go on, and the log that waits is left out, by name.
    _change(shop, 301, "notes")
    later = _run(shop, "asking")
    assert (later.state, _states(later)) == ("success", {"items": "skipped", "notes": "success"})
    attempt = shop.state().open_attempt
    assert attempt
    assert attempt.state is State.STAGED
    shop.suite("items", PASSES)
    question.answer({"ask": ("Approve", "the source is right")}).green()
    assert shop.shown("items")[300] == "text 300"
    assert len(shop.events("items")) == before + 1
    assert shop.events("items")[-1]["override_by"] == "admin"


def _kill(airflow: LocalAirflow, *names: str) -> None:
    """Kills the sessions of parts of Airflow at once, with the workers in them, and starts the parts again."""
    register = Register(airflow.request.root / "processes.json")
    for entry in [one for one in register.read() if one.name in names]:
        for process in list(members(entry)):
            process.kill()
        register.forget(entry)
    for name in names:
        register.start(name, _airflow(name, "--skip-serve-logs"), airflow.env, airflow.log(name))


def test_a_question_that_died_stays_staged_and_the_next_run_says_so(shop: Shop) -> None:
    shop.suite("items", FAILS)
    _change(shop, 310)
    _run(shop, "asking")
    dag = "asking.tidefold_approval"
    [asked] = [run["dag_run_id"] for run in shop.airflow.api.runs(dag) if run["state"] in ("queued", "running")]
    question = Ran(shop, dag, asked).reached("ask", "awaiting_input")
    shop.airflow.api.set_task_state(dag, asked, "ask", "failed")
    question.red()
    attempt = shop.state().open_attempt
    assert attempt
    assert attempt.state is State.STAGED
    later = _run(shop, "asking")
    assert later.state == "failed"
    assert "APPROVAL_ENDED" in later.log("tidefold.materialize")
    shop.suite("items", PASSES)
    question.clear("ask").reached("ask", "awaiting_input").answer({"ask": ("Reject", "not now")}).red()
    assert shop.state().open_attempt is None
    _run(shop)
    assert shop.all_equal()


def test_refused_and_what_follows_any(shop: Shop) -> None:
    shop.suite("items", FAILS)
    _change(shop, 320)
    ran = _run(shop, "own_any")
    assert (ran.state, _states(ran)) == ("failed", {"items": "failed", "notes": "success"})
    assert ran.tasks["tidefold.abort"] == "success"
    assert ran.tasks["after"] == "success"
    assert ran.result("tidefold.published") == {"published": ["notes"], "refused": ["items"]}
    _change(shop, 321)
    ran = _run(shop)
    assert (ran.state, ran.tasks["after"]) == ("failed", "skipped")
    shop.suite("items", PASSES)
    assert _run(shop).state == "success"
    assert shop.all_equal()


def test_rows_left_out(shop: Shop) -> None:
    shop.change("items", {900: "__debezium_unavailable_value"}, op="u")
    held = shop.held["items"].pop(900)
    ran = _run(shop)
    assert (ran.state, _states(ran)["items"], ran.tasks["after"]) == ("failed", "success", "skipped"), held
    assert ran.result("tidefold.published")["rows left out"] == ["items"]
    shop.change("items", {900: "there"})
    assert _run(shop).state == "success"
    assert shop.all_equal()


def test_failed(shop: Shop) -> None:
    suite = shop.folder / "quality" / "items.yaml"
    suite.unlink()
    _change(shop, 330)
    ran = _run(shop)
    suite.write_text(PASSES)
    assert (ran.state, ran.tasks["after"]) == ("failed", "skipped")
    assert (ran.tasks["tidefold.quality"], ran.tasks["tidefold.abort"]) == ("failed", "success")
    assert ran.result("tidefold.published") == {"published": ["notes"], "failed": ["items"]}
    assert _run(shop).state == "success"
    assert shop.all_equal()


def test_damaged(shop: Shop) -> None:
    state = shop.state()
    assert state.latest
    for path in (entry.path for entry in shop.pipeline.store.list(LogPaths("items").table)):
        if path.endswith(".parquet"):
            file = Path(shop.pipeline.store.uri(path).removeprefix("file://"))
            kept = file.read_bytes()
            file.unlink()
            file.write_bytes(b"x" * len(kept))
    shutil.rmtree(shop.folder / "local")
    _change(shop, 340, "items")
    ran = _run(shop)
    assert (ran.state, ran.tasks["after"]) == ("failed", "skipped")
    print(json.dumps(ran.result("tidefold.published")), time.time())
    assert "items" in ran.result("tidefold.published")["damaged"]
