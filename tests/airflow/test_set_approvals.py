"""A person decides about one table of a set: the whole set waits, and the answer is for all its tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.execution_time import hitl

from support.bank_sets import ENDS, LOGS, check_bank, config, count_records, land, make_bank, replay
from support.fake_approvals import ASKS, FakeAirflow, execute
from support.pipelines import judge_all
from tidefold.compute.runners import in_process
from tidefold.domain.log_state import State
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold_airflow import operators
from tidefold_airflow.observability import assets
from tidefold_airflow.operators import approval_run

ALL = {name: count_records(name) for name in (*LOGS, ENDS)}
HALF = {name: count // 2 for name, count in ALL.items()}
APPROVED = {"chosen_options": ["Approve"], "params_input": {"why": "is right"}, "responded_by_user": {"name": "ann"}}
REJECTED = {"chosen_options": ["Reject"], "params_input": {}, "responded_by_user": {"name": "ann"}}


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> FakeAirflow:
    fake = FakeAirflow()
    monkeypatch.setattr(approval_run, "_send", fake.send)
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **_: None)
    monkeypatch.setattr(assets, "_newest", lambda context, asset: None)
    return fake


@pytest.fixture
def bank(tmp_path: Path, airflow: FakeAirflow) -> Pipeline:
    """Half of the bank is staged by run-1; the gates of the tellers and of the branches refused it."""
    pipeline = make_bank(tmp_path, config().replace("store: store", "store: store\nspark: {above: 1GB}"))
    land(tmp_path, HALF)
    _stage(pipeline, "run-1", failing=("tellers",))
    return pipeline


def _stage(pipeline: Pipeline, run: str, failing: tuple[str, ...] = ()) -> None:
    execute(operators.TidefoldIngestOperator, pipeline, run)
    execute(operators.TidefoldMaterializeOperator, pipeline, run, approval_dag=ASKS)
    for log in LOGS:
        judge_all(pipeline, log, passed=log not in failing)


def _confirm(pipeline: Pipeline, run: str, steps: Any = None) -> dict[str, str]:
    found = {}
    for log in LOGS:
        only = {log: steps[log]} if steps else None
        kind = operators.TidefoldConfirmOperator
        found |= execute(kind, pipeline, run, only, logs=[log], approval_dag=ASKS)[0]
    return {log: what["result"] for log, what in found.items()}


def _answer(pipeline: Pipeline, event: dict[str, Any], log: str = "tellers") -> Any:
    task = operators.TidefoldApprovalOperator(
        task_id="ask", config=str(pipeline.config.path), log=log, snapshot=1, patience=timedelta(hours=1)
    )
    announced: list[str] = []
    context = {
        "dag_run": SimpleNamespace(dag_id=ASKS, run_id="x"),
        "ti": SimpleNamespace(id="id", task_id="ask", xcom_push=lambda key, value: None),
        "outlet_events": {assets.TABLES: SimpleNamespace(add=lambda asset, extra: announced.append(extra["log"]))},
    }
    until = datetime.now(UTC) + timedelta(hours=1)
    return task.execute_complete(context, event, until=until.isoformat()), announced  # type: ignore[arg-type]


def _states(pipeline: Pipeline) -> set[State]:
    return {one.state for log in LOGS if (one := pipeline.ledger(log).read().open_attempt)}


def test_one_table_asks_and_the_whole_set_waits(bank: Pipeline, airflow: FakeAirflow) -> None:
    waits = {"accounts": "waits", "branches": "waits", "tellers": "asked", "history": "waits"}
    assert _confirm(bank, "run-1") == waits
    assert [one["log"] for one in airflow.asked] == ["tellers"]
    execute(operators.TidefoldAbortOperator, bank, "run-1", approval_dag=ASKS)
    assert _states(bank) == {State.STAGED}
    assert check_bank(bank) is None


def test_an_approval_publishes_all_tables(bank: Pipeline, airflow: FakeAirflow) -> None:
    _confirm(bank, "run-1")
    found, announced = _answer(bank, APPROVED)
    assert {log: what["result"] for log, what in found.items()} == {
        "tellers": "published",
        **dict.fromkeys(("accounts", "branches", "history"), "already"),
    }
    assert sorted(announced) == sorted(LOGS)
    assert check_bank(bank) is not None
    assert bank.ledger("tellers").read().snapshots[0].verdict.override_by == "ann"  # type: ignore[union-attr]


def test_later_runs_leave_the_set_as_it_is_until_the_answer(
    bank: Pipeline, airflow: FakeAirflow, tmp_path: Path
) -> None:
    """What lands meanwhile waits in the landing folder, so the staged snapshots stay those of one point."""
    _confirm(bank, "run-1")
    point = bank.set_ledger("bank").read().point
    land(tmp_path, ALL)
    execute(operators.TidefoldIngestOperator, bank, "run-2")
    assert bank.set_ledger("bank").read().point == point
    steps, _, _ = execute(operators.TidefoldMaterializeOperator, bank, "run-2", approval_dag=ASKS)
    assert {what["result"] for what in steps.values()} == {"waits"}
    assert set(_confirm(bank, "run-2", steps).values()) == {"waits"}
    execute(operators.TidefoldAbortOperator, bank, "run-2", approval_dag=ASKS)
    _answer(bank, APPROVED)
    assert check_bank(bank) == point.position  # type: ignore[union-attr]
    _stage(bank, "run-3")
    assert set(_confirm(bank, "run-3").values()) <= {"published", "already"}
    assert check_bank(bank) == max(replay().rows)


def test_a_rejection_gives_up_all_tables_of_the_version(bank: Pipeline, airflow: FakeAirflow, tmp_path: Path) -> None:
    _confirm(bank, "run-1")
    with pytest.raises(AirflowFailException, match="rejected by ann"):
        _answer(bank, REJECTED)
    assert _states(bank) == set()
    land(tmp_path, ALL)
    _stage(bank, "run-2")
    _confirm(bank, "run-2")
    assert check_bank(bank) == max(replay().rows)


def test_a_question_that_ended_without_an_answer_leaves_all_tables_staged(bank: Pipeline, airflow: FakeAirflow) -> None:
    _confirm(bank, "run-1")
    airflow.runs = dict.fromkeys(airflow.runs, "failed")
    with pytest.raises(AirflowFailException, match=r"4 of 4 logs failed.*APPROVAL_ENDED"):
        execute(operators.TidefoldMaterializeOperator, bank, "run-2", approval_dag=ASKS)
    assert _states(bank) == {State.STAGED}


def test_two_tables_need_two_answers(tmp_path: Path, airflow: FakeAirflow) -> None:
    pipeline = make_bank(tmp_path, config().replace("store: store", "store: store\nspark: {above: 1GB}"))
    land(tmp_path, HALF)
    _stage(pipeline, "run-1", failing=("tellers", "history"))
    found = _confirm(pipeline, "run-1")
    assert (found["tellers"], found["history"], found["accounts"]) == ("asked", "asked", "waits")
    first, _ = _answer(pipeline, APPROVED)
    assert first["tellers"]["result"] == "waits"
    assert check_bank(pipeline) is None
    second, _ = _answer(pipeline, APPROVED, log="history")
    assert second["history"]["result"] == "published"
    assert check_bank(pipeline) is not None


def test_a_refused_snapshot_on_the_command_line_holds_the_ingest_too(tmp_path: Path) -> None:
    pipeline = make_bank(tmp_path)
    land(tmp_path, HALF)
    ingest(pipeline, LOGS, in_process)
    operators_free = operators.TidefoldMaterializeOperator
    execute(operators_free, pipeline, "run-1")
    judge_all(pipeline, "tellers", passed=False)
    land(tmp_path, ALL)
    outcomes = ingest(pipeline, LOGS, in_process)
    assert all("snapshot 1 of `tellers` failed its gate" in one.message for one in outcomes)
