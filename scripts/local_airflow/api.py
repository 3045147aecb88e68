"""Airflow's REST interface, as far as the launcher, the demo and the tests need it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import quote

from local_airflow.errors import LocalAirflowError

_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class AirflowApi:
    """Calls one Airflow as one user; logs in at the first call that needs it."""

    def __init__(self, address: str, user: str, password: str) -> None:
        self.address = address
        self.user = user
        self.password = password
        self._token: str | None = None

    def health(self) -> dict[str, str | None]:
        """State by component; empty while the server does not respond."""
        try:
            answer = self._send("GET", "/api/v2/monitor/health", None, {})
        except (LocalAirflowError, OSError):
            return {}
        return {name: part.get("status") for name, part in json.loads(answer).items()}

    def dags(self) -> list[dict[str, Any]]:
        """The DAGs that were read from their files."""
        return self._list("/dags?limit=100", "dags")

    def runs(self, dag: str) -> list[dict[str, Any]]:
        """The DAG's runs, newest first."""
        return self._list(f"/dags/{dag}/dagRuns?limit=100&order_by=-run_after", "dag_runs")

    def tasks(self, dag: str, run: str) -> list[dict[str, Any]]:
        """The task instances of a run."""
        return self._list(f"/dags/{dag}/dagRuns/{quote(run)}/taskInstances", "task_instances")

    def xcom(self, dag: str, run: str, task: str, index: int = -1) -> Any:
        """What a task returned."""
        path = f"/dags/{dag}/dagRuns/{quote(run)}/taskInstances/{task}/xcomEntries/return_value"
        path += f"?deserialize=true&map_index={index}"
        return self.get(path)["value"]

    def import_errors(self) -> list[dict[str, Any]]:
        return self._list("/importErrors", "import_errors")

    def log(self, dag: str, run: str, task: str, attempt: int, index: int = -1) -> list[str]:
        """The lines of one try of a task, without Airflow's folding marks."""
        content = self.get(
            f"/dags/{dag}/dagRuns/{quote(run)}/taskInstances/{task}/logs/{attempt}?full_content=true&map_index={index}"
        )
        lines = [_line(entry) for entry in content["content"]]
        return [line for line in lines if not line.startswith("::")]

    def set_paused(self, dag: str, paused: bool) -> None:
        """A paused DAG's tasks do not start and it gets no new run."""
        self.call("PATCH", f"/dags/{dag}?update_mask=is_paused", {"is_paused": paused})

    def reparse(self, dag: str) -> None:
        """Makes the dag-processor read the file of a DAG now. The watchers of its assets begin and end with that."""
        self.call("PUT", f"/parseDagFile/{self.get(f'/dags/{dag}')['file_token']}", None)

    def trigger(self, dag: str, conf: Mapping[str, Any] | None = None) -> str:
        """Starts a run by hand; its id."""
        body = {"logical_date": None, "conf": dict(conf or {})}
        return str(self.call("POST", f"/dags/{dag}/dagRuns", body)["dag_run_id"])

    def clear(self, dag: str, run: str, *tasks: str) -> None:
        """Makes tasks of a run run once more, and nothing else."""
        body = {"dry_run": False, "dag_run_id": run, "task_ids": list(tasks), "only_failed": False}
        self.call("POST", f"/dags/{dag}/clearTaskInstances", body)

    def answer(self, dag: str, run: str, task: str, index: int, choice: str, why: str) -> None:
        """Responds to a required action, as a person does in the page."""
        path = f"/dags/{dag}/dagRuns/{quote(run)}/taskInstances/{task}/{index}/hitlDetails"
        self.call("PATCH", path, {"chosen_options": [choice], "params_input": {"why": why}})

    def asset_events(self) -> list[dict[str, Any]]:
        """All of them, oldest first."""
        return self._list("/assets/events?limit=100&order_by=timestamp", "asset_events")

    def set_task_state(self, dag: str, run: str, task: str, state: str) -> None:
        """Marks a task instance, as a person does in the page: a running one is stopped."""
        self.call("PATCH", f"/dags/{dag}/dagRuns/{quote(run)}/taskInstances/{task}", {"new_state": state})

    def get(self, path: str) -> dict[str, Any]:
        return self.call("GET", path, None)

    def page(self, path: str) -> str:
        """Returns the HTML of a page of tidefold, by its address below `/tidefold`."""
        return self._send("GET", f"/tidefold{path}", None, {"Authorization": f"Bearer {self._login()}"}).decode()

    def call(self, method: str, path: str, body: Any) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._login()}"}
        return cast("dict[str, Any]", json.loads(self._send(method, f"/api/v2{path}", body, headers)))

    def _list(self, path: str, key: str) -> list[dict[str, Any]]:
        return cast("list[dict[str, Any]]", self.get(path)[key])

    def _login(self) -> str:
        if self._token is None:
            body = {"username": self.user, "password": self.password}
            self._token = str(json.loads(self._send("POST", "/auth/token", body, {}))["access_token"])
        return self._token

    def _send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        headers = {**headers, "Content-Type": "application/json", "Accept": "application/json"}
        request = urllib.request.Request(f"{self.address}{path}", data, headers, method=method)
        try:
            with _direct.open(request, timeout=30) as answer:
                return cast(bytes, answer.read())
        except urllib.error.HTTPError as error:
            raise LocalAirflowError(f"{method} {path}: {error.code} {error.read().decode()[:500]}") from error


def _line(entry: Any) -> str:
    if isinstance(entry, str):
        return entry
    detail = "; ".join(f"{e.get('exc_type')}: {e.get('exc_value')}" for e in entry.get("error_detail") or [])
    return f"{entry.get('event', '')} {entry.get('reason', '')} {detail}".rstrip()
