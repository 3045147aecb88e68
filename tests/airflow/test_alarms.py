"""Alarms of logs in Airflow: failed runs are counted, a notifier is told once, and a good run begins again."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from airflow.triggers.callback import CallbackTrigger

from support.pipelines import CONFIG, make_pipeline, put
from tidefold.domain.alarms import AlarmRecord, RunFailure
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.inspect.alarms import find_alarm_record
from tidefold_airflow import operators
from tidefold_airflow.observability import notify
from tidefold_airflow.operators.confirm import find_errors

ALARMED = CONFIG.replace("store: store\n", "store: store\nalarms: {failures: 2, lag: never}\n")
told: list[Any] = []


def tell(context: Any) -> None:
    """A notifier of somebody's own."""
    told.append([(alarm.log, str(alarm.kind)) for alarm in context["alarms"]])


def tell_nobody(context: Any) -> None:
    raise OSError("no answer")


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Both logs were begun."""
    told.clear()
    made = make_pipeline(tmp_path, ALARMED)
    for log in ("accounts", "tellers"):
        put(made, [{"id": 1, "text": "a"}], log=log)
    return made


def end_run(pipeline: Pipeline, run: str, notifier: str = "tell", logs: Any = (), **steps: Any) -> Any:
    """The task `alarms` at the end of a run. `steps`: what each step returned; an exception: it failed without."""
    task = operators.TidefoldAlarmsOperator(
        task_id="alarms", config=str(pipeline.config.path), logs=logs, alarm_notifier=f"{__name__}.{notifier}"
    )
    order = list(steps)

    def make_task(step: str) -> Any:
        before = set(order[: order.index(step)])
        return SimpleNamespace(task_id=step, task_group=None, get_flat_relative_ids=lambda upstream: before)

    def pull(task_ids: str) -> Any:
        return None if isinstance(steps[task_ids], Exception) else steps[task_ids]

    states = {step: "failed" if isinstance(made, Exception) else "success" for step, made in steps.items()}
    ti = SimpleNamespace(
        dag_id="dag", run_id=run, task_id="alarms", xcom_pull=pull, get_task_states=lambda **_: {run: states},
        task=SimpleNamespace(
            task_group=None, get_flat_relatives=lambda upstream: [make_task(step) for step in reversed(order)]
        ),
    )  # fmt: skip
    context = {"dag_run": SimpleNamespace(dag_id="dag", run_id=run), "ti": ti}
    return operators.TidefoldAlarmsOperator.execute.__wrapped__(task, context)  # type: ignore[attr-defined]


def summary(**errors: str | None) -> dict[str, Any]:
    return {log: {"result": "x", "snapshot": None, "error": error} for log, error in errors.items()}


FAILS = {"ingest": summary(accounts="STORAGE", tellers=None), "confirm": [summary(tellers=None)]}
GOOD = {"ingest": summary(accounts=None, tellers=None), "confirm": [summary(accounts=None), summary(tellers=None)]}


def test_the_third_failed_run_tells_the_notifier_once_and_success_resets(pipeline: Pipeline) -> None:
    for run in ("1", "2"):
        assert end_run(pipeline, run, **FAILS)["accounts"] == {"alarms": [], "failures": int(run)}
    assert told == []
    for run in ("3", "4", "5"):
        done = end_run(pipeline, run, **FAILS)
        assert done == {
            "accounts": {"alarms": ["failures"], "failures": int(run)}, "tellers": {"alarms": [], "failures": 0}
        }  # fmt: skip
    assert told == [[("accounts", "failures")]]
    assert end_run(pipeline, "6", **GOOD)["accounts"] == {"alarms": [], "failures": 0}
    for run in ("7", "8", "9"):
        end_run(pipeline, run, **FAILS)
    assert told == [[("accounts", "failures")]] * 2


def test_a_run_that_goes_well_as_the_one_before_writes_nothing(pipeline: Pipeline) -> None:
    end_run(pipeline, "1", **GOOD)
    assert find_alarm_record(pipeline.store, "accounts") is None
    end_run(pipeline, "2", **FAILS)
    found = find_alarm_record(pipeline.store, "accounts")
    assert found
    assert (found.failures, found.error, found.run) == (1, "ingest: STORAGE", "dag/2")
    end_run(pipeline, "2", **FAILS)
    assert find_alarm_record(pipeline.store, "accounts") == found
    end_run(pipeline, "3", **GOOD)
    assert find_alarm_record(pipeline.store, "accounts") == AlarmRecord(2, "dag/3")
    end_run(pipeline, "4", **GOOD)
    assert find_alarm_record(pipeline.store, "accounts") == AlarmRecord(2, "dag/3")


def test_what_could_not_be_sent_counts_and_is_sent_by_the_next_run(pipeline: Pipeline) -> None:
    for run in ("1", "2"):
        end_run(pipeline, run, **FAILS)
    with pytest.raises(OSError, match="no answer"):
        end_run(pipeline, "3", notifier="tell_nobody", **FAILS)
    found = find_alarm_record(pipeline.store, "accounts")
    assert found
    assert (found.failures, found.sent) == (3, ())
    end_run(pipeline, "4", **FAILS)
    assert told == [[("accounts", "failures")]]


def test_a_step_that_fails_without_a_word_fails_all_logs(pipeline: Pipeline) -> None:
    done = end_run(pipeline, "1", logs=None, choose=["accounts"], ingest=RuntimeError())
    assert {log: what["failures"] for log, what in done.items()} == {"accounts": 1, "tellers": 1}
    found = find_alarm_record(pipeline.store, "tellers")
    assert found
    assert found.error == "ingest failed"


def test_the_first_failed_step_is_the_cause() -> None:
    summaries = {
        "ingest": [summary(a="STORAGE", b=None)],
        "confirm": [summary(a="NOT_STAGED"), summary(b="GATE_FAILED")],
    }
    assert find_errors(summaries, ["ingest", "confirm"], ["a", "b", "c"]) == {
        "a": RunFailure("ingest: STORAGE", "STORAGE"), "b": RunFailure("confirm: GATE_FAILED", "GATE_FAILED"),
    }  # fmt: skip


def test_without_alarms_in_the_configuration_a_failed_run_is_counted_and_nobody_is_told(tmp_path: Path) -> None:
    """`status` names it."""
    made = make_pipeline(tmp_path)
    put(made, [{"id": 1, "text": "a"}])
    assert end_run(made, "1", **FAILS) == {}
    assert len(made.store.list("logs/accounts/alarms")) == 1


@pytest.mark.parametrize("path", ["no_such_module.tell", f"{__name__}.nothing", "tell", f"{__name__}.ALARMED"])
def test_a_path_that_is_no_notifier_is_named(pipeline: Pipeline, path: str) -> None:
    task = operators.TidefoldAlarmsOperator(task_id="alarms", config=str(pipeline.config.path), alarm_notifier=path)
    context = {"dag_run": SimpleNamespace(dag_id="dag", run_id="1"), "ti": None}
    with pytest.raises(AirflowFailException, match="NOTIFIER_UNKNOWN"):
        operators.TidefoldAlarmsOperator.execute.__wrapped__(task, context)  # type: ignore[attr-defined]


def test_a_deadline_of_the_dag_tells_the_webhook(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidefold_airflow.dags.factory import tidefold_dag

    late = tidefold_dag("late", schedule=None, alarm_conn_id="hook", late_after=timedelta(hours=2))
    [deadline] = late.deadline
    assert deadline.interval == timedelta(hours=2)
    assert deadline.callback.path.endswith("notify.GateNotifier")
    assert not tidefold_dag("other", schedule=None, late_after=timedelta(hours=2)).deadline
    posted: list[Any] = []

    async def find_connection(conn_id: str) -> Any:
        return SimpleNamespace(host=f"http://{conn_id}")

    monkeypatch.setattr(notify.BaseHook, "aget_connection", find_connection)
    monkeypatch.setattr(notify, "_post", lambda webhook, message: posted.append((webhook, message["text"])))
    context: Any = {"dag_run": {"dag_id": "late", "dag_run_id": "run 1"}, "deadline": {"id": "1"}}

    async def call_back() -> list[Any]:
        """As Airflow's triggerer does."""
        trigger = CallbackTrigger(deadline.callback.path, {**deadline.callback.kwargs, "context": context})
        return [event.payload["state"] async for event in trigger.run()]

    assert asyncio.run(call_back())[-1] == "success"
    assert posted == [("http://hook", "tidefold: late has not ended by its deadline.")]
