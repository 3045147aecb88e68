"""A set in Airflow: the steps stay separate tasks, and each confirm task publishes the whole set or nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from support.bank_sets import (
    ENDS,
    LOGS,
    check_bank,
    config,
    copy_bank,
    count_records,
    judge_staged,
    land,
    make_bank,
    replay,
    run,
)
from support.pipelines import judge_all
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.sets.restore import find_earlier_version
from tidefold_airflow import operators

ALL = {name: count_records(name) for name in (*LOGS, ENDS)}


def _execute(kind: type[Any], pipeline: Pipeline, run: str, logs: tuple[str, ...] = LOGS) -> Any:
    return _run(kind, pipeline, run, logs=list(logs))


def _run(kind: type[Any], pipeline: Pipeline, run: str, **given: Any) -> Any:
    task = kind(task_id="task", config=str(pipeline.config.path), **given)
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


@pytest.fixture(scope="module")
def two_versions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bank whose set has two versions."""
    folder = tmp_path_factory.mktemp("versions") / "bank"
    pipeline = make_bank(folder, config() + "targets: [../saved]\n")
    for number, share in enumerate((0.6, 1), 1):
        land(folder, {name: int(count * share) for name, count in ALL.items()})
        run(pipeline, f"r{number}")
    return folder


@pytest.fixture
def bank(two_versions: Path, tmp_path: Path) -> Pipeline:
    return copy_bank(two_versions, tmp_path / "bank")


def _ledgers(pipeline: Pipeline) -> list[Any]:
    return [pipeline.ledger(log).read() for log in LOGS]


def test_a_version_is_restored_for_all_tables(bank: Pipeline) -> None:
    first = find_earlier_version(bank, "bank", 1).position
    before = _ledgers(bank)
    with pytest.raises(AirflowSkipException):
        _run(
            operators.TidefoldRestoreSetOperator,
            bank,
            "dry",
            of_set="bank",
            version=1,
            log_position="replay",
            is_dry_run=True,
        )
    assert _ledgers(bank) == before
    staged = _run(operators.TidefoldRestoreSetOperator, bank, "back", of_set="bank", version=1, log_position="replay")
    assert {log: one["result"] for log, one in staged.items()} == dict.fromkeys(LOGS, "staged")
    assert check_bank(bank) != first
    judge_staged(bank, "dag/back")
    _execute(operators.TidefoldConfirmOperator, bank, "back")
    assert check_bank(bank) == first
    # The newest rows are not forgotten: the next run folds them again.
    run(bank, "next")
    assert check_bank(bank) == max(replay().rows)


def test_a_restore_of_a_set_that_cannot_be_changes_nothing(bank: Pipeline) -> None:
    before = _ledgers(bank)
    for given, code in (
        ({"of_set": "bank", "version": 9, "log_position": "stay"}, "SET_VERSION_UNKNOWN"),
        ({"of_set": "bank", "version": "first", "log_position": "stay"}, "SET_VERSION_INVALID"),
        ({"of_set": "banks", "version": 1, "log_position": "stay"}, "SET_UNKNOWN"),
        ({"of_set": "bank", "version": 1, "log_position": "stay", "only": ["tellers"]}, "LOG_NOT_OF_THIS_DAG"),
        ({"of_set": "bank", "version": 1, "log_position": "skip"}, "SET_REPLAYS"),
        ({"of_set": "bank", "version": 1, "log_position": "back"}, "CHOICE_UNKNOWN"),
    ):
        with pytest.raises(AirflowFailException, match=code):
            _run(operators.TidefoldRestoreSetOperator, bank, "back", **given)
    assert _ledgers(bank) == before


def test_the_logs_of_a_set_are_chosen(bank: Pipeline) -> None:
    assert _run(operators.TidefoldListLogsOperator, bank, "choose", of_set="bank") == list(LOGS)
