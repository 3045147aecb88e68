"""The notifier, against a web server of this process."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from support.webhook import webhook


@pytest.fixture
def posted() -> Iterator[tuple[str, list[Any]]]:
    """The address of a webhook, and what it was told."""
    with webhook() as made:
        yield made


def test_it_says_what_a_scrub_found(posted: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    from tidefold_airflow.dags.scrub import tidefold_scrub_dag

    address, told = posted
    monkeypatch.setenv("AIRFLOW_CONN_HOOK", json.dumps({"conn_type": "http", "host": address}))
    task = tidefold_scrub_dag("nightly", alarm_conn_id="hook").get_task("scrub")
    [notifier] = task.on_failure_callback
    ti = SimpleNamespace(dag_id="nightly", run_id="run 1", task_id="scrub")
    notifier.notify({"ti": ti, "task": task, "exception": RuntimeError("ALARM, segment cut: a/b. Next: c")})
    [message] = told
    assert message["text"] == ("tidefold: nightly found damage that is not repaired. ALARM, segment cut: a/b. Next: c")


def test_it_says_what_was_not_published_and_why(posted: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    from tidefold_airflow.observability.notify import GateNotifier

    address, told = posted
    monkeypatch.setenv("AIRFLOW_CONN_HOOK", json.dumps({"conn_type": "http", "host": address}))
    ti = SimpleNamespace(dag_id="shop", run_id="run 1", task_id="confirm")
    GateNotifier("hook").notify({"ti": ti, "exception": RuntimeError("items: 3 of 7 checks failed")})  # type: ignore[typeddict-item]
    assert told == [
        {
            "text": "tidefold: shop did not publish everything. items: 3 of 7 checks failed",
            "dag": "shop",
            "run": "run 1",
            "task": "confirm",
            "page": "/tidefold/runs/shop/run%201",
        }
    ]


@pytest.mark.parametrize(
    "host",
    [
        "chat.example/hooks/SECRET",
        "https://chat.example:SECRET/hooks",
        "http://127.0.0.1/SECRET hook",
        "http://[SECRET",
    ],
)
def test_no_error_has_the_address_in_it(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of the task shows the error, and more people may read it than the connection."""
    from tidefold.errors import InvalidInputError
    from tidefold_airflow.observability.notify import GateNotifier

    monkeypatch.setenv("AIRFLOW_CONN_HOOK", json.dumps({"conn_type": "http", "host": host}))
    ti = SimpleNamespace(dag_id="shop", run_id="run 1", task_id="confirm")
    with pytest.raises(InvalidInputError) as caught:
        GateNotifier("hook").notify({"ti": ti})  # type: ignore[typeddict-item]
    shown = "".join(traceback.format_exception(caught.value))
    assert caught.value.code == "WEBHOOK_ADDRESS"
    assert "SECRET" not in shown
