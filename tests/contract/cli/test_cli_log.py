"""The verbs about the log and about what is kept of it: what they print, and that none of them needs Spark by itself.

Requirements C10, C11, C12, N2.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import tidefold
from support.commands import attempt as call
from support.commands import call_json
from support.lives import abort, claim, live
from support.loaded_modules import run_and_find_loaded
from support.pipelines import CONFIG, judge_all, make_pipeline, put, table_rows
from tidefold.changelog.write_intents import Intent, IntentLog, begin
from tidefold.cli import full_run, spark_submit
from tidefold.compute.runners import in_process
from tidefold.operations.ground.heartbeat import LEAST_PATIENCE
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.recovery import PATIENCE
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.spark.request import Request, make_argument
from tidefold.spark.submit import Command

PROJECT = Path(tidefold.__file__).resolve().parents[2]
KEEPING = CONFIG.replace("store: store\n", "store: store\nretention: {snapshots: 2}\nspark: {above: 0B}\n")


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Snapshot 1 of 20 rows is published."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    made = make_pipeline(tmp_path, KEEPING)
    put(made, [{"id": i, "text": f"a {i}"} for i in range(20)])
    cycle(made, "run-1")
    return made


def cycle(pipeline: Pipeline, run: str) -> None:
    materialize(pipeline, ["accounts"], Fold(run), in_process)
    judge_all(pipeline)
    assert confirm(pipeline, "accounts", Confirmation(run=run)).status == "published"


def only(*arguments: str) -> Any:
    """The one outcome that a call prints."""
    said = call_json(*arguments)
    assert (said["command"], said["exit_code"]) == (" ".join(arguments[: 1 if arguments[0] == "restore" else 2]), 0)
    [outcome] = said["outcomes"]
    return outcome


def test_tail_says_what_it_consists_of_and_the_same_run_again_says_so(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 1, "text": "b"}, {"id": 2, "text": "b"}])
    done = call("snapshot", "tail", "accounts", "--run-id", "t-1")
    assert done.stdout == "accounts: completed: snapshot 2 is snapshot 1 and 2 changes after it\n"
    assert done.stderr == "next: tidefold snapshot history LOG\n"
    again = only("snapshot", "tail", "accounts", "--run", "t-1")
    assert (again["result"], again["snapshot"]) == ("already", 2)
    nothing = call("snapshot", "tail")
    assert nothing.exit_code == 0
    assert nothing.stdout.splitlines() == [
        "accounts: nothing: nothing new since the newest snapshot",
        "tellers: nothing: nothing was ingested yet",
    ]


def test_a_log_that_has_no_tail_to_take_does_not_stop_the_others(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 1, "text": "b"}])
    put(pipeline, [{"id": 1, "text": "b"}], log="tellers")
    said = call("snapshot", "tail", "tellers", "accounts")
    assert said.exit_code == 3
    assert "[NOTHING_MATERIALIZED]" in said.stderr
    assert "accounts: completed" in said.stdout


def test_squash_plans_first_and_then_does_it(pipeline: Pipeline) -> None:
    for number in range(4):
        put(pipeline, [{"id": 1, "text": f"{number}"}], transaction=number + 2)
    before = pipeline.store.list("")
    assert call("retain", "compact", "accounts", "--dry-run").stdout == (
        "accounts: planned: would compact 4 change sets into 1\n"
    )
    assert pipeline.store.list("") == before
    done = call("retain", "compact", "accounts")
    assert done.stdout == "accounts: compacted: compacted 4 change sets into 1: 2 of 4 changes are left\n"
    assert "next: tidefold retain truncate" in done.stderr
    assert "4 segments wait to be removed by `tidefold retain truncate accounts`." in call("status", "accounts").stdout
    assert only("retain", "truncate", "accounts")["facts"]["files"] == 5


def test_retain_alone_is_the_plan_of_all_and_changes_nothing(pipeline: Pipeline) -> None:
    for number in (2, 3, 4):
        put(pipeline, [{"id": number, "text": "b"}])
        cycle(pipeline, f"run-{number}")
    for number in range(3):
        put(pipeline, [{"id": 1, "text": f"{number}"}])
    before = pipeline.store.list("")
    done = call("retain")
    headings = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert headings == ["subsume", "truncate", "compact", "clean: nothing", "clean --local: nothing"]
    assert "  accounts: planned: would compact 3 change sets into 1" in done.stdout
    plans = call_json("retain", "plan", "accounts")["plans"]
    assert plans["subsume"] == call_json("retain", "subsume", "accounts", "--dry-run")["outcomes"]
    assert call("retain", "--config", "none.yaml").exit_code == 4
    assert pipeline.store.list("") == before


def test_hold_and_release(pipeline: Pipeline) -> None:
    held = only("snapshot", "hold", "accounts", "audit", "1", "--reason", "until May")
    assert (held["result"], held["snapshot"]) == ("held", 1)
    assert only("snapshot", "hold", "accounts", "audit", "1", "--reason", "until May")["result"] == "already"
    assert "hold audit keeps snapshot 1 and the log after it: until May." in call("status", "accounts").stdout
    for number in (2, 3, 4):
        put(pipeline, [{"id": number, "text": "b"}])
        cycle(pipeline, f"run-{number}")
    shown = call("retain", "truncate", "accounts", "--dry-run").stdout
    assert "accounts: hold audit keeps the log after 1: it is held: until May" in shown
    assert only("snapshot", "release", "accounts", "audit")["result"] == "released"
    assert only("snapshot", "release", "accounts", "audit")["result"] == "nothing"
    assert "hold" not in call("retain", "truncate", "accounts", "--dry-run").stdout


def test_a_hold_needs_a_reason_and_a_snapshot_that_is_kept(pipeline: Pipeline) -> None:
    assert call("snapshot", "hold", "accounts", "audit", "1").exit_code == 2
    for arguments, code, exit_code in (
        (("audit", "1", "--reason", " "), "HOLD_REASON_MISSING", 2),
        (("../x", "1", "--reason", "y"), "NAME_INVALID", 2),
        (("audit", "9", "--reason", "y"), "SNAPSHOT_UNKNOWN", 4),
    ):
        refused = call("snapshot", "hold", "accounts", *arguments)
        assert (refused.exit_code, f"[{code}]" in refused.stderr) == (exit_code, True)


def test_a_consumer_is_noted_moved_and_forgotten(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 1, "text": "b"}])
    assert only("consumer", "register", "accounts", "index", "--at", "1")["facts"] == {"sqn": 1}
    assert only("consumer", "register", "accounts", "index", "--at", "2")["result"] == "registered"
    assert "consumer index has read up to change set 2." in call("status", "accounts").stdout
    [found] = call_json("status", "accounts")["logs"]
    assert found["consumers"] == [{"name": "index", "sqn": 2}]
    beyond = call("consumer", "register", "accounts", "index", "--at", "3")
    assert (beyond.exit_code, "[CONSUMER_OUTSIDE_LOG]" in beyond.stderr) == (3, True)
    assert only("consumer", "remove", "accounts", "index")["result"] == "unregistered"
    assert only("consumer", "remove", "accounts", "index")["result"] == "nothing"


def test_clean_plans_which_runs_end_and_names_their_files(pipeline: Pipeline) -> None:
    """C11: mark, then sweep."""
    assert call("retain", "clean", "accounts").stdout.splitlines() == [
        "(store): nothing: no unfinished run",
        "accounts: nothing: nothing was left behind",
    ]
    old = (datetime.now(UTC) - PATIENCE - timedelta(minutes=1)).isoformat(timespec="seconds")
    young = datetime.now(UTC).isoformat(timespec="seconds")
    shape = pipeline.log("accounts").shape
    for run, instant in (("dead", old), ("young", young)):
        path = f"changelog/test/{run}.seg"
        begin(pipeline.store, Intent(run, 0, instant, (IntentLog("accounts", shape, 0),), (path,)))
        with pipeline.store.create(path) as stream:
            stream.write(b"half")
    before = pipeline.store.list("")
    planned = call("retain", "clean", "accounts", "--dry-run")
    assert planned.stdout.splitlines() == [
        "(store): planned: would end 1 unfinished run, 1 announced file; those that no log needs would be deleted",
        "accounts: nothing: nothing was left behind",
        "  (store): changelog/test/dead.seg",
        "  (store): in all 1 file",
    ]
    assert pipeline.store.list("") == before
    store, _ = call_json("retain", "clean", "accounts")["outcomes"]
    assert (store["result"], store["facts"]["runs"]) == (
        "cleaned",
        [{"run": "dead", "logs": ["accounts"], "written": False, "files": ["changelog/test/dead.seg"]}],
    )
    left = {e.path for e in pipeline.store.list("")}
    assert "changelog/test/dead.seg" not in left
    assert "changelog/test/young.seg" in left


def test_clean_removes_the_files_of_aborted_attempts(pipeline: Pipeline) -> None:
    live(pipeline, claim("run-2"))
    put(pipeline, [{"id": 1, "text": "b"}])
    live(pipeline, claim("run-2"), abort)
    path = "snapshots/accounts/0000000002/late"
    pipeline.store.put_if_absent(path, b"late")
    assert f"  accounts: {path}" in call("retain", "clean", "accounts", "--dry-run").stdout
    assert only_of("accounts", call_json("retain", "clean", "accounts"))["facts"]["files"] == 1
    assert path not in {e.path for e in pipeline.store.list("")}


def only_of(log: str, said: Any) -> Any:
    return next(o for o in said["outcomes"] if o["log"] == log)


def test_restore_stages_an_old_snapshot_without_spark_and_says_what_comes_next(pipeline: Pipeline) -> None:
    first = table_rows(pipeline)
    put(pipeline, [{"id": 1, "text": "b"}])
    cycle(pipeline, "run-2")
    done = call("restore", "accounts", "1", "--log-position", "replay", "--run-id", "back")
    assert done.exit_code == 0
    assert "starting Spark" not in done.stderr
    assert done.stdout.startswith("accounts: staged: snapshot 3: 20 rows; 4 of 4 files taken over")
    assert "; the rows of snapshot 1; folded again by the next run: change set 2\n" in done.stdout
    assert "next: tidefold step quality accounts, then tidefold step confirm accounts" in done.stderr
    again = only("restore", "accounts", "1", "--log-position", "replay", "--run", "back")
    assert (again["result"], again["snapshot"]) == ("already", 3)
    judge_all(pipeline)
    assert call("step", "confirm", "accounts").exit_code == 0
    assert table_rows(pipeline) == first


def test_restore_says_which_mode_it_needs_and_what_it_cannot_bring_back(pipeline: Pipeline) -> None:
    unsaid = call("restore", "accounts", "1")
    assert (unsaid.exit_code, "--log-position" in unsaid.stderr) == (2, True)
    unknown = call("restore", "accounts", "9", "--log-position", "skip")
    assert (unknown.exit_code, "[SNAPSHOT_UNKNOWN]" in unknown.stderr) == (4, True)


def job(monkeypatch: pytest.MonkeyPatch, requests: list[Any]) -> None:
    """In place of Spark, a process that leaves no outcome; what was asked of it is kept."""
    monkeypatch.setattr(spark_submit, "require_java", lambda: None)

    def submit(config: object, request: Any) -> Command:
        requests.append(request)
        return Command((sys.executable, "-c", ""), {})

    monkeypatch.setattr(spark_submit, "submit_command", submit)


def test_the_restore_of_a_tail_asks_the_materialize_job(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    put(pipeline, [{"id": 1, "text": "b"}])
    only("snapshot", "tail", "accounts")
    requests: list[Any] = []
    job(monkeypatch, requests)
    call("restore", "accounts", "2", "--log-position", "skip", "--run", "back")
    [request] = requests
    asked = request.step.request.point
    assert (request.step.name, request.logs, asked.snapshot) == ("materialize", ("accounts",), 2)
    assert asked.mode == "skip"
    assert msgspec.json.decode(make_argument(request), type=Request) == request


def test_history_tells_kinds_bases_and_where_restored_rows_came_from(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 1, "text": "b"}])
    only("snapshot", "tail", "accounts")
    put(pipeline, [{"id": 2, "text": "c"}])
    assert "snapshot 2 is snapshot 1 and the change sets up to 2." in call("status", "accounts").stdout
    cycle(pipeline, "run-3")
    [found] = call_json("status", "accounts")["logs"]
    assert found["tail"] is None  # The newest snapshot has it all.
    only("restore", "accounts", "1", "--log-position", "skip", "--run", "back")
    text = call("snapshot", "history", "accounts").stdout
    assert max(len(line) for line in text.splitlines()) <= 100
    rows = [line.split() for line in text.splitlines()]
    assert [row[:6] for row in rows if row and row[0].isdigit()] == [
        ["4", "STAGED", "full", "3", "3", "-"],
        ["3", "COMPLETED", "full", "2", "1", "2-3"],
        ["2", "COMPLETED", "tail", "1", "1", "2-2"],
        ["1", "COMPLETED", "full", "1", "-", "1-1"],
    ]
    assert "4: run back; restored from snapshot 1; left out change sets 2 to 3" in text.splitlines()
    said = call_json("snapshot", "history", "accounts")["snapshots"]
    assert [(s["id"], s["restored"], s["skipped_from"]) for s in said][:2] == [(4, 1, 1), (3, None, None)]


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was slept, while no time passes."""
    slept: list[float] = []
    monkeypatch.setattr(full_run, "time", SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append))
    return slept


