"""One module has the names that moved between versions of Airflow. Each is imported from the installed one."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import BaseNotifier
from packaging.version import Version

from tidefold.errors import RefusedError
from tidefold_airflow import airflow_versions
from tidefold_airflow.airflow_versions import _PLACES, AIRFLOW, find_name, find_newest_event, require_airflow
from tidefold_airflow.dags.settings import deadline_settings
from tidefold_airflow.operators.approve import ApprovalQuestion, ask, read_answer

SINCE = {
    "AsyncCallback": "3.1",
    "DeadlineAlert": "3.1",
    "DeadlineReference": "3.1",
    "upsert_hitl_detail": "3.1",
    "TaskAwaitingInput": "3.3",
}


@pytest.mark.parametrize("name", _PLACES)
def test_the_installed_airflow_has_the_name(name: str) -> None:
    has = Version(AIRFLOW) >= Version(SINCE.get(name, "3"))
    assert (getattr(airflow_versions, name) is not None) is has


def test_a_name_that_is_nowhere_is_an_error() -> None:
    with pytest.raises(ImportError, match="Nothing"):
        from tidefold_airflow.airflow_versions import Nothing  # noqa: F401


@pytest.mark.parametrize("version", ["2.10.5", "2.11.0", "3.0.0", "3.0.5"])
def test_an_older_airflow_is_refused_by_name(version: str) -> None:
    with pytest.raises(RefusedError, match=rf"AIRFLOW_TOO_OLD.*3\.0\.6 or newer, and this is {version}") as caught:
        require_airflow(version)
    assert "tidefold run" in caught.value.hint


@pytest.mark.parametrize("version", ["3.0.6", "3.1.0rc1", "3.3.2"])
def test_a_supported_airflow_passes(version: str) -> None:
    require_airflow(version)


def test_notifiers_and_dag_bags_fit_the_installed_airflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
    assert find_name("PlainXComArg")
    arguments = (None,) if airflow_versions.takes_context(BaseNotifier) else ()
    assert isinstance(Quiet(*arguments), BaseNotifier)
    assert find_name("DagBag")(str(tmp_path)).dags == {}
    assert airflow_versions.find_stats().gauge


class Quiet(BaseNotifier):
    """A notifier as small as it can be."""

    def notify(self, context: Any) -> None: ...


class Newest:
    """What `inlet_events` gives since 3.2."""

    def ascending(self, ascending: bool) -> Newest:
        assert not ascending
        return self

    def limit(self, count: int) -> list[str]:
        return ["new", "old"][:count]


@pytest.mark.parametrize(("events", "newest"), [(Newest(), "new"), (["old", "new"], "new"), ([], None)])
def test_the_newest_event_of_each_form(events: Any, newest: str | None) -> None:
    assert find_newest_event(events) == newest


def test_an_airflow_without_questions_waits_and_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 3.1."""
    absent = {"upsert_hitl_detail": None}
    monkeypatch.setattr(airflow_versions, "find_name", lambda name: absent.get(name, find_name(name)))
    said: list[str] = []
    task = SimpleNamespace(log=SimpleNamespace(warning=lambda text, *values: said.append(text % values)))
    context: Any = {"ti": SimpleNamespace(task=task)}
    with pytest.raises(find_name("TaskDeferred")) as caught:
        ask(
            ApprovalQuestion("?", "", timedelta(minutes=5), "Decide by `tidefold step confirm`."), context, until="then"
        )
    assert "needs 3.1. Decide by `tidefold step confirm`." in said[0]
    assert (caught.value.method_name, caught.value.kwargs) == ("execute_complete", {"until": "then"})
    assert caught.value.trigger.serialize()[0].endswith("DateTimeTrigger")
    assert not read_answer("2026-11-24T12:00:00").given


def test_an_airflow_without_deadlines_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 3.1."""
    monkeypatch.setattr(airflow_versions, "find_name", lambda name: None)
    monkeypatch.setattr(airflow_versions, "AIRFLOW", "3.0.6")
    with pytest.raises(RefusedError, match=r"`late_after` needs Airflow 3\.1\.0") as caught:
        deadline_settings("webhook", timedelta(hours=1))
    assert "Leave `late_after` out" in caught.value.hint
