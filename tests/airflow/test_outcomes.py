"""What the operators make of outcomes: a summary, or a failure that Airflow tries again only when that may help."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from local_airflow.settings import PROJECT
from support.pipelines import make_pipeline
from tidefold.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptError,
    InvalidInputError,
    StorageError,
    TidefoldError,
)
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.operations.ground.run_endings import MEANINGS, Require, RunEnding, find_ending, may_follow, worst
from tidefold.spark.result_file import read_outcomes, write_outcomes
from tidefold_airflow.operators.base import report, result_path
from tidefold_airflow.operators.run_context import TaskScope, airflow_errors

GOOD = Outcome("tellers", Status.STAGED, "snapshot 1 staged", 1)
WRONG = Outcome.of_error("accounts", InvalidInputError("BAD_RECORDS", "Line 3 is broken."))
PASSING = Outcome.of_error("branches", StorageError("STORAGE", "The disk is full."))


class Pushed:
    """Keeps what a task would hand to Airflow."""

    task_id = "group.materialize"
    try_number, max_tries = 1, 0

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


@pytest.mark.parametrize(("tries", "raises"), [(1, True), (2, False)])
def test_a_task_with_events_fails_only_while_another_try_may_help(tries: int, raises: bool) -> None:
    pushed = Pushed()
    pushed.try_number, pushed.max_tries = tries, 1
    context: Any = {"ti": pushed}
    assert report([GOOD, WRONG], context, has_events=True)["accounts"]["error"] == "BAD_RECORDS"
    if raises:
        with pytest.raises(AirflowException):
            report([GOOD, PASSING], context, has_events=True)
    else:
        assert report([GOOD, PASSING], context, has_events=True)["branches"]["error"] == "STORAGE"
    assert pushed.values["return_value"]["tellers"]["result"] == "staged"


def path_of(scope: TaskScope, task: str = "ingest", copy: int = -1, attempt: int = 1) -> Path:
    ti = SimpleNamespace(task_id=task, map_index=copy, try_number=attempt)
    return result_path(scope, {"ti": ti})  # type: ignore[typeddict-item]


def test_an_older_result_is_never_read(tmp_path: Path) -> None:
    scope = TaskScope(make_pipeline(tmp_path), ["accounts"], "dag/scheduled__2026-11-21T09:00:00+00:00")
    path = path_of(scope)
    write_outcomes(path, [GOOD])
    assert path_of(scope, attempt=2) != path
    assert read_outcomes(path_of(scope)) == []


def test_no_task_reads_the_result_of_another(tmp_path: Path) -> None:
    """A person who starts a run may choose its id."""
    pipeline = make_pipeline(tmp_path)
    runs = ("shop/a:1", "shop/a_1", "shop/a/1", "shop_a/1", f"{'d' * 250}/{'r' * 250}")
    paths = {path_of(TaskScope(pipeline, [], run)) for run in runs}
    paths |= {path_of(TaskScope(pipeline, [], "shop/a_1"), task, copy) for task in ("a", "b") for copy in (0, 1)}
    assert len(paths) == len(runs) + 4
    assert {path.parent for path in paths} == {tmp_path / "var" / "results"}
    for path in paths:
        path.touch()


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


def _read_table(path: Path) -> dict[str, list[str]]:
    """The rows of the first table of a page, by their first cell."""
    lines = [line for line in path.read_text().partition("| ending of a log |")[2].splitlines() if line][1:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:] if line.startswith("|")]
    return {row[0]: row[1:] for row in rows[: len(RunEnding)]}


def test_the_page_of_endings_shows_the_table_of_the_program() -> None:
    shown = {
        ending.value: [
            "of the error" if means.exit_code is None else str(means.exit_code),
            means.task, means.run, means.follows, "yes" if means.task == "success" else "no", means.word,
        ]
        for ending, means in MEANINGS.items()
    }  # fmt: skip
    assert _read_table(PROJECT / "docs" / "reference" / "airflow.md") == shown


@pytest.mark.parametrize(
    ("result", "code", "exit_code", "ending"),
    [
        ("published", None, 0, RunEnding.PUBLISHED),
        ("already", None, 0, RunEnding.PUBLISHED),
        ("nothing", None, 0, RunEnding.NOTHING_NEW),
        ("skipped", None, 0, RunEnding.STOPPED),
        ("asked", None, 0, RunEnding.WAITS),
        ("waits", None, 0, RunEnding.WAITS),
        ("failed", None, 0, RunEnding.REFUSED),
        ("error", "GATE_FAILED", 3, RunEnding.REFUSED),
        ("error", "UNAVAILABLE_VALUE", 2, RunEnding.LEFT_OUT),
        ("error", "CHECKSUM", 5, RunEnding.DAMAGED),
        ("stopped", "BAD_RECORDS", 2, RunEnding.FAILED),
        ("staged", None, 0, None),
    ],
)
def test_a_step_ends_as_its_result_and_its_error_say(
    result: str, code: str | None, exit_code: int, ending: RunEnding | None
) -> None:
    assert find_ending(result, code, exit_code) is ending


@pytest.mark.parametrize(
    ("endings", "with_all", "with_any"),
    [
        ([RunEnding.PUBLISHED, RunEnding.NOTHING_NEW], True, True),
        ([RunEnding.PUBLISHED, RunEnding.STOPPED], True, True),
        ([RunEnding.PUBLISHED, RunEnding.WAITS], False, True),
        ([RunEnding.PUBLISHED, RunEnding.FAILED], False, True),
        ([RunEnding.LEFT_OUT, RunEnding.REFUSED], False, False),
        ([RunEnding.STOPPED], False, False),
        ([], False, False),
    ],
)
def test_what_follows_starts_as_the_logs_ended(endings: list[RunEnding], with_all: bool, with_any: bool) -> None:
    assert (may_follow(endings, Require.ALL), may_follow(endings, Require.ANY)) == (with_all, with_any)


def test_confirm_is_red_only_where_it_failed_itself() -> None:
    """After a failed ingest it has nothing to publish, and is skipped: `ingest` and `alarms` are red."""
    may_skip = {ending for ending, means in MEANINGS.items() if "skipped" in means.task}
    assert {RunEnding.FAILED, RunEnding.DAMAGED} <= may_skip
    assert RunEnding.REFUSED not in may_skip


def test_the_worst_step_of_a_log_counts() -> None:
    assert worst([None, RunEnding.PUBLISHED, RunEnding.LEFT_OUT]) is RunEnding.LEFT_OUT
    assert worst([None, None]) is RunEnding.NOTHING_NEW


def test_a_failed_step_tells_its_exit_code_by_which_damage_is_known() -> None:
    pushed = Pushed()
    with pytest.raises(AirflowFailException):
        report([Outcome.of_error("accounts", CorruptError("CHECKSUM", "Wrong."))], {"ti": pushed})  # type: ignore[typeddict-item]
    told = pushed.values["return_value"]["accounts"]
    assert find_ending(told["result"], told["error"], told["exit_code"]) is RunEnding.DAMAGED
