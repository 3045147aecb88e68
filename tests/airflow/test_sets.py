"""A set in Airflow: the steps stay separate tasks, and each confirm task publishes the whole set or nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from support.bank_sets import ENDS, LOGS, check_bank, count_records, land, make_bank, replay
from support.pipelines import judge_all
from tidefold.operations.pipeline import Pipeline
from tidefold_airflow import operators

ALL = {name: count_records(name) for name in (*LOGS, ENDS)}


def _execute(kind: type[Any], pipeline: Pipeline, run: str, logs: tuple[str, ...] = LOGS) -> Any:
    task = kind(task_id="task", config=str(pipeline.config.path), logs=list(logs))
    instance = SimpleNamespace(
        xcom_push=lambda key, value: None,
        xcom_pull=lambda *given, **named: None,
        task_id="task",
        map_index=-1,
        task=SimpleNamespace(upstream_list=[]),
    )
    context = {"dag_run": SimpleNamespace(dag_id="dag", run_id=run), "ti": instance}
    return kind.execute.__wrapped__(task, context)


@pytest.fixture(autouse=True)
def announced(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The asset events that the tasks send."""
    events: list[Any] = []
    monkeypatch.setattr(
        "tidefold_airflow.operators.confirm.announce", lambda context, asset, extra: events.append(extra["log"])
    )
    return events


def _stage(pipeline: Pipeline, run: str, failing: str = "") -> None:
    _execute(operators.TidefoldIngestOperator, pipeline, run)
    _execute(operators.TidefoldMaterializeOperator, pipeline, run)
    for log in LOGS:
        judge_all(pipeline, log, passed=log != failing)


def test_the_tasks_of_a_set_publish_it_together(tmp_path: Path, announced: list[Any]) -> None:
    pipeline = make_bank(tmp_path)
    land(tmp_path, ALL)
    _stage(pipeline, "one")
    first = _execute(operators.TidefoldConfirmOperator, pipeline, "one", ("accounts",))
    assert first["accounts"]["result"] == "published"
    assert check_bank(pipeline) == max(replay().rows)
    later = _execute(operators.TidefoldConfirmOperator, pipeline, "one", ("tellers",))
    assert later["tellers"]["result"] == "already"
    # Each task announces the table of its own log.
    assert announced == ["accounts", "tellers"]


def test_a_failed_gate_fails_each_confirm_task_of_the_set(tmp_path: Path) -> None:
    pipeline = make_bank(tmp_path)
    land(tmp_path, ALL)
    _stage(pipeline, "one", failing="tellers")
    for log in LOGS:
        with pytest.raises(AirflowFailException, match="SET_HELD"):
            _execute(operators.TidefoldConfirmOperator, pipeline, "one", (log,))
    _execute(operators.TidefoldAbortOperator, pipeline, "one")
    assert check_bank(pipeline) is None
    _stage(pipeline, "two")
    _execute(operators.TidefoldConfirmOperator, pipeline, "two", ("history",))
    assert check_bank(pipeline) == max(replay().rows)
