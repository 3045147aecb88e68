"""One pending approval holds its own log, and nothing else: two pipelines, three DAGs, the real scheduler.

Issue 18, point 5; decision 0025.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from local_airflow.settings import Request
from local_airflow.stack import LocalAirflow, down, up
from support import airflow_shop as small
from support.airflow_shop import FAILS, PASSES, Ran, Shop, wait_for
from support.airflow_stack import SELDOM
from tidefold.domain.log_state import State
from tidefold.operations.snapshot.abort import abort
from tidefold.wiring import open_pipeline

_EVERY = '"* * * * *"'
_WHOLE = """\
from datetime import timedelta
from tidefold_airflow.dags.factory import tidefold_dag

dag = tidefold_dag("{dag}", schedule={every}, config="{config}", logs={logs}, approval=timedelta(hours=1),
                   look_every=timedelta(seconds=60))
"""
_GROUP = """\
from datetime import UTC, datetime, timedelta
from airflow.sdk import DAG, CronDataIntervalTimetable
from tidefold_airflow.dags.factory import Options, tidefold_group

options = Options("{config}", approval=timedelta(hours=1), look_every=timedelta(seconds=60))
with DAG("{dag}", schedule=CronDataIntervalTimetable({every}, timezone="UTC"), catchup=False, max_active_runs=1,
         start_date=datetime(2025, 1, 1, tzinfo=UTC)):
    tidefold_group(logs={logs}, options=options)
