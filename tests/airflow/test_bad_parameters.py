"""Bad input 94 to 110: an operator refuses with the code of the command line, whatever let the value through to it.

What Airflow's forms and API refuse before a run begins is in test_scheduled_life.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException
from typer.testing import CliRunner

from support.lives import PUBLISHED, abort, claim, judge, live, make_pipeline, stage, take
from tidefold.cli.app import app
from tidefold.operations.ground.pipeline import Pipeline
from tidefold_airflow import operators
from tidefold_airflow.operators.approve import Answer, _decide
from tidefold_airflow.operators.restore import TidefoldRestoreOperator
from tidefold_airflow.operators.run_context import TaskScope

LOG = "accounts"
INJECTED = ("../accounts", "{{ 7*7 }}", "$(id)", "; rm -rf /", "' OR 1=1 --", "a\nb", "x" * 100_000)


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Snapshot 1 is published, 2 was aborted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    made = make_pipeline(tmp_path)
    live(made, *PUBLISHED, take, claim("run-2"), stage, abort)
    return made


def code_of_task(pipeline: Pipeline, task: Any) -> str:
    """The code with which a task fails, run by itself."""
    instance = SimpleNamespace(
        xcom_push=lambda key, value: None, task_id="task", task=SimpleNamespace(upstream_list=[])
    )
    context = {"dag_run": SimpleNamespace(dag_id="dag", run_id="run-3"), "ti": instance}
    with pytest.raises(AirflowException) as raised:
        type(task).execute.__wrapped__(task, context)
    return _code(str(raised.value))


def code_of_command(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments], prog_name="tidefold")
    assert result.exit_code in (2, 3, 4), result.output
    return _code(result.stderr + result.stdout)


def _code(text: str) -> str:
    found = re.search(r"\[([A-Z_]+)\]", text)
    assert found, text
    return found[1]


@dataclass(frozen=True)
class Case:
    """The same mistake twice: `task` gives the operator, `command` the words of the command line."""

    number: int
    code: str
    task: Callable[[str], Any]
    command: tuple[str, ...]


def _restore(**given: Any) -> Callable[[str], Any]:
    return lambda config: TidefoldRestoreOperator(
        task_id="task", config=config, logs=[LOG], log_position="replay", **given
    )


def _as_of(at: str) -> Callable[[str], Any]:
    return lambda config: operators.TidefoldAsOfOperator(task_id="task", config=config, logs=[LOG], as_of=at)


def _tail(log: str) -> Callable[[str], Any]:
    return lambda config: operators.TidefoldTailOperator(task_id="task", config=config, logs=[log])


CASES = [
    Case(
        95, "AS_OF_FUTURE", _as_of("2999-01-01T00:00:00Z"), ("snapshot", "as-of", LOG, "--at", "2999-01-01T00:00:00Z")
    ),
    Case(
        95, "AS_OF_INVALID", _as_of("1900-01-01T00:00:00Z"), ("snapshot", "as-of", LOG, "--at", "1900-01-01T00:00:00Z")
    ),
    Case(95, "AS_OF_INVALID", _as_of("2026-01-01T00:00:00"), ("snapshot", "as-of", LOG, "--at", "2026-01-01T00:00:00")),
    Case(96, "LOG_NOT_CONFIGURED", _tail("unknown"), ("snapshot", "tail", "unknown")),
    Case(100, "SNAPSHOT_UNKNOWN", _restore(snapshot=99), ("restore", LOG, "99", "--log-position", "replay")),
    Case(100, "WRONG_STATE", _restore(snapshot=2), ("restore", LOG, "2", "--log-position", "replay")),
    *(Case(102, "LOG_NOT_CONFIGURED", _tail(text), ("snapshot", "tail", text)) for text in INJECTED),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{c.number}-{c.code}-{i}" for i, c in enumerate(CASES)])
def test_the_code_is_that_of_the_command_line(pipeline: Pipeline, case: Case) -> None:
    before = pipeline.ledger(LOG).read()
    assert code_of_task(pipeline, case.task(str(pipeline.config.path))) == case.code
    assert code_of_command(*case.command) == case.code
    assert pipeline.ledger(LOG).read() == before


@pytest.mark.parametrize(
    ("snapshot", "command"), [("2", "confirm"), ("1", "abort")], ids=["97 confirm an aborted", "98 abort a completed"]
)
def test_what_no_task_can_ask_for_is_refused_on_the_command_line(
    pipeline: Pipeline, snapshot: str, command: str
) -> None:
    """A task confirms and aborts what its own run made, and names no id."""
    before = pipeline.ledger(LOG).read()
    assert code_of_command("step", command, LOG, "--snapshot", snapshot) in ("WRONG_STATE", "ABORTED")
    assert pipeline.ledger(LOG).read() == before


def test_force_without_a_reason_has_one_code(pipeline: Pipeline) -> None:
    """101: by a required action and on the command line."""
    from tidefold.errors import InvalidInputError

    live(pipeline, claim("dag/run-3"), stage, judge(False))
    scope = TaskScope(pipeline, [LOG], "dag/run-3")
    staged = pipeline.ledger(LOG).read().open_attempt
    assert staged
    with pytest.raises(InvalidInputError) as raised:
        _decide(scope, LOG, staged, Answer(approved=True, by="admin", why=""))
    assert raised.value.code == "OVERRIDE_UNNAMED"
    assert code_of_command("step", "confirm", LOG, "--override-by", "admin") == "OVERRIDE_UNNAMED"


@pytest.mark.parametrize("value", ["false", "0", 0, None, []], ids=json.dumps)
def test_a_text_is_no_switch(pipeline: Pipeline, value: Any) -> None:
    """104: what is not true or false removes nothing. The command line has flags, which take no value."""
    before = {entry.path for entry in pipeline.store.list("")}
    for kind in (
        operators.TidefoldSubsumeOperator,
        operators.TidefoldTruncateOperator,
        operators.TidefoldLocalRetentionOperator,
        operators.TidefoldCleanOperator,
    ):
        task = kind(task_id="task", config=str(pipeline.config.path), is_dry_run=value)
        assert code_of_task(pipeline, task) == "NOT_A_BOOLEAN"
    assert {entry.path for entry in pipeline.store.list("")} == before


def test_logs_that_nobody_chose_are_not_all_logs(pipeline: Pipeline) -> None:
    """110: a template or a task that has nothing to give."""
    task = operators.TidefoldTailOperator(task_id="task", config=str(pipeline.config.path))
    task.logs = None
    assert code_of_task(pipeline, task) == "LOGS_NOT_CHOSEN"
