"""A command of Airflow beside `make up` is one of that Airflow."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from local_airflow import stack
from local_airflow.errors import LocalAirflowError
from local_airflow.processes import Register
from local_airflow.settings import Request


def test_a_command_has_the_environment_of_the_running_airflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = Request(tmp_path, tmp_path / "tidefold.yaml", "@hourly")
    request.home.mkdir(parents=True)
    given = {"AIRFLOW_HOME": str(request.home), "TIDEFOLD_CONFIG": "mine", "AWS_SECRET_ACCESS_KEY": "secret"}
    stack._write_environment(request, given)
    kept = request.home / "environment.json"
    assert oct(kept.stat().st_mode & 0o777) == "0o600"
    assert "secret" not in kept.read_text()
    with pytest.raises(LocalAirflowError, match="make up"):
        stack.call_airflow(tmp_path, ["dags", "list"])
    said = tmp_path / "said"
    program = "import os, sys; open(sys.argv[1], 'w').write(os.environ['AIRFLOW_HOME'] + ' '.join(sys.argv[2:]))"
    monkeypatch.setattr(stack, "_airflow", lambda *words: [sys.executable, "-c", program, str(said), *words])
    register = Register(tmp_path / "processes.json")
    started = register.start(
        "scheduler", [sys.executable, "-c", "import signal; signal.pause()"], dict(os.environ), tmp_path / "log"
    )
    try:
        assert stack.call_airflow(tmp_path, ["dags", "list"]) == 0
    finally:
        stack.stop(started)
    assert said.read_text() == f"{request.home}dags list"