"""
DAGS = ("alpha", "beta", "gamma")
ROUNDS = 4
# Three DAGs and a question that is looked at again and again; each round may take minutes on a busy machine.
_MORE = {**SELDOM, "AIRFLOW__CORE__PARALLELISM": "4"}
_SECONDS = 900


@dataclass
class Town:
    """Two pipelines with logs of the same names. `alpha` has one DAG for both logs, `beta` one for each."""

    airflow: LocalAirflow
    alpha: Shop
    beta: Shop

    def change(self, number: int) -> None:
        for shop in (self.alpha, self.beta):
            for log in small.LOGS:
                shop.change(log, {number: f"text {number}"})

    def others_show_all(self) -> bool:
        """All tables but that of the log that may wait."""
        shown = [(self.alpha, "notes"), (self.beta, "items"), (self.beta, "notes")]
        return all(_shows_all(shop, log) for shop, log in shown)

    def runs(self, dag: str) -> list[dict[str, Any]]:
        return self.airflow.api.runs(dag)

    def question(self, dag: str) -> Ran:
        """The run of an approval DAG that waits for a person."""
        wait_for(lambda: self._open(dag) is not None, lambda: _states(self), _SECONDS)
        run = self._open(dag)
        assert run
        return Ran(self.alpha, dag, run).reached("ask", "awaiting_input")

    def _open(self, dag: str) -> str | None:
        return next((str(r["dag_run_id"]) for r in self.runs(dag) if r["state"] == "running"), None)


def _shows_all(shop: Shop, log: str) -> bool:
    state = shop.pipeline.ledger(log).find()
    latest = state.latest if state else None
    return latest is not None and latest.published and shop.shown(log) == shop.held[log]


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    root = tmp_path_factory.mktemp("town")
    configs = [small.prepare(root / name) for name in ("alpha", "beta")]
    dags = root / "dags"
    dags.mkdir()
    made = (
        {"dag": "alpha", "config": configs[0], "logs": "()"},
        {"dag": "beta", "config": configs[1], "logs": ["items"]},
    )
    for values in made:
        (dags / f"{values['dag']}.py").write_text(_WHOLE.format(every=_EVERY, **values))
    (dags / "gamma.py").write_text(_GROUP.format(every=_EVERY, dag="gamma", config=configs[1], logs=["notes"]))
    airflow = up(Request(root / "airflow", configs[0], "", dags=dags, quick_spark=True, more=_MORE, paused=True), print)
    nobody = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        alpha, beta = (Shop(open_pipeline(config), airflow=airflow, statsd=nobody) for config in configs)
        yield Town(airflow, alpha, beta)
    finally:
        down(root / "airflow", print)


def test_two_groups_and_dags_bring_their_own_approvals_which_are_never_paused(town: Town) -> None:
    found = {dag["dag_id"]: dag["is_paused"] for dag in town.airflow.api.dags()}
    assert found == {
        "alpha": True, "beta": True, "gamma": True,
        "alpha_approval": False, "beta_approval": False, "gamma.tidefold_approval": False,
    }  # fmt: skip
    assert town.airflow.api.import_errors() == []


def test_one_pending_approval_stops_nothing_else(town: Town) -> None:
    """Four scheduled runs of three DAGs over two pipelines go on while one log waits; then it is published.

    Each change lands when the one before is published. By then a run has ingested what it will ingest, and only one
    run of a DAG is active: so another run publishes each change.
    """
    town.change(0)
    for dag in DAGS:
        town.airflow.api.set_paused(dag, False)
    wait_for(lambda: town.others_show_all() and _shows_all(town.alpha, "items"), lambda: _states(town), _SECONDS)
    town.alpha.suite("items", FAILS)
    town.change(1)
    question = town.question("alpha_approval")
    asked = town.alpha.state().open_attempt
    assert asked
    since = time.time()
    before = {dag: len(town.runs(dag)) for dag in DAGS}
    for number in range(2, 2 + ROUNDS):
        town.change(number)
        wait_for(town.others_show_all, lambda: _states(town), _SECONDS)
    print(f"{ROUNDS} rounds of all other logs took {time.time() - since:.0f} s")
    assert all(len(town.runs(dag)) >= before[dag] + ROUNDS - 1 for dag in DAGS)
    assert not any(run["state"] == "failed" for dag in DAGS for run in town.runs(dag))
    # Its own log took in what landed, made no new snapshot, and each step said so.
    state = town.alpha.state()
    assert state.open_attempt == asked
    assert len(state.unfolded) >= ROUNDS
    # A run without news skips these steps.
    green = (Ran(town.alpha, "alpha", r["dag_run_id"]) for r in town.runs("alpha") if r["state"] == "success")
    last = next(run for run in green if run.tasks.get("materialize") == "success")
    assert (last.tasks["confirm#0"], last.tasks["confirm#1"]) == ("skipped", "success")
    for step in ("materialize", "quality", "confirm#0"):
        assert last.result(step)["items"] == {"result": "waits", "snapshot": asked.id, "error": None}, step
        assert f"snapshot {asked.id} waits for an approval since 20" in last.log(step)
    assert [run["state"] for run in town.runs("alpha_approval")] == ["running"]
    town.alpha.suite("items", PASSES)
    question.answer({"ask": ("Approve", "the source is right")}).green()
    kept = town.alpha.state().snapshot(asked.id)
    assert kept
    assert kept.verdict
    assert (kept.state, kept.verdict.override_by, kept.verdict.override_why) == (
        State.COMPLETED, "admin", "the source is right",
    )  # fmt: skip
    wait_for(lambda: _shows_all(town.alpha, "items"), lambda: _states(town), _SECONDS)


def test_pointless_and_rejected_questions_end_and_the_next_runs_go_on(town: Town) -> None:
    """Two questions at once: a person aborts the snapshot of the one by hand, and answers the other with no."""
    asked = []
    for shop in (town.alpha, town.beta):
        shop.suite("items", FAILS)
        shop.change("items", {50: "text 50"})
    for shop, name in ((town.alpha, "alpha"), (town.beta, "beta")):
        question = town.question(f"{name}_approval")
        attempt = shop.state().open_attempt
        assert attempt
        shop.suite("items", PASSES)
        asked.append((question, attempt.id))
    (pointless, by_hand), (rejected, refused) = asked
    abort(town.alpha.pipeline, "items", "by hand", snapshot=by_hand)
    rejected.answer({"ask": ("Reject", "not now")}).red()
    known = town.beta.state().snapshot(refused)
    assert known
    assert (known.state, known.abort_reason) == (State.ABORTED, "rejected by admin: not now")
    pointless.green()
    assert pointless.result("ask")["items"]["result"] == "pointless"
    assert "is ABORTED (by hand): there is nothing to decide" in pointless.log("ask")
    for shop in (town.alpha, town.beta):
        wait_for(partial(_shows_all, shop, "items"), lambda: _states(town), _SECONDS)


def _states(town: Town) -> str:
    found: dict[str, Any] = {}
    for dag in (*DAGS, "alpha_approval", "beta_approval"):
        newest = town.runs(dag)[:2]
        found[dag] = [(r["dag_run_id"], r["state"], Ran(town.alpha, dag, r["dag_run_id"]).tasks) for r in newest]
    return json.dumps(found, indent=1)
