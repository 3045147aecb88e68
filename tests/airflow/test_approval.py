"""A run whose gates fail, and a person decides about each log, with the real scheduler (I8)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.airflow_shop import FAILS, LOGS, PASSES, FirstRun, Ran, Shop
from tidefold.domain.log_state import State

WAITING = "shop_waiting"
ANSWERS = {"items": ("Approve", "the source is right"), "notes": ("Reject", "not now")}


@pytest.fixture(scope="module")
def asked(shop: Shop, first: FirstRun) -> Iterator[Ran]:
    """The run. Both of its questions are open."""
    api = shop.airflow.api
    for log in LOGS:
        shop.suite(log, FAILS)
    api.set_paused(WAITING, False)
    for log in LOGS:
        shop.change(log, {100: "doubtful"})
    yield shop.trigger(WAITING).green()
    api.set_paused(WAITING, True)


@pytest.fixture(scope="module")
def answered(shop: Shop, asked: Ran) -> dict[str, Ran]:
    """The runs that ask, by log, once a person has answered each."""
    dag = f"{WAITING}_approval"
    questions = [Ran(shop, dag, run["dag_run_id"]) for run in shop.airflow.api.runs(dag)]
    found = {question.id.partition("__")[0]: question for question in questions}
    for log, question in found.items():
        question.reached("ask", "awaiting_input").answer({"ask": ANSWERS[log]})
        shop.suite(log, PASSES)
    return found


def test_a_person_is_asked_about_each_log(asked: Ran) -> None:
    results = {log: asked.result(f"confirm#{number}")[log]["result"] for number, log in enumerate(LOGS)}
    assert results == {"items": "asked", "notes": "asked"}


def test_a_person_may_let_a_failed_snapshot_through_and_who_and_why_is_kept(
    shop: Shop, asked: Ran, answered: dict[str, Ran]
) -> None:
    answered["items"].green()
    assert shop.shown("items")[100] == "doubtful"
    [snapshot] = [s for s in shop.state("items").snapshots if s.run == asked.name]
    assert snapshot.state is State.COMPLETED
    assert snapshot.verdict
    assert (snapshot.verdict.override_by, snapshot.verdict.override_why) == ("admin", "the source is right")
    assert shop.events("items")[-1]["override_by"] == "admin"


def test_what_a_person_rejects_is_aborted_and_the_question_red(
    shop: Shop, asked: Ran, answered: dict[str, Ran]
) -> None:
    answered["notes"].red()
    assert "GATE_FAILED" in answered["notes"].log("ask")
    [snapshot] = [s for s in shop.state("notes").snapshots if s.run == asked.name]
    assert (snapshot.state, snapshot.abort_reason) == (State.ABORTED, "rejected by admin: not now")
    assert 100 not in shop.shown("notes")
