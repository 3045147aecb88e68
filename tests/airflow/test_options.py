"""Options of DAGs are checked when a DAG file is read: a wrong one is an import error that says what to write."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from support.pipelines import CONFIG
from tidefold.errors import TidefoldError
from tidefold_airflow import Options, tidefold_approval_dag, tidefold_dag, tidefold_group
from tidefold_airflow.dags.settings import hours_from, number_from, schedule_from


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "tidefold.yaml"
    path.write_text(CONFIG)
    return str(path)


def make_group(**given: Any) -> None:
    with DAG("mine", schedule=None):
        tidefold_group(**given)


WRONG: dict[str, tuple[Callable[[str], Any], str]] = {
    "approval": (lambda c: tidefold_dag("d", schedule=None, config=c, approval=24), "timedelta(hours=24)"),  # type: ignore[arg-type]
    "approval of a group": (lambda c: Options(c, approval="1h"), "timedelta(hours=24)"),  # type: ignore[arg-type]
    "patience": (lambda c: tidefold_approval_dag("d", patience=2, config=c), "timedelta(hours=2)"),  # type: ignore[arg-type]
    "negative": (lambda c: Options(c, look_every=timedelta(-1)), "`look_every` is no duration"),
    "late": (lambda c: tidefold_dag("d", schedule=None, config=c, late_after=3), "timedelta(hours=3)"),  # type: ignore[arg-type]
    "seconds": (lambda c: Options(c, takeover_after="60"), "`takeover_after` is no number of seconds"),  # type: ignore[arg-type]
    "log": (lambda c: tidefold_dag("d", schedule=None, config=c, logs=["acounts"]), "Configured logs: accounts"),
    "log of a group": (lambda c: make_group(logs=["acounts"], options=Options(c)), "has no log `acounts`"),
    "text": (lambda c: make_group(logs="accounts", options=Options(c)), "must be a list"),
    "require": (lambda c: make_group(options=Options(c), require="most"), "`all`, `any`"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_option_says_what_to_write(config: str, name: str) -> None:
    make, words = WRONG[name]
    with pytest.raises(TidefoldError) as refused:
        make(config)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("read", "value"), [(hours_from, "a day"), (number_from, "1 h"), (schedule_from, "61 * * * *")],
)  # fmt: skip
def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch, read: Callable[[str], Any], value: str) -> None:
    monkeypatch.setenv("TIDEFOLD_TRIED", value)
    with pytest.raises(TidefoldError, match=r"\[OPTION_INVALID\] `TIDEFOLD_TRIED` is "):
        read("TIDEFOLD_TRIED")


def test_what_is_right_passes(monkeypatch: pytest.MonkeyPatch, config: str) -> None:
    monkeypatch.setenv("TIDEFOLD_TRIED", "*/5 * * * *")
    assert schedule_from("TIDEFOLD_TRIED") == "*/5 * * * *"
    assert schedule_from("TIDEFOLD_NOT_SET", "@hourly") == "@hourly"
    make_group(logs=["accounts"], options=Options(config, approval=timedelta(hours=1), takeover_after=60))
