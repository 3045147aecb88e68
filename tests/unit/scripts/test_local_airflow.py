"""A command of Airflow beside `make up` is one of that Airflow, whose parts start in order."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from local_airflow import stack
from local_airflow.api import AirflowApi
from local_airflow.errors import LocalAirflowError
from local_airflow.processes import Register
from local_airflow.settings import Request
from support.airflow_stack import wait_until
from tidefold.spark.local_server import free_port


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


_API_SERVER = """
import http.server, sys
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"metadatabase": {"status": "healthy"}}')
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Health).serve_forever()
"""
_SCHEDULER = """
import signal, socket, sys
socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("connected", flush=True)
signal.pause()
"""


def test_the_scheduler_finds_the_api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that finds none fails, and its next try begins 5 minutes later."""
    port, register = free_port(), Register(tmp_path / "processes.json")
    programs = {"api-server": _API_SERVER, "scheduler": _SCHEDULER}
    airflow = stack.LocalAirflow(
        Request(tmp_path, tmp_path / "tidefold.yaml", "@hourly"),
        AirflowApi(f"http://127.0.0.1:{port}", "admin", "secret"),
        dict(os.environ),
    )

    def program(name: str, *_: str) -> list[str]:
        return [sys.executable, "-c", programs.get(name, "import signal; signal.pause()"), str(port)]

    monkeypatch.setattr(stack, "_airflow", program)
    try:
        stack._start_components(airflow, register)
        wait_until(lambda: airflow.log("scheduler").read_text() == "connected\n", 30, every=0.1)
    finally:
        for started in register.read():
            stack.stop(started)