@pytest.mark.parametrize("verb", ["step materialize", "run"])
def test_takeover_after_waits_in_the_open_and_supersedes_what_stands_still(
    verb: str, pipeline: Pipeline, asleep: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(pipeline, [{"id": 1, "text": "b"}])
    live(pipeline, claim("dead"))
    requests: list[Any] = []
    job(monkeypatch, requests)
    assert "[ATTEMPT_OPEN]" in call(*verb.split(), "accounts").stderr
    assert (requests, asleep) == ([], [])
    done = call(*verb.split(), "accounts", "--takeover-after", f"{LEAST_PATIENCE:.0f}")
    assert sum(asleep) == LEAST_PATIENCE
    assert "materialize: waiting 60 s for progress of another run's attempt" in done.stderr
    assert "materialize: still waiting, 30 s" in done.stderr
    assert "accounts: taking over snapshot 2 of run dead, which makes no progress" in done.stderr
    [asked] = [r.step.request for r in requests if r.step.name == "materialize"]
    assert asked.stalled["accounts"].attempt.run == "dead"
    assert asked.takeover is False


def test_takeover_after_waits_for_nobody_where_nothing_is_open(pipeline: Pipeline, asleep: list[float]) -> None:
    assert only_of("accounts", call_json("step", "materialize", "--takeover-after", "600"))["result"] == "nothing"
    assert asleep == []
    short = call("step", "materialize", "--takeover-after", "5")
    assert (short.exit_code, "[PATIENCE_TOO_SHORT]" in short.stderr) == (2, True)


LIGHT = [
    ["snapshot", "tail", "accounts"],
    ["retain", "compact", "accounts"],
    ["retain", "clean"],
    ["snapshot", "hold", "accounts", "audit", "1", "--reason", "audit"],
    ["consumer", "register", "accounts", "index", "--at", "1"],
    ["restore", "accounts", "1", "--log-position", "replay"],
]


def test_none_of_them_loads_spark(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 1, "text": "b"}])
    assert run_and_find_loaded(LIGHT) == [(0, ())] * len(LIGHT)
