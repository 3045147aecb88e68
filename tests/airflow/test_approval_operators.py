"""Approvals by themselves: a fake Airflow that remembers runs, and the real ledger that decides."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, TaskAwaitingInput
from airflow.sdk.execution_time import hitl

from support.fake_approvals import ASKS, FakeAirflow, execute
from support.pipelines import judge_all, make_pipeline, put, table_rows
from tidefold.compute.runners import in_process
from tidefold.domain.log_state import LogState, Snapshot, State
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.confirm import Confirmation, Override, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold_airflow import operators
from tidefold_airflow.dags.factory import Options, tidefold_dag, tidefold_group
from tidefold_airflow.observability import assets
from tidefold_airflow.operators import approval_run
from tidefold_airflow.operators.run_context import waiting_logs


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> FakeAirflow:
    fake = FakeAirflow()
    monkeypatch.setattr(approval_run, "_send", fake.send)
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **_: None)
    monkeypatch.setattr(assets, "_newest", lambda context, asset: None)
    return fake


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Run 1 staged snapshot 1 of `accounts`, which the gate refused."""
    made = make_pipeline(tmp_path)
    config = made.config.path
    config.write_text(config.read_text().replace("store: store", "store: store\nspark: {above: 1MB}"))
    put(made, [{"id": i, "text": "a"} for i in range(5)])
    materialize(made, ["accounts"], Fold("dag/run-1"), in_process)
    judge_all(made, passed=False)
    return made


def state_of(pipeline: Pipeline) -> LogState:
    return pipeline.ledger("accounts").read()


def staged(pipeline: Pipeline) -> Snapshot:
    attempt = state_of(pipeline).open_attempt
    assert attempt
    return attempt


def confirmed(pipeline: Pipeline, run: str = "run-1") -> Any:
    found, _, _ = execute(operators.TidefoldConfirmOperator, pipeline, run, logs=["accounts"], approval_dag=ASKS)
    return found["accounts"]


def answered(pipeline: Pipeline, event: dict[str, Any], until: datetime | None = None, **of: Any) -> Any:
    """What the task that asks does when it goes on."""
    given = {"log": "accounts", "snapshot": 1, "patience": timedelta(hours=1), **of}
    task = operators.TidefoldApprovalOperator(task_id="ask", config=str(pipeline.config.path), **given)
    context = {
        "dag_run": SimpleNamespace(dag_id=ASKS, run_id="x"),
        "ti": SimpleNamespace(id="id", task_id="ask", xcom_push=lambda key, value: None),
        "outlet_events": {assets.TABLES: SimpleNamespace(add=lambda asset, extra: None)},
    }
    when = until or datetime.now(UTC) + timedelta(hours=1)
    return task.execute_complete(context, event, until=when.isoformat())["accounts"]  # type: ignore[arg-type]


APPROVED = {"chosen_options": ["Approve"], "params_input": {"why": "is right"}, "responded_by_user": {"name": "ann"}}
REJECTED = {"chosen_options": ["Reject"], "params_input": {}, "responded_by_user": {"name": "ann"}}
TIMED_OUT = {"error": "no answer", "error_type": "timeout"}


def test_a_failed_gate_starts_one_run_that_asks_and_holds_nobody(pipeline: Pipeline, airflow: FakeAirflow) -> None:
    """Decision 0025. Asking twice asks once."""
    assert confirmed(pipeline) == {"result": "asked", "snapshot": 1, "error": None}
    assert confirmed(pipeline) == {"result": "asked", "snapshot": 1, "error": None}
    assert airflow.asked == [{"log": "accounts", "snapshot": 1, "manifest": staged(pipeline).manifest}]
    [name] = airflow.runs
    assert name.startswith("accounts__snapshot_1__")
    assert staged(pipeline).state is State.STAGED


def test_the_teardown_of_its_run_leaves_it_while_somebody_is_asked(pipeline: Pipeline, airflow: FakeAirflow) -> None:
    confirmed(pipeline)
    for run in ("run-1", "run-2"):
        done, _, _ = execute(
            operators.TidefoldAbortOperator, pipeline, run, logs=["accounts"], approval_dag=ASKS
        )  # fmt: skip
        assert done["accounts"]["result"] == "waits"
    assert staged(pipeline).state is State.STAGED


