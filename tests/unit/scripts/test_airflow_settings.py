"""The environment of `make up`: what a person sets reaches Airflow, and its tasks find the command."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from local_airflow.postgres import Database
from local_airflow.settings import PROJECT, Request, airflow_env


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    given = {
        "AIRFLOW__METRICS__STATSD_ON": "True", "AIRFLOW_CONN_MY_WEBHOOK": "http://x", "AIRFLOW__API__PORT": "1",
        "AIRFLOW_HOME": "/other", "SPARK_HOME": "/other",
    }  # fmt: skip
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return airflow_env(Request(tmp_path, tmp_path / "tidefold.yaml", ""), Database(1, "x", "y"), 8080)


def test_settings_and_connections_are_kept_and_what_this_airflow_needs_wins(
    tmp_path: Path, made: dict[str, str]
) -> None:
    assert made["AIRFLOW__METRICS__STATSD_ON"] == "True"
    assert made["AIRFLOW_CONN_MY_WEBHOOK"] == "http://x"
    assert (made["AIRFLOW__API__PORT"], made["AIRFLOW_HOME"]) == ("8080", str(tmp_path / "airflow"))
    assert "SPARK_HOME" not in made


def test_tasks_find_the_command(made: dict[str, str]) -> None:
    """A BashOperator with `tidefold move savepoint` ended with 127."""
    assert shutil.which("tidefold", path=made["PATH"]) == str(PROJECT / "tidefold")
