"""A run by the scheduler of an Airflow of its own, the page, assets, and a decision about a refused snapshot.

Runs in the environment of a cell: `python live.py FOLDER CLONE`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

DAG, LOG = "tidefold_materialize", "tellers"
_SECONDS = 1_200


class Api:
    """Airflow's API, and the page behind the same login."""

    def __init__(self, port: int) -> None:
        self.base, self.token = f"http://127.0.0.1:{port}", ""

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and answer; 0: nobody answers."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()[:300]
        except OSError as error:
            return 0, str(error)
        return answer.status, json.loads(text) if "json" in answer.headers.get("Content-Type", "") else text

    def login(self) -> None:
        status, found = self.call("GET", "/auth/token")
        if status not in (200, 201):
            status, found = self.call("POST", "/auth/token", {})
        self.token = found["access_token"]


def wait(what: str, look: Any) -> Any:
    """The first answer that is not empty."""
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        if found := look():
            print(f"{what}: {str(found)[:200]}", flush=True)
            return found
        time.sleep(3)
    raise SystemExit(f"Error: {what}: nothing within {_SECONDS} s")


def set_up(home: Path, port: int) -> dict[str, str]:
    """A sample whose suite refuses one log, and the environment of its Airflow."""
    from tidefold.cli import sample

    shutil.rmtree(home, ignore_errors=True)
    (home / "dags").mkdir(parents=True)
    config = sample.prepare(home / "sample", None)
    sample.land(config, "phase1")
    suite = home / "sample" / "quality" / f"{LOG}.yaml"
    suite.write_text(suite.read_text().replace("max: 100000000", "max: -99999999"))
    import tidefold_airflow

    shutil.copy(Path(tidefold_airflow.__file__).parent / "example_dags" / f"{DAG}.py", home / "dags")
    core = {"LOAD_EXAMPLES": "False", "DAGS_FOLDER": f"{home}/dags", "EXECUTOR": "LocalExecutor", "PARALLELISM": "3"}
    core |= {"DAGS_ARE_PAUSED_AT_CREATION": "False", "SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True"}
    core |= {"EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/", "DAGBAG_IMPORT_TIMEOUT": "240"}
    api = {"HOST": "127.0.0.1", "PORT": str(port), "WORKERS": "1", "BASE_URL": f"http://127.0.0.1:{port}"}
    return {
        **{f"AIRFLOW__CORE__{name}": value for name, value in core.items()},
        **{f"AIRFLOW__API__{name}": value for name, value in api.items()},
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
        "AIRFLOW_HOME": str(home),
        "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[2]"}',
        "TIDEFOLD_CONFIG": str(config),
        "TIDEFOLD_APPROVAL_HOURS": "1",
        "TIDEFOLD_SCHEDULE": "",
        "NO_PROXY": "127.0.0.1,localhost",
    }


def play(api: Api, config: str) -> None:
    """Everything that must hold."""
    wait("healthy", lambda: api.call("GET", "/api/v2/monitor/health")[1] if healthy(api) else None)
    api.login()
    wait("the DAG", lambda: api.call("GET", f"/api/v2/dags/{DAG}")[0] == 200)
    errors = api.call("GET", "/api/v2/importErrors")[1]
    assert errors["total_entries"] == 0, f"Error: {errors}"
    _, run = api.call("POST", f"/api/v2/dags/{DAG}/dagRuns", {"logical_date": None})
    path = f"/api/v2/dags/{DAG}/dagRuns/{urllib.parse.quote(run['dag_run_id'], safe='')}"
    wait("the run", lambda: ended(api, path))
    tasks = api.call("GET", f"{path}/taskInstances")[1]["task_instances"]
    states = {f"{task['task_id']}{task['map_index']}": task["state"] for task in tasks}
    assert not [name for name, state in states.items() if state not in ("success", "skipped")], f"Error: {states}"
    for page in ("/tidefold/", "/tidefold/logs/accounts"):
        status, text = api.call("GET", page)
        assert (status, "accounts" in text) == (200, True), f"Error: {page}: {status} {text[:200]}"
    events = [event["uri"] for event in api.call("GET", "/api/v2/assets/events")[1]["asset_events"]]
    assert any(uri.endswith("/accounts") for uri in events), f"Error: {events}"
    decide(api, config)
    said = tidefold("status", LOG, config=config)
    print(said)
    assert " v0 " in said, f"Error: {said}"


def healthy(api: Api) -> bool:
    status, found = api.call("GET", "/api/v2/monitor/health")
    return status == 200 and found["scheduler"]["status"] == "healthy"


def ended(api: Api, path: str) -> str | None:
    _, run = api.call("GET", path)
    if isinstance(run, dict) and run.get("state") in ("success", "failed"):
        assert run["state"] == "success", f"Error: {run}"
        return "success"
    return None


def decide(api: Api, config: str) -> None:
    """Approves the refused snapshot: in Airflow since 3.1, by the command line before."""
    runs = f"/api/v2/dags/{DAG}_approval/dagRuns"
    asking = wait("the run that asks", lambda: (api.call("GET", runs)[1] or {}).get("dag_runs"))[0]["dag_run_id"]
    path = f"{runs}/{urllib.parse.quote(asking, safe='')}"

    def deferred() -> Any:
        tasks = api.call("GET", f"{path}/taskInstances")[1]["task_instances"]
        return [task for task in tasks if task["task_id"] == "ask" and task["state"] in ("deferred", "awaiting_input")]

    wait("the task that waits", deferred)
    version = api.call("GET", "/api/v2/version")[1]["version"]
    if version.startswith("3.0."):
        said = str(api.call("GET", f"{path}/taskInstances/ask/logs/1")[1])
        assert f"tidefold step confirm {LOG} --override-by" in said, f"Error: the task does not say so: {said[-600:]}"
        print(tidefold("step", "confirm", LOG, "--override-by", "a person", "--reason", "tried", config=config))
        return
    body = {"chosen_options": ["Approve"], "params_input": {"why": "tried"}}
    answers = f"{path}/taskInstances/ask/-1/hitlDetails"
    answer = wait("the answer", lambda: api.call("PATCH", answers, body)[1])
    assert isinstance(answer, dict), f"Error: {answer}"
    wait("the approval's run", lambda: ended(api, path))


def tidefold(*arguments: str, config: str) -> str:
    call = [sys.executable, "-m", "tidefold.cli", *arguments, "-c", config]
    return subprocess.run(call, capture_output=True, text=True, check=True).stdout


def main(home: Path) -> None:
    """Starts Airflow, plays, and ends what it started."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, **set_up(home, port)}
    airflow = str(Path(sys.executable).with_name("airflow"))
    with (home / "standalone.log").open("w") as log:
        process = subprocess.Popen(
            [airflow, "standalone"], env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        play(Api(port), environment["TIDEFOLD_CONFIG"])
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        time.sleep(5)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
