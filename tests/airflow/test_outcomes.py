"""What the operators make of outcomes: a summary, or a failure that Airflow tries again only when that may help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from support.pipelines import make_pipeline
from tidefold.errors import AlreadyExistsError, ConflictError, InvalidInputError, StorageError, TidefoldError
from tidefold.operations.outcome import Outcome, Status
from tidefold.spark.result_file import read_outcomes, write_outcomes
from tidefold_airflow.operators.results import report, result_path
from tidefold_airflow.operators.run_context import TaskScope, airflow_errors

GOOD = Outcome("tellers", Status.STAGED, "snapshot 1 staged", 1)
WRONG = Outcome.of_error("accounts", InvalidInputError("BAD_RECORDS", "Line 3 is broken."))
PASSING = Outcome.of_error("branches", StorageError("STORAGE", "The disk is full."))


class Pushed:
    """Keeps what a task would hand to Airflow."""

    task_id = "group.materialize"

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.values[key] = value


def _report(*outcomes: Outcome) -> dict[str, Any]:
    return report(outcomes, {"ti": Pushed()})  # type: ignore[typeddict-item]


def test_a_summary_has_one_small_entry_a_log() -> None:
    assert _report(GOOD) == {"tellers": {"result": "staged", "snapshot": 1, "error": None}}


def test_what_will_not_pass_by_itself_is_not_tried_again() -> None:
    with pytest.raises(AirflowFailException, match=r"1 of 2 logs failed\. accounts: \[BAD_RECORDS\] Line 3"):
        _report(GOOD, WRONG)


def test_what_may_pass_is_tried_again_for_the_sake_of_its_log() -> None:
    with pytest.raises(AirflowException) as raised:
        _report(WRONG, PASSING)
    assert not isinstance(raised.value, AirflowFailException)


def test_a_failed_task_still_says_what_it_did_to_the_other_logs() -> None:
    pushed = Pushed()
    with pytest.raises(AirflowFailException):
        report([GOOD, WRONG], {"ti": pushed})  # type: ignore[typeddict-item]
    assert pushed.values["return_value"]["tellers"]["result"] == "staged"
    assert pushed.values["return_value"]["accounts"]["error"] == "BAD_RECORDS"


def test_an_older_result_is_never_read(tmp_path: Path) -> None:
    scope = TaskScope(make_pipeline(tmp_path), ["accounts"], "dag/scheduled__2026-11-21T09:00:00+00:00")
    path = result_path(scope, "ingest", 1)
    write_outcomes(path, [GOOD])
    assert result_path(scope, "ingest", 2) != path
    assert read_outcomes(result_path(scope, "ingest", 1)) == []


def test_a_result_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_outcomes(path, [GOOD, WRONG])
    assert read_outcomes(path) == [GOOD, WRONG]
    assert not path.exists()


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (InvalidInputError("CONFIG", "Wrong."), True),
        (StorageError("STORAGE", "Busy."), False),
        (AlreadyExistsError("EXISTS", "The name is in use."), True),
        (ConflictError("CONFLICT", "Another writer was first."), False),
    ],
)
def test_an_error_is_retried_by_one_rule_on_both_paths(error: TidefoldError, final: bool) -> None:
    with pytest.raises(AirflowException, match=error.code) as raised, airflow_errors():
        raise error
    assert isinstance(raised.value, AirflowFailException) is final
    with pytest.raises(AirflowException, match=error.code) as reported:
        _report(Outcome.of_error("accounts", error))
    assert isinstance(reported.value, AirflowFailException) is final