def test_without_a_question_the_teardown_aborts_it(pipeline: Pipeline, airflow: FakeAirflow) -> None:
    done, _, _ = execute(operators.TidefoldAbortOperator, pipeline, "run-1", logs=["accounts"], approval_dag=ASKS)
    assert done["accounts"]["result"] == "aborted"


def test_later_runs_leave_the_log_out_by_name_and_do_the_others(
    pipeline: Pipeline, airflow: FakeAirflow, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    confirmed(pipeline)
    put(pipeline, [{"id": 9, "text": "new"}])
    put(pipeline, [{"id": 1, "text": "b"}], log="tellers")
    made, _, _ = execute(operators.TidefoldMaterializeOperator, pipeline, "run-2", approval_dag=ASKS)
    assert {log: what["result"] for log, what in made.items()} == {"accounts": "waits", "tellers": "staged"}
    assert "accounts: skipped: snapshot 1 waits for an approval since 2026-11-22 09:30 UTC" in caplog.text
    only = {"accounts": made["accounts"]}
    for kind in (operators.TidefoldQualityOperator, operators.TidefoldConfirmOperator):
        found, _, _ = execute(kind, pipeline, "run-2", only, logs=["accounts"], approval_dag=ASKS)
        assert found == {"accounts": {"result": "waits", "snapshot": 1, "error": None}}
    assert len(state_of(pipeline).unfolded) == 2


def test_another_run_in_the_way_that_nobody_is_asked_about_is_refused_as_ever(
    pipeline: Pipeline, airflow: FakeAirflow
) -> None:
    with pytest.raises(AirflowFailException, match="ATTEMPT_OPEN"):
        execute(operators.TidefoldMaterializeOperator, pipeline, "run-2", logs=["accounts"], approval_dag=ASKS)


def test_a_question_that_ended_without_an_answer_leaves_the_snapshot_staged(
    pipeline: Pipeline, airflow: FakeAirflow
) -> None:
    """As when `ask` dies, or somebody marks it as failed: nobody decided. Each step of the next run says so."""
    confirmed(pipeline)
    [run] = airflow.runs
    airflow.runs[run] = "failed"
    given: dict[str, Any] = {"logs": ["accounts"], "approval_dag": ASKS}
    for kind in (
        operators.TidefoldMaterializeOperator,
        operators.TidefoldConfirmOperator,
        operators.TidefoldAbortOperator,
    ):
        with pytest.raises(AirflowFailException, match=rf"APPROVAL_ENDED.*{run}.*has ended.*Clear that run"):
            execute(kind, pipeline, "run-2", {"accounts": {"result": "waits"}}, **given)
        assert staged(pipeline).state is State.STAGED
    # Cleared, it asks again.
    airflow.runs[run] = "running"
    found, _, _ = execute(operators.TidefoldMaterializeOperator, pipeline, "run-3", **given)
    assert found["accounts"]["result"] == "waits"
    assert answered(pipeline, APPROVED)["result"] == "published"


def test_a_dag_that_is_not_there_fails_the_log_by_name(pipeline: Pipeline, airflow: FakeAirflow) -> None:
    airflow.missing = True
    with pytest.raises(AirflowFailException, match=r"APPROVAL_DAG_MISSING.*no DAG `dag_approval`"):
        confirmed(pipeline)


def test_it_asks_then_publishes_under_the_persons_name(pipeline: Pipeline, airflow: FakeAirflow) -> None:
    with pytest.raises(TaskAwaitingInput) as parked:
        execute(
            operators.TidefoldApprovalOperator, pipeline, "x", log="accounts", snapshot=1, patience=timedelta(hours=1)
        )
    assert parked.value.timeout == timedelta(minutes=5)
    assert answered(pipeline, APPROVED)["result"] == "published"
    assert table_rows(pipeline) == dict.fromkeys(range(5), "a")
    known = state_of(pipeline).snapshot(1)
    assert known
    assert known.verdict
    assert (known.verdict.override_by, known.verdict.override_why) == ("ann", "is right")


def test_nobody_answered_yet_asks_on_until_the_time_is_over(pipeline: Pipeline, airflow: FakeAirflow) -> None:
    until = datetime.now(UTC) + timedelta(minutes=3)
    with pytest.raises(TaskAwaitingInput) as parked:
        answered(pipeline, TIMED_OUT, until)
    assert parked.value.kwargs == {"until": until.isoformat()}
    assert parked.value.timeout <= timedelta(minutes=3)
    with pytest.raises(AirflowFailException, match=r"GATE_FAILED.*was rejected"):
        answered(pipeline, TIMED_OUT, datetime.now(UTC) - timedelta(seconds=1))
    known = state_of(pipeline).snapshot(1)
    assert known
    assert known.abort_reason == "rejected: nobody answered in time (timeout)"


@pytest.mark.parametrize("why", ["", "  "])
def test_an_approval_without_a_reason_is_asked_again(
    pipeline: Pipeline, airflow: FakeAirflow, capsys: pytest.CaptureFixture[str], why: str
) -> None:
    """Bad input 101."""
    hasty = {**APPROVED, "params_input": {"why": why}}
    with pytest.raises(TaskAwaitingInput):
        answered(pipeline, hasty)
    assert "ann approved without a reason, so nothing is published." in capsys.readouterr().out
    assert staged(pipeline).state is State.STAGED
    assert answered(pipeline, APPROVED)["result"] == "published"


def test_an_approval_without_a_reason_at_the_last_moment_is_aborted_with_those_words(
    pipeline: Pipeline, airflow: FakeAirflow
) -> None:
    over = datetime.now(UTC) - timedelta(seconds=1)
    with pytest.raises(AirflowFailException, match=r"GATE_FAILED.*was rejected"):
        answered(pipeline, {**APPROVED, "params_input": {"why": ""}}, over)
    last = state_of(pipeline).snapshot(1)
    assert last
    assert last.abort_reason == "rejected: ann approved without a reason, and the time is over"


def test_rejected_is_aborted_and_red(pipeline: Pipeline, airflow: FakeAirflow) -> None:
    with pytest.raises(AirflowFailException, match=r"GATE_FAILED.*was rejected by ann.*Mend the data or the suite"):
        answered(pipeline, REJECTED)
    assert state_of(pipeline).open_attempt is None


@pytest.mark.parametrize("event", [APPROVED, REJECTED, TIMED_OUT], ids=["approved", "rejected", "silent"])
@pytest.mark.parametrize("how", ["aborted", "let through", "another"])
def test_the_answer_is_compared_with_the_ledger(
    pipeline: Pipeline, airflow: FakeAirflow, caplog: pytest.LogCaptureFixture, event: dict[str, Any], how: str
) -> None:
    caplog.set_level("INFO")
    of = {}
    if how == "aborted":
        abort(pipeline, "accounts", "by hand", snapshot=1)
    elif how == "let through":
        confirm(pipeline, "accounts", Confirmation(snapshot=1, override=Override("bob", "fine")))
    else:
        of = {"manifest": "ab" * 32}
    before = state_of(pipeline)
    assert answered(pipeline, event, **of) == {"result": "pointless", "snapshot": 1, "error": None}
    assert "there is nothing to decide" in caplog.text
    assert state_of(pipeline) == before


def test_a_mapped_or_foreign_step_before_says_nothing_of_waiting() -> None:
    ti = SimpleNamespace(
        task=SimpleNamespace(upstream_list=[SimpleNamespace(task_id="t", task_type="EmptyOperator")]),
        xcom_pull=lambda **_: {"a": {"result": "waits"}},
    )
    assert waiting_logs({"ti": ti}) == frozenset()  # type: ignore[typeddict-item]


def asks_of(dag: DAG) -> set[str | None]:
    """The DAG that its tasks name which leave out a log that waits, or keep its snapshot."""
    found = {t.task_id.rpartition(".")[2]: getattr(t, "approval_dag", None) for t in dag.tasks}
    return {found[task] for task in ("materialize", "quality", "abort")}


def test_each_dag_and_group_brings_the_dag_that_asks_beside_it() -> None:
    """Several pipelines in one Airflow do not meet."""
    config = "/nowhere/tidefold.yaml"
    assert asks_of(tidefold_dag("orders", schedule=None, config=config, approval=timedelta(hours=1))) == {
        "orders_approval"
    }
    assert asks_of(tidefold_dag("quiet", schedule=None, config=config)) == {None}
    with DAG("mine") as mine:
        tidefold_group("shop", options=Options(config, approval=timedelta(hours=1)))
    assert asks_of(mine) == {"mine.shop_approval"}
    # The question is no task of the DAG that it is about.
    assert not [t for t in mine.tasks if t.task_id.rpartition(".")[2] == "ask"]
